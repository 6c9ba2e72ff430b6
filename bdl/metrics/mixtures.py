"""What is predicted of numbers: for each row an equal mixture over samples, with its quantiles and its CRPS."""

import math
from typing import Self

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, MixtureSameFamily, Normal

from bdl.errors import InputError
from bdl.metrics.evaluation import Evaluation

_HALVINGS = 100
"""Of a bracket of quantiles, more than float64 has digits."""


class Mixture(MixtureSameFamily):
    """An equal mixture over posterior draws, which has quantiles."""

    @classmethod
    def of(cls, members: Distribution) -> Self:
        """Mix distributions of shape (n, S) over the second axis."""
        weights = torch.ones(members.batch_shape, dtype=torch.float64)
        return cls(Categorical(probs=weights), members, validate_args=False)

    def icdf(self, value: Tensor) -> Tensor:
        """Return quantiles by bisection, the least and the greatest of the components' being on either side.

        Parameters
        ----------
        value
            Probabilities, of a shape that broadcasts with the batch shape (n,).

        Raises
        ------
        InputError
            If the components have none.
        """
        value = torch.as_tensor(value, dtype=torch.float64)
        try:
            each = self.component_distribution.icdf(value.unsqueeze(-1))
        except NotImplementedError:
            name = type(self.component_distribution).__name__
            raise InputError(f"the likelihood's {name} has no quantiles: take them of samples") from None
        low, high = each.amin(-1), each.amax(-1)
        for _ in range(_HALVINGS):
            middle = low + (high - low) / 2
            below = self.cdf(middle) < value  # type: ignore[no-untyped-call]
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return low + (high - low) / 2


def normals(name: str, evaluation: Evaluation) -> Normal:
    """Return the components of the mixtures at the test rows, (n, S), original units, for the metric of that name.

    Raises
    ------
    InputError
        If they are not normal.
    """
    found = evaluation.components
    if not isinstance(found, Normal):
        raise InputError(f"{name}: the likelihood predicts {type(found).__name__}, not Normal: leave the metric out")
    return found


def crps(law: Normal, y: Tensor) -> Tensor:
    """Compute the continuous ranked probability score of equal mixtures of normals, in the targets' unit.

    It is E|X - y| - E|X - X'| / 2 for independent X and X' of the mixture, in closed form since differences of normals
    are normal (Grimit et al. 2006, "The continuous ranked probability score for circular variables and its application
    to mesoscale forecast ensemble verification", equation 5).

    Parameters
    ----------
    law
        Components, (n, S).
    y
        Targets, (n,).

    Returns
    -------
    Tensor
        (n,); 0 is best.
    """
    mean, variance = law.mean.T.contiguous(), law.variance.T.contiguous()
    within = _distance(torch.zeros_like(variance), 2 * variance).sum(0)
    for s in range(len(mean) - 1):  # pairs of components, each once, without S^2 n numbers at a time
        within += 2 * _distance(mean[s + 1 :] - mean[s], variance[s + 1 :] + variance[s]).sum(0)
    return _distance(y - mean, variance).mean(0) - within / (2 * len(mean) ** 2)


def _distance(mean: Tensor, variance: Tensor) -> Tensor:
    """Expect the absolute value of a normal."""
    z = mean / (2 * variance).sqrt()
    return (2 * variance / math.pi).sqrt() * (-z.square()).exp() + mean * z.erf()
