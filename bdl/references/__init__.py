"""Ground truth: posteriors that are exact, or certified."""

from bdl.registry import Registry

REFERENCES = Registry(
    "reference",
    {
        "conjugate": "bdl.references.linear:ConjugateReference",
        "bayesian-ridge": "bdl.references.linear:BayesianRidgeReference",
    },
    contracts=("bdl.references.base:Reference",),
)
