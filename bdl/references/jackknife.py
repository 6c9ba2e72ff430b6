"""The jackknife over chains."""

import math

import numpy as np
from numpy.typing import NDArray


def jackknife_error(scores: NDArray[np.float64]) -> float:
    """Compute the standard error of a score from the scores (C,) of all chains but one.

    sqrt((C - 1) / C sum_c (s_c - s)^2) with their mean s (Efron and Tibshirani 1993, equation
    11.5).
    """
    count = len(scores)
    return math.sqrt((count - 1) / count * float(((scores - scores.mean()) ** 2).sum()))
