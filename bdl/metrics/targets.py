"""Rows of a data set, and the distributions of their targets: given outputs, predictions, or
mixtures of those of samples.
"""

import math
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, MixtureSameFamily, Normal

from bdl.errors import InputError
from bdl.models.problem import Hyper, Problem
from bdl.posteriors.predictive import (
    Answer,
    MeanVariance,
    Outputs,
    Probabilities,
    query_predictive,
)
from bdl.posteriors.tensors import as_type


class Examples(NamedTuple):
    """Rows of a data set."""

    x: Tensor
    """Inputs as the model sees them, (n, d)."""
    y: Tensor
    """Targets in original units, float64, (n,)."""
    y_unit: Tensor | float
    """Original target units per unit of the model's outputs."""
    y_origin: Tensor | float
    """Where the model's outputs are zero, original target units."""
    rows: Tensor | None = None
    """Their numbers in the data set, int64, (n,); None for other rows."""

    @property
    def scale(self) -> tuple[Tensor, Tensor]:
        """Unit and origin, float64."""
        return torch.as_tensor(self.y_unit, dtype=torch.float64), torch.as_tensor(
            self.y_origin, dtype=torch.float64
        )

    def take(self, index: Tensor | slice) -> "Examples":
        """Select some of the rows."""
        rows = None if self.rows is None else self.rows[index]
        return self._replace(x=self.x[index], y=self.y[index], rows=rows)


def order_rows(rows: Examples) -> Tensor:
    """Return an order of the rows that does not depend on theirs: by targets, then by inputs from
    the first on.
    """
    return torch.from_numpy(
        np.lexsort((*rows.x.flatten(1).T.cpu().numpy()[::-1], rows.y.cpu().numpy()))
    )


def build_target_distribution(problem: Problem, f: Tensor, hyper: Hyper) -> Distribution:
    """Return the distributions of the targets at outputs in original units, (..., d_out)."""
    return problem.likelihood.predictive(
        f.double(), {name: value.double() for name, value in hyper.items()}
    )


def query_rows(problem: Problem, predictive: Any, examples: Examples) -> Answer:
    """Ask what predicts by itself about rows, on the CPU.

    Errors as in `bdl.posteriors.predictive.query_predictive`.
    """
    prediction = query_predictive(
        predictive, examples.x, examples.rows, problem.d_out, problem.classes
    )
    return as_type(prediction, torch.float64, torch.device("cpu"))


def restore_outputs(problem: Problem, prediction: Outputs, examples: Examples) -> Tensor:
    """Return outputs in original units."""
    return problem.likelihood.restore(prediction.outputs, *examples.scale)


def build_answer_distribution(
    problem: Problem, prediction: Answer, examples: Examples, hyper: Hyper
) -> Distribution:
    """Return the distributions of the targets that an answer stands for, in original units, of its
    shape (S, n).
    """
    if isinstance(prediction, Outputs):
        return build_target_distribution(
            problem, restore_outputs(problem, prediction, examples), hyper
        )
    if isinstance(prediction, Probabilities):
        # as logarithms, since PyTorch raises small probabilities to the precision of float64
        return Categorical(logits=prediction.probabilities.log(), validate_args=False)
    assert isinstance(prediction, MeanVariance), "there are three answers"
    unit, origin = examples.scale
    return Normal(
        prediction.mean * unit + origin, prediction.variance.sqrt() * unit, validate_args=False
    )


_MOST_STEPS = 200
"""Of the search for a quantile; bisection alone takes some 60."""
_VALUES_AT_ONCE = 1 << 16
"""Components of a mixture whose quantiles are searched at a time; few arrays fill the cache."""
_STEP_TOLERANCE, _ROUNDING = 1e-12, 4 * np.finfo(np.float64).eps
"""Last step of a bisection, in standard deviations of the narrowest component, and as a share of
the quantile.
"""
_NEWTON_TOLERANCE = 1e-7
"""Last step of Newton's method, likewise: the error after it is about its square."""


class EqualMixture(MixtureSameFamily):
    """An equal mixture over posterior draws, which has quantiles."""

    @classmethod
    def of(cls, members: Distribution) -> Self:
        """Mix distributions of shape (n, S) over the second axis."""
        weights = torch.ones(members.batch_shape, dtype=torch.float64)
        return cls(Categorical(probs=weights), members, validate_args=False)

    def icdf(self, value: Tensor) -> Tensor:
        """Return quantiles, of probabilities that broadcast with the batch shape (n,).

        `InputError` if the components have no quantiles.
        """
        value = torch.as_tensor(value, dtype=torch.float64)
        probabilities = value + torch.zeros(self.batch_shape, dtype=torch.float64)
        members = self.component_distribution
        if not isinstance(members, Normal):
            return _search_quantiles(members, probabilities)
        size = max(1, _VALUES_AT_ONCE // members.loc.shape[-1])
        quantiles: list[Tensor] = []
        for start in range(0, len(members.loc), size):
            rows = slice(start, start + size)
            block = _FastNormal(members.loc[rows], members.scale[rows], validate_args=False)
            quantiles.append(_search_quantiles(block, probabilities[..., rows]))
        return torch.cat(quantiles, -1)


class _FastNormal(Normal):
    """A `Normal` whose functions, which a search calls again and again, make fewer arrays."""

    def cdf(self, value: Tensor) -> Tensor:
        return self._standardise(value).erf_().add_(1).mul_(0.5)

    def log_prob(self, value: Tensor) -> Tensor:
        return self._standardise(value).square_().neg_().add_(self._log_height)

    @cached_property
    def _root_precision(self) -> Tensor:
        return (math.sqrt(2) * self.scale).reciprocal()

    @cached_property
    def _log_height(self) -> Tensor:
        return self._root_precision.log() - 0.5 * math.log(math.pi)

    def _standardise(self, value: Tensor) -> Tensor:
        return (value - self.loc).mul_(self._root_precision)


def _search_quantiles(members: Distribution, probabilities: Tensor) -> Tensor:
    """Search for the quantiles of equal mixtures over the last axis of (n, S) components.

    Newton's method goes to the root of Phi^-1(F(y)) - Phi^-1(p), which is linear for a normal
    distribution, between the least and the greatest quantile of the components. Where a step
    leaves that bracket, or is longer than half of the step before, the bracket is halved instead.
    It starts at the quantile of the normal distribution with the mean and variance of the mixture.
    """
    try:
        quantiles = members.icdf(probabilities.unsqueeze(-1))
    except NotImplementedError:
        raise InputError(
            f"the likelihood's {type(members).__name__} has no quantiles: take them of samples"
        ) from None
    low, high = quantiles.amin(-1), quantiles.amax(-1)
    ends = torch.where(probabilities == 0, low, high)
    size = high - low
    target, narrowest = torch.special.ndtri(probabilities), members.stddev.amin(-1)
    variance = members.variance.mean(-1) + members.mean.var(-1, correction=0)
    normal_quantile = members.mean.mean(-1) + target * variance.sqrt()
    point = normal_quantile.clamp(low, high)
    for _ in range(_MOST_STEPS):
        at = point.unsqueeze(-1)
        below_point = members.cdf(at).mean(-1)
        is_below = below_point < probabilities
        low, high = torch.where(is_below, point, low), torch.where(is_below, high, point)
        score = torch.special.ndtri(below_point)
        normal_density = (-score.square() / 2).exp() / math.sqrt(2 * math.pi)
        # not finite where the density vanishes, between components that are far apart
        step = (target - score) * normal_density / members.log_prob(at).exp().mean(-1)
        newton, middle = point + step, low + (high - low) / 2
        tolerance = _STEP_TOLERANCE * narrowest + _ROUNDING * point.abs()
        is_short = step.abs() <= torch.maximum(size / 2, tolerance)
        is_newton = (newton >= low) & (newton <= high) & is_short
        new_point = torch.where(is_newton, newton, middle)
        size, point = (new_point - point).abs(), new_point
        newton_tolerance = torch.where(is_newton, _NEWTON_TOLERANCE * narrowest, 0)
        if bool((size <= torch.maximum(tolerance, newton_tolerance)).all()):
            break
    return torch.where((probabilities == 0) | (probabilities == 1), ends, point)


def central_interval(law: Distribution, level: float) -> tuple[Tensor, Tensor]:
    """Return the ends of the central intervals of a probability, (n,) each.

    Errors as in `EqualMixture.icdf`.
    """
    low, high = (torch.tensor((1 + side * level) / 2, dtype=torch.float64) for side in (-1, 1))
    return law.icdf(low), law.icdf(high)


def crps(law: Normal, y: Tensor) -> Tensor:
    """Compute the continuous ranked probability score of equal mixtures of normals (n, S), (n,),
    in the targets' unit.

    It is E|X - y| - E|X - X'| / 2 for independent X and X' of the mixture, in closed form since
    differences of normals are normal (Grimit et al. 2006, "The continuous ranked probability score
    for circular variables and its application to mesoscale forecast ensemble verification",
    equation 5).
    """
    mean, variance = law.mean.T.contiguous(), law.variance.T.contiguous()
    within = _expect_absolute(torch.zeros_like(variance), 2 * variance).sum(0)
    # pairs of components, each once, without S^2 n numbers at a time
    for s in range(len(mean) - 1):
        within += 2 * _expect_absolute(
            mean[s + 1 :] - mean[s], variance[s + 1 :] + variance[s]
        ).sum(0)
    return _expect_absolute(y - mean, variance).mean(0) - within / (2 * len(mean) ** 2)


def _expect_absolute(mean: Tensor, variance: Tensor) -> Tensor:
    """Expect the absolute value of a normal."""
    z = mean / (2 * variance).sqrt()
    return (2 * variance / math.pi).sqrt() * (-z.square()).exp() + mean * z.erf()
