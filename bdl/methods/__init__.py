"""Approximate inference methods, one file each."""

from bdl.registry import Registry

METHODS = Registry(
    "method",
    {
        "vifa": "bdl.methods.vifa:Vifa",
        "sgd-iterates": "bdl.methods.sgd_iterates:SgdIterates",
        "swag": "bdl.methods.swag:Swag",
        "slang": "bdl.methods.slang:Slang",
        "slang-online-eig": "bdl.methods.slang_online_eig:SlangOnlineEig",
        "bbb": "bdl.methods.bbb:BayesByBackprop",
        "mc-dropout": "bdl.methods.mc_dropout:McDropout",
        "conjugate": "bdl.methods.conjugate:Conjugate",
        "fa-optimum": "bdl.methods.fa_optimum:FactorAnalysisOptimum",
        "fa-elbo": "bdl.methods.fa_elbo:FactorAnalysisElbo",
    },
    contracts=("bdl.methods.base:Method", "bdl.methods.base:DirectMethod"),
)
