"""Models of dense layers as functions of JAX."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from bdl.errors import InputError
from bdl.methods.guest import Train
from bdl.models.likelihoods import Bernoulli, Categorical, Gaussian
from bdl.models.networks import Linear, Mlp
from bdl.models.problem import Problem

_ACTIVATIONS = ("relu", "tanh", "sigmoid", "softplus", "silu", "gelu")


class Density(NamedTuple):
    """The posterior of a problem, for JAX; vectors are (D,)."""

    log_likelihood: Callable[[Any], Any]
    """Evaluates log p(D | theta), nats."""
    deviations: Any
    """Standard deviations of the prior."""
    start: Any
    """Parameters to start from, with the law of the engine's fits."""

    def log_joint(self, theta: Any) -> Any:
        """Evaluate log p(D, theta) up to a constant, nats."""
        return self.log_likelihood(theta) - 0.5 * ((theta / self.deviations) ** 2).sum()


def check_dense(problem: Problem) -> None:
    """Raise `InputError` unless the model is made of dense layers, and the likelihood is one of the suite."""
    if not isinstance(problem.model, Linear | Mlp):
        raise InputError(f"model {type(problem.model).__name__} is not made of dense layers: use linear or mlp")
    if not isinstance(problem.likelihood, Gaussian | Bernoulli | Categorical):
        raise InputError(f"likelihood {type(problem.likelihood).__name__} is not known to JAX: use another method")


def density(train: Train, hyper: Mapping[str, float], seed: int) -> Density:
    """Write the posterior of a problem for JAX, in its present precision; errors as in `check_dense`."""
    import jax
    import jax.numpy as jnp

    problem = train.problem
    check_dense(problem)
    model: Any = problem.model
    shapes = list(pairwise(model.widths(problem.d_in, problem.d_out)))
    activation = getattr(jax.nn, model.activation) if isinstance(model, Mlp) else None
    if isinstance(model, Mlp) and model.activation == "gelu":
        activation = lambda values: jax.nn.gelu(values, approximate=False)  # noqa: E731
    x, y = jnp.asarray(train.x), jnp.asarray(train.y)

    def outputs(theta: Any) -> Any:
        values, place = x, 0
        for number, (n_in, n_out) in enumerate(shapes):
            weight = theta[place : place + n_in * n_out].reshape(n_out, n_in)
            place += n_in * n_out
            values = values @ weight.T
            if model.bias:
                values = values + theta[place : place + n_out]
                place += n_out
            if number < len(shapes) - 1 and activation is not None:
                values = activation(values)
        return values

    def log_likelihood(theta: Any) -> Any:
        f = outputs(theta)
        if isinstance(problem.likelihood, Gaussian):
            beta = hyper["noise_precision"]
            return 0.5 * (len(y) * np.log(beta / (2 * np.pi)) - beta * ((y - f[:, 0]) ** 2).sum())
        if isinstance(problem.likelihood, Bernoulli):
            return jax.nn.log_sigmoid((2 * y - 1) * f[:, 0]).sum()
        return jnp.take_along_axis(jax.nn.log_softmax(f), y.astype(int)[:, None], 1).sum()

    values = {name: torch.tensor(value, dtype=torch.float64) for name, value in hyper.items()}
    precision = problem.prior_precision(values).expand(problem.dim)
    noise = torch.randn(problem.dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Density(log_likelihood, jnp.asarray(precision.rsqrt().numpy()), jnp.asarray(problem.initial(noise).numpy()))
