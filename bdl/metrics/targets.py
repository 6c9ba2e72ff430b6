"""Rows of a data set, and the distributions of their targets: given outputs, predictions, or
mixtures of those of samples.
"""

import math
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
        return Categorical(probs=prediction.probabilities, validate_args=False)
    assert isinstance(prediction, MeanVariance), "there are three answers"
    unit, origin = examples.scale
    return Normal(
        prediction.mean * unit + origin, prediction.variance.sqrt() * unit, validate_args=False
    )


_HALVINGS = 100
"""Of a bracket of quantiles, more than float64 has digits."""


class EqualMixture(MixtureSameFamily):
    """An equal mixture over posterior draws, which has quantiles."""

    @classmethod
    def of(cls, members: Distribution) -> Self:
        """Mix distributions of shape (n, S) over the second axis."""
        weights = torch.ones(members.batch_shape, dtype=torch.float64)
        return cls(Categorical(probs=weights), members, validate_args=False)

    def interval(self, level: float) -> tuple[Tensor, Tensor]:
        """Return the ends of the central intervals of a probability, (n,) each.

        Errors as in `icdf`.
        """
        low, high = (torch.tensor((1 + side * level) / 2, dtype=torch.float64) for side in (-1, 1))
        return self.icdf(low), self.icdf(high)

    def icdf(self, value: Tensor) -> Tensor:
        """Return quantiles by bisection, the least and the greatest of the components' being on
        either side.

        The probabilities broadcast with the batch shape (n,). `InputError` if the components have
        no quantiles.
        """
        value = torch.as_tensor(value, dtype=torch.float64)
        try:
            quantiles = self.component_distribution.icdf(value.unsqueeze(-1))
        except NotImplementedError:
            name = type(self.component_distribution).__name__
            raise InputError(
                f"the likelihood's {name} has no quantiles: take them of samples"
            ) from None
        # bisection needs no density, which vanishes between components that are far apart
        low, high = quantiles.amin(-1), quantiles.amax(-1)
        for _ in range(_HALVINGS):
            middle = low + (high - low) / 2
            below = self.cdf(middle) < value  # type: ignore[no-untyped-call]
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return low + (high - low) / 2


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
