"""Rows that are equally certain, and expectations over the ways to choose among them.

Of g tied rows r are kept, each set of r as probable as the others. The number of marked rows among those is then
hypergeometric, so that scores which are ratios of such numbers have finite sums as their expectations.
"""

import math

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]

_ROUNDING = 1e-12
"""Relative difference up to which neighbours count as tied: what is computed of equal rows differs by less."""
_REACH = 4.5
"""Times sqrt(r), the distance of a count from its mean beyond which it is left out. By Hoeffding's inequality the
probability of all of that is at most 2 exp(-2 * 4.5^2), about 5e-18."""


def groups(ordered: Tensor) -> Tensor:
    """Number the groups of tied values.

    Parameters
    ----------
    ordered
        Values that are not negative, ascending, (n,).

    Returns
    -------
    Tensor
        Group of each value, from 0, (n,).
    """
    return (ordered.diff(prepend=ordered[:1]) > _ROUNDING * ordered).cumsum(0)


def counts(tied: int, marked: int, drawn: int) -> tuple[Array, Array]:
    """Compute the law of the number of marked rows among those drawn without replacement.

    Parameters
    ----------
    tied, marked
        Rows from which is drawn, and those of them that are marked.
    drawn
        Rows that are drawn.

    Returns
    -------
    tuple of ndarray
        Numbers of marked rows that have a probability worth counting, and these probabilities, whose sum is 1.
    """
    least, most = max(0, drawn - (tied - marked)), min(marked, drawn)
    if least == most:
        return np.array([float(most)]), np.ones(1)
    mean, reach = drawn * marked / tied, _REACH * math.sqrt(drawn)
    found = np.arange(max(least, math.floor(mean - reach)), min(most, math.ceil(mean + reach)) + 1)
    logarithms = _ways(marked, found) + _ways(tied - marked, drawn - found)
    law = np.exp(logarithms - logarithms.max())
    return found.astype(np.float64), law / law.sum()


def _ways(n: int, k: NDArray[np.int64]) -> Array:
    """Compute the logarithm of the number of ways to choose k of n."""
    from scipy.special import gammaln

    found: Array = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return found
