"""Bayesian linear regression, whose posterior is known exactly, and noise for the methods."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bdl.methods.counters import StepCounters
from bdl.models.likelihoods import Gaussian
from bdl.models.networks import Linear
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Batch, Problem
from bdl.posteriors import FullGaussian
from bdl.training.programs import occasion
from bdl.training.traced import Repeated


class Target(NamedTuple):
    """A problem, its whole training set, hyper-parameters and the exact posterior."""

    problem: Problem
    data: Batch
    hyper: dict[str, Tensor]
    posterior: FullGaussian


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

    noise_precision = beta * unit**2
    covariance = torch.linalg.inv(prior.diag() + noise_precision * design.T @ design)
    loc = noise_precision * covariance @ design.T @ y

    def cast(value: Tensor | float) -> Tensor:
        return torch.as_tensor(value, dtype=dtype)

    return Target(
        Problem(Linear(), Gaussian(), d_in, prior=GaussianPrior(bias_precision)),
        Batch(cast(x), cast(y), cast(n), cast(unit)),
        {"prior_precision": cast(alpha), "noise_precision": cast(beta)},
        FullGaussian.from_covariance(loc, 0.5 * (covariance + covariance.T)),
    )


def occasions(method: Any, update: int, per_epoch: int) -> tuple[str, ...]:
    """Name what an update, counted from 1, of a fit with so many an epoch is made of."""
    return occasion(method, StepCounters(update, update // per_epoch, update % per_epoch == 0, float(per_epoch)))


def advance(method: Any, state: Any, update: int, per_epoch: int, *given: Any) -> Any:
    """Make an update, counted from 1, of a fit with so many an epoch: the step and what is due after it."""
    for name in occasions(method, update, per_epoch):
        state = getattr(method, name)(state, *given)
    return state


def repeated(method: Any, problem: Problem) -> Repeated:
    """The step of a method on a problem, for many updates: by its trace, which gives the same bits sooner."""
    return Repeated(lambda *given: method.step(*given, problem))


def fit(method: Any, target: Target) -> Any:
    """Fit a target by a method without minibatches, with the noise precision in the unit of its data."""
    units = {"noise_precision": target.data.y_unit**2}
    hyper = {name: value * units.get(name, 1) for name, value in target.hyper.items()}
    return method.fit(target.problem, target.data.x, target.data.y, hyper, 0)


def repeat(data: Batch, times: int) -> Batch:
    """The whole training set as each of several minibatches; one has no axis of its own."""
    if times == 1:
        return data
    return data._replace(x=data.x.expand(times, *data.x.shape), y=data.y.expand(times, *data.y.shape))


def normals(
    shapes: Mapping[str, tuple[int, ...]], generator: torch.Generator, dtype: torch.dtype = torch.float64
) -> dict[str, Tensor]:
    """Standard normals of the shapes that a method asks for."""
    return {name: torch.randn(shape, generator=generator, dtype=dtype) for name, shape in shapes.items()}


def sigma_points(rank: int, dim: int) -> dict[str, Tensor]:
    """2 (K + D) values of the VIFA noise with mean 0 and covariance I.

    The gradient of a quadratic log-likelihood is linear in the noise, so the average of the VIFA estimator
    over these points is its exact expectation.
    """
    m = rank + dim
    points = m**0.5 * torch.eye(m, dtype=torch.float64)
    h, z = torch.cat([points, -points]).split([rank, dim], dim=1)
    return {"h": h, "z": z}
