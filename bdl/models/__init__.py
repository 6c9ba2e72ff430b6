"""Models, likelihoods and priors as functions of one flat parameter vector."""

from bdl.registry import Registry

MODELS = Registry(
    "model",
    {
        "linear": "bdl.models.networks:LinearModel",
        "mlp": "bdl.models.networks:Mlp",
        "unit": "bdl.models.networks:Unit",
        "module": "bdl.models.modules:Module",
    },
    contract="bdl.models.base:Model",
)

LIKELIHOODS = Registry(
    "likelihood",
    {
        "gaussian": "bdl.models.likelihoods:GaussianLikelihood",
        "bernoulli": "bdl.models.likelihoods:Bernoulli",
        "categorical": "bdl.models.likelihoods:Categorical",
    },
    contract="bdl.models.likelihoods:Likelihood",
)

PRIORS = Registry(
    "prior",
    {
        "gaussian": "bdl.models.priors:GaussianPrior",
        "student-t": "bdl.models.priors:StudentTPrior",
        "spike-slab": "bdl.models.priors:SpikeSlabPrior",
        "horseshoe": "bdl.models.priors:HorseshoePrior",
    },
    contract="bdl.models.priors:Prior",
)
