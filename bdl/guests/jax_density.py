"""Models of dense layers as functions of JAX."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from bdl.errors import InputError
from bdl.methods.guest import Guest, Train
from bdl.models.likelihoods import Bernoulli, Categorical, GaussianLikelihood
from bdl.models.networks import LinearModel, Mlp
from bdl.models.problem import Problem

_LIKELIHOODS = (GaussianLikelihood, Bernoulli, Categorical)


@dataclass(frozen=True)
class Network:
    """The static arguments of a compiled program, in addition to the shapes of `Data`."""

    shapes: tuple[tuple[int, int], ...]
    """Inputs and outputs of each layer."""
    activation: str | None
    bias: bool
    likelihood: type[GaussianLikelihood] | type[Bernoulli] | type[Categorical]


class Data(NamedTuple):
    """The arguments of a compiled program, so that one serves all fits of the same shapes."""

    x: Any
    y: Any
    noise_precision: Any
    """A scalar; 1 where the likelihood has none."""
    deviations: Any
    """Standard deviations of the prior, (D,)."""
    start: Any
    """Parameters to start from, (D,), with the law of the engine's fits."""


class Density(NamedTuple):
    """The posterior of a problem, for JAX; vectors are (D,)."""

    network: Network
    data: Data

    def log_likelihood(self, theta: Any) -> Any:
        """Evaluate log p(D | theta), nats."""
        import jax
        import jax.numpy as jnp

        f, y, beta = self._outputs(theta), self.data.y, self.data.noise_precision
        if self.network.likelihood is GaussianLikelihood:
            return 0.5 * (
                len(y) * jnp.log(beta / (2 * jnp.pi)) - beta * ((y - f[:, 0]) ** 2).sum()
            )
        if self.network.likelihood is Bernoulli:
            return jax.nn.log_sigmoid((2 * y - 1) * f[:, 0]).sum()
        return jnp.take_along_axis(jax.nn.log_softmax(f), y.astype(int)[:, None], 1).sum()

    def log_joint(self, theta: Any) -> Any:
        """Evaluate log p(D, theta) up to a constant, nats."""
        return self.log_likelihood(theta) - 0.5 * ((theta / self.data.deviations) ** 2).sum()

    def _outputs(self, theta: Any) -> Any:
        import jax

        values, offset, shapes = self.data.x, 0, self.network.shapes
        for number, (n_in, n_out) in enumerate(shapes):
            weight = theta[offset : offset + n_in * n_out].reshape(n_out, n_in)
            offset += n_in * n_out
            values = values @ weight.T
            if self.network.bias:
                values = values + theta[offset : offset + n_out]
                offset += n_out
            if number < len(shapes) - 1 and self.network.activation:
                values = getattr(jax.nn, self.network.activation)(values)
        return values


@dataclass(frozen=True)
class JaxGuest(Guest):
    """A guest for the posterior of a model of dense layers, as a function of JAX."""

    needs_model = True

    def check(self, problem: Problem) -> None:
        super().check(problem)
        if not isinstance(problem.model, LinearModel | Mlp):
            raise InputError(
                f"model {type(problem.model).__name__} is not made of dense layers: "
                "use linear or mlp"
            )
        if not isinstance(problem.likelihood, _LIKELIHOODS):
            raise InputError(
                f"likelihood {type(problem.likelihood).__name__} is not known to JAX: "
                "use another method"
            )


def build_density(train: Train, hyper: Mapping[str, float], seed: int) -> Density:
    """Build the posterior of a problem that `JaxGuest` accepts, in the precision of JAX."""
    import jax.numpy as jnp

    problem = train.problem
    model: Any = problem.model
    shapes = tuple(pairwise(model.widths(problem.d_in, problem.d_out)))
    activation = model.activation if isinstance(model, Mlp) else None
    values = {name: torch.tensor(value, dtype=torch.float64) for name, value in hyper.items()}
    precision = problem.prior_precision(values).expand(problem.dim)
    noise = torch.randn(
        problem.dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    data = Data(
        x=train.x,
        y=train.y,
        noise_precision=hyper.get("noise_precision", 1.0),
        deviations=precision.rsqrt(),
        start=problem.initial(noise),
    )
    likelihood = next(kind for kind in _LIKELIHOODS if isinstance(problem.likelihood, kind))
    network = Network(shapes, activation, model.bias, likelihood)
    return Density(network, Data(*(jnp.asarray(np.asarray(field, dtype=float)) for field in data)))
