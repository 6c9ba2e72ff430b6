"""The evidence p(y) of a linear model with Gaussian noise, and the precisions that maximise it."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Array = NDArray[np.float64]

_PRIOR, _NOISE = (1e-6, 1e6), (1e-2, 1e8)
"""Ranges of the precisions, in the units of the rows: prior standard deviations from 0.001 to 1000."""
_GRID = 25
"""Values of each precision that the maximisation starts from the best of."""


class Spectrum(NamedTuple):
    """What the evidence needs of the rows."""

    values: Array
    """Singular values of the design matrix, (k,)."""
    along: Array
    """Targets along its left singular vectors, (k,)."""
    beyond: float
    """Squared length of what is left of the targets."""
    rows: int
    """Number of rows, n."""

    @classmethod
    def of(cls, design: Array, y: Array) -> "Spectrum":
        """Decompose a design matrix (n, D) with its targets (n,)."""
        left, values, _ = np.linalg.svd(design, full_matrices=False)
        along = left.T @ y
        return cls(values, along, float(np.square(y - left @ along).sum()), len(y))


def log_evidence(found: Spectrum, prior_precision: float, noise_precision: float) -> float:
    """Return log N(y; 0, X X^T / alpha + I / beta), nats (Bishop 2006, section 3.5.1).

    Parameters
    ----------
    found
        The rows.
    prior_precision, noise_precision
        alpha and beta, above 0.
    """
    joint = prior_precision + noise_precision * found.values**2
    misfit = found.beyond + float((found.along**2 * prior_precision / joint).sum())
    volume = found.rows * math.log(noise_precision / (2 * math.pi)) + float(np.log(prior_precision / joint).sum())
    return 0.5 * (volume - noise_precision * misfit)


def best_precisions(
    design: Array, y: Array, prior_precision: float | None = None, noise_precision: float | None = None
) -> tuple[float, float]:
    """Return the prior precision and the noise precision with the highest evidence.

    Parameters
    ----------
    design
        Design matrix, float64, (n, D).
    y
        Targets, float64, (n,).
    prior_precision, noise_precision
        Values that are given and stay; None for those that are chosen, within limits that are relative to the scales of
        design matrix and targets.
    """
    found = Spectrum.of(design, y)
    spread = float(np.var(y)) or 1.0
    size = float(np.square(design).mean()) or 1.0
    ranges = [_range(prior_precision, _PRIOR, size / spread), _range(noise_precision, _NOISE, 1 / spread)]

    def cost(logs: Array) -> float:
        return -log_evidence(found, math.exp(logs[0]), math.exp(logs[1]))

    axes = [np.unique(np.linspace(low, high, _GRID)) for low, high in ranges]
    start = min((np.array([a, b]) for a in axes[0] for b in axes[1]), key=cost)
    free = [low < high for low, high in ranges]
    if not any(free):
        return math.exp(start[0]), math.exp(start[1])

    def placed(logs: Array) -> Array:
        point = start.copy()
        point[free] = logs
        return point

    bounds = [own for own, moves in zip(ranges, free, strict=True) if moves]
    options = {"xatol": 1e-6, "fatol": 1e-9}
    end = minimize(lambda logs: cost(placed(logs)), start[free], method="Nelder-Mead", bounds=bounds, options=options)  # type: ignore[call-overload]
    alpha, beta = np.exp(placed(end.x))
    return float(alpha), float(beta)


def _range(given: float | None, limits: tuple[float, float], unit: float) -> tuple[float, float]:
    """Return the limits of a precision's logarithm, which are equal where it is given."""
    low, high = (given, given) if given is not None else (limits[0] * unit, limits[1] * unit)
    return math.log(low), math.log(high)
