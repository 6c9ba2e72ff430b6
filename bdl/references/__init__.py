"""Ground truth: posteriors that are exact, or certified."""

from bdl.registry import Registry

REFERENCES = Registry(
    "reference",
    {
        "conjugate": "bdl.references.linear:ConjugateReference",
        "nuts": "bdl.references.nuts:NutsReference",
        "network-mcmc": "bdl.references.network_mcmc:NetworkMcmc",
        "bayesian-ridge": "bdl.references.linear:BayesianRidgeReference",
        "grid": "bdl.references.grid:GridReference",
        "exact-gaussian": "bdl.references.exact_gaussian:ExactGaussianReference",
    },
    contracts=("bdl.references.base:Reference",),
)
