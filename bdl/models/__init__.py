"""Models, likelihoods and priors as functions of one flat parameter vector."""

from bdl.registry import Registry

MODELS = Registry(
    "model",
    {
        "linear": "bdl.models.networks:Linear",
        "mlp": "bdl.models.networks:Mlp",
    },
    contracts=("bdl.models.networks:Model",),
)

LIKELIHOODS = Registry(
    "likelihood",
    {
        "gaussian": "bdl.models.likelihoods:Gaussian",
        "bernoulli": "bdl.models.likelihoods:Bernoulli",
        "categorical": "bdl.models.likelihoods:Categorical",
    },
    contracts=("bdl.models.likelihoods:Likelihood",),
)
