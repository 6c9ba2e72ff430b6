"""Ground truth: posteriors that are exact, or certified."""

from bdl.registry import Registry

REFERENCES = Registry(
    "reference",
    {
        "conjugate": "bdl.references.exact:ConjugateReference",
        "nuts": "bdl.references.nuts:NutsReference",
        "network-mcmc": "bdl.references.nuts:NetworkMcmc",
        "bayesian-ridge": "bdl.references.exact:BayesianRidgeReference",
        "grid": "bdl.references.exact:GridReference",
        "exact-gaussian": "bdl.references.exact:ExactGaussianReference",
    },
    bases=("bdl.references.base:Reference",),
)
