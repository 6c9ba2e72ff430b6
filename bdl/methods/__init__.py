"""Approximate inference methods, one file each."""

from bdl.registry import Registry

METHODS = Registry(
    "method",
    {
        "vifa": "bdl.methods.vifa:Vifa",
        "sgd-iterates": "bdl.methods.sgd_iterates:SgdIterates",
        "swag": "bdl.methods.swag:Swag",
        "iterates-fa": "bdl.methods.iterates_fa:IteratesFa",
        "natural-gradient": "bdl.methods.natural_gradient:NaturalGradient",
        "slang": "bdl.methods.slang:Slang",
        "slang-online-eig": "bdl.methods.slang_online_eig:SlangOnlineEig",
        "bbb": "bdl.methods.bbb:BayesByBackprop",
        "adam": "bdl.methods.point_estimate:Adam",
        "sgd": "bdl.methods.point_estimate:Sgd",
        "noisy-adam": "bdl.methods.noisy_adam:NoisyAdam",
        "noisy-kfac": "bdl.methods.noisy_kfac:NoisyKfac",
        "vadam": "bdl.methods.vadam:Vadam",
        "vprop": "bdl.methods.vadam:Vprop",
        "vprop-root": "bdl.methods.vadam:VpropRoot",
        "vogn": "bdl.methods.vadam:Vogn",
        "mc-dropout": "bdl.methods.mc_dropout:McDropout",
        "conjugate": "bdl.methods.conjugate:Conjugate",
        "fa-optimum": "bdl.methods.fa_optimum:FactorAnalysisOptimum",
        "online-sga": "bdl.methods.online_sga:OnlineSga",
        "online-em": "bdl.methods.online_em:OnlineEm",
        "online-px-em": "bdl.methods.online_px_em:OnlinePxEm",
        "batch-fa": "bdl.methods.batch_fa:BatchFa",
        "fa-elbo": "bdl.methods.fa_elbo:FactorAnalysisElbo",
        "exact-gaussian": "bdl.methods.exact_gaussian:ExactGaussian",
        "laplace": "bdl.methods.laplace:Laplace",
        "cholesky-vi": "bdl.methods.cholesky_vi:CholeskyVi",
        "importance-sampling": "bdl.methods.importance_sampling:ImportanceSampling",
        "moment-matching": "bdl.methods.moment_matching:MomentMatching",
    },
    contracts=(
        "bdl.methods.base:Method",
        "bdl.methods.base:DirectMethod",
        "bdl.methods.base:ExternalMethod",
        "bdl.methods.base:StreamMethod",
    ),
)
