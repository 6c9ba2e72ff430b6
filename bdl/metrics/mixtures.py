"""Equal mixtures of normals, one for each row: distribution functions, quantiles and the CRPS.

A mixture is a `Normal` of shape (S, n), of S components at n rows.
"""

import math

import torch
from torch import Tensor
from torch.distributions import Normal

from bdl.errors import InputError
from bdl.metrics.evaluation import Evaluation

_HALVINGS = 64
"""Of a bracket of a quantile: below rounding, however wide it was."""


def mixtures(name: str, evaluation: Evaluation) -> Normal:
    """Return the predictive distributions of the test targets, original units, for the metric of that name.

    Raises
    ------
    InputError
        If they are not normal under each sample.
    """
    found = evaluation.components
    if not isinstance(found, Normal):
        raise InputError(f"{name}: the likelihood predicts {type(found).__name__}, not Normal: leave the metric out")
    return found


def below(law: Normal, y: Tensor) -> Tensor:
    """Compute the predictive probability below each target, its probability integral transform: (n,) -> (n,)."""
    found: Tensor = law.cdf(y)  # type: ignore[no-untyped-call]
    return found.mean(0)


def quantile(law: Normal, p: float) -> Tensor:
    """Find where the distribution function of each row is p, by halving: (n,), in the targets' unit."""
    own: Tensor = law.icdf(torch.tensor(p, dtype=torch.float64))  # type: ignore[no-untyped-call]
    low, high = own.amin(0), own.amax(0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        short = below(law, middle) < p
        low, high = torch.where(short, middle, low), torch.where(short, high, middle)
    return (low + high) / 2


def crps(law: Normal, y: Tensor) -> Tensor:
    """Compute the continuous ranked probability score of each row, in the targets' unit.

    It is E|X - y| - E|X - X'| / 2 for independent X and X' of the mixture, in closed form since differences of normals
    are normal (Grimit et al. 2006, "The continuous ranked probability score for circular variables and its application
    to mesoscale forecast ensemble verification", equation 5).

    Parameters
    ----------
    law
        The mixtures, (S, n).
    y
        Targets, (n,).

    Returns
    -------
    Tensor
        (n,); 0 is best.
    """
    count, variance = len(law.mean), law.variance
    within = _distance(torch.zeros_like(variance), 2 * variance).sum(0)
    for s in range(count - 1):  # pairs of components, each once, without S^2 n numbers at a time
        within += 2 * _distance(law.mean[s + 1 :] - law.mean[s], variance[s + 1 :] + variance[s]).sum(0)
    return _distance(y - law.mean, variance).mean(0) - within / (2 * count**2)


def _distance(mean: Tensor, variance: Tensor) -> Tensor:
    """Expect the absolute value of a normal."""
    z = mean / (2 * variance).sqrt()
    return (2 * variance / math.pi).sqrt() * (-z.square()).exp() + mean * z.erf()
