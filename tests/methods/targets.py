"""Bayesian linear regression, whose posterior is known exactly, and noise for the methods."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bdl.methods.counters import StepCounters
from bdl.models.likelihoods import GaussianLikelihood
from bdl.models.networks import LinearModel
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Batch, Problem
from bdl.posteriors import FullGaussian, Posterior
from bdl.training.traced import TracedFunction
from bdl.training.updates import update_kind

BETA = 0.4 * 1.3**2
"""Noise precision of the targets in the unit of their data."""


class Target(NamedTuple):
    """A problem, its whole training set, hyper-parameters and the exact posterior."""

    problem: Problem
    data: Batch
    hyper: dict[str, Tensor]
    posterior: FullGaussian

    @property
    def design(self) -> Tensor:
        """The inputs, and a column of ones."""
        return torch.cat([self.data.x, torch.ones_like(self.data.x[:, :1])], dim=1)


def doubles(**values: float) -> dict[str, Tensor]:
    """Hyper-parameters in double precision."""
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}


def batch_of(x: Tensor, y: Tensor, n: float, unit: float = 1.0) -> Batch:
    """Rows of a data set of n, whose targets have a unit."""
    return Batch(x, y, *torch.tensor([n, unit], dtype=x.dtype))


def linear_gaussian(
    seed: int = 0,
    n: int = 12,
    d_in: int = 2,
    bias_precision: float | None = None,
    dtype: torch.dtype = torch.float64,
) -> Target:
    """Correlated inputs and a target that is not in its standard unit, so that every factor matters."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    alpha, beta, unit = 1.5, 0.4, 1.3
    x = normal(n, d_in) + 0.8 * normal(n, 1)
    design = torch.cat([x, torch.ones_like(x[:, :1])], dim=1)
    y = design @ normal(d_in + 1) + 0.5 * normal(n)
    prior = torch.full((d_in + 1,), alpha, dtype=torch.float64)
    prior[-1] = alpha if bias_precision is None else bias_precision
    covariance = torch.linalg.inv(prior.diag() + BETA * design.T @ design)
    loc = BETA * covariance @ design.T @ y

    def cast(value: Tensor | float) -> Tensor:
        return torch.as_tensor(value, dtype=dtype)

    return Target(
        Problem(LinearModel(), GaussianLikelihood(), d_in, prior=GaussianPrior(bias_precision)),
        Batch(cast(x), cast(y), cast(n), cast(unit)),
        {"prior_precision": cast(alpha), "noise_precision": cast(beta)},
        FullGaussian.from_covariance(loc, 0.5 * (covariance + covariance.T)),
    )


def occasions(method: Any, update: int, per_epoch: int) -> tuple[str, ...]:
    """Name what an update, counted from 1, of a fit with so many an epoch is made of."""
    return update_kind(
        method,
        StepCounters(update, update // per_epoch, update % per_epoch == 0, float(per_epoch)),
    )


def advance(method: Any, state: Any, update: int, per_epoch: int, *given: Any) -> Any:
    """Make an update, counted from 1, of a fit with so many an epoch: the step and what is due after it."""
    for name in occasions(method, update, per_epoch):
        state = getattr(method, name)(state, *given)
    return state


def steps(
    method: Any,
    problem: Problem,
    batch: Batch,
    hyper: Mapping[str, Tensor],
    count: int,
    seed: int = 0,
) -> Iterator[tuple[Any, Any, dict[str, Tensor]]]:
    """Make updates with one batch.

    Give the state before each, the state after it, and its noise.
    """
    generator = torch.Generator().manual_seed(seed)
    state = method.init(problem, normals(method.init_noise(problem), generator))
    for _ in range(count):
        noise = normals(method.step_noise(problem), generator)
        before, state = (
            state,
            method.step(state, repeat(batch, method.batches_per_step), hyper, noise, problem),
        )
        yield before, state, noise


def settled(
    method: Any,
    problem: Problem,
    batch: Batch,
    hyper: Mapping[str, Tensor],
    noise: Mapping[str, Tensor],
    count: int,
) -> Any:
    """The state after many updates with the same noise, by a trace of the step, which gives the same bits sooner."""
    step = TracedFunction(lambda *given: method.step(*given, problem))
    state = method.init(
        problem, normals(method.init_noise(problem), torch.Generator().manual_seed(0))
    )
    for _ in range(count):
        state = step(state, repeat(batch, method.batches_per_step), hyper, noise)
    return state


def model_units(target: Target) -> dict[str, Tensor]:
    """Hyper-parameters of a target, the noise precision in the unit of its data."""
    return target.hyper | {
        "noise_precision": target.hyper["noise_precision"] * target.data.y_unit**2
    }


def fit(method: Any, target: Target, seed: int = 0) -> Any:
    """Fit a target by a method without minibatches."""
    return method.fit(target.problem, target.data.x, target.data.y, model_units(target), seed)


def assert_same(
    found: Posterior, expected: Posterior, rtol: float = 1e-10, atol: float = 1e-12
) -> None:
    """Compare means and covariances."""
    torch.testing.assert_close(found.mean(), expected.mean(), rtol=rtol, atol=atol)
    torch.testing.assert_close(found.covariance(), expected.covariance(), rtol=rtol, atol=atol)


def repeat(data: Batch, times: int) -> Batch:
    """The whole training set as each of several minibatches; one has no axis of its own."""
    if times == 1:
        return data
    return data._replace(
        x=data.x.expand(times, *data.x.shape), y=data.y.expand(times, *data.y.shape)
    )


def normals(
    shapes: Mapping[str, tuple[int, ...]],
    generator: torch.Generator,
    dtype: torch.dtype = torch.float64,
) -> dict[str, Tensor]:
    """Standard normals of the shapes that a method asks for."""
    return {
        name: torch.randn(shape, generator=generator, dtype=dtype)
        for name, shape in shapes.items()
    }


def sigma_points(rank: int, dim: int) -> dict[str, Tensor]:
    """2 (K + D) values of the VIFA noise with mean 0 and covariance I.

    The gradient of a quadratic log-likelihood is linear in the noise, so the average of the VIFA
    estimator over these points is its exact expectation.
    """
    m = rank + dim
    points = m**0.5 * torch.eye(m, dtype=torch.float64)
    h, z = torch.cat([points, -points]).split([rank, dim], dim=1)
    return {"h": h, "z": z}
