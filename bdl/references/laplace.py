"""The mode of a density and the curvature there: Laplace's approximation, on which a grid is laid."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad, jacrev

from bdl.errors import InputError

LogDensity = Callable[[Tensor], Tensor]
"""Parameters (m, D) to log-densities (m,), nats, up to a constant."""

NEWTON_STEPS, HALVINGS = 200, 40
ARMIJO = 1e-4
RISE = 1e-10
"""Nats that a Newton step must promise, relative to the log-density, to be taken; less is rounding."""


def laplace(log_density: LogDensity, start: Tensor) -> tuple[Tensor, Tensor]:
    """Climb from `start` to a mode by Newton's method with backtracking (Nocedal & Wright 2006, section 3.4).

    Parameters
    ----------
    log_density
        Twice differentiable by `torch.func`.
    start
        Parameters, (D,), float64.

    Returns
    -------
    tuple of Tensor
        The mode, (D,), and S with orthogonal columns, (D, D): S S^T is the inverse of minus the Hessian.

    Raises
    ------
    InputError
        If the log-density or a derivative is not finite on the way, or there is no maximum with a definite Hessian.
    """

    def height(theta: Tensor) -> Tensor:
        return log_density(theta.unsqueeze(0)).squeeze(0)

    theta = start
    for _ in range(NEWTON_STEPS):
        value, slope, curvature = height(theta), grad(height)(theta), jacrev(grad(height))(theta)
        if not all(bool(part.isfinite().all()) for part in (value, slope, curvature)):
            raise InputError(
                f"log p(D, theta) or a derivative is not finite at {theta.tolist()}: check the data and the precisions"
            )
        values, vectors = torch.linalg.eigh(-curvature)
        # absolute values, so that it climbs where the density is not log-concave, too
        ascent = vectors @ (vectors.T @ slope / values.abs().clamp_min(torch.finfo(values.dtype).tiny))
        rise = slope @ ascent
        if bool(rise <= RISE * (1 + value.abs())):
            break
        theta = _climb(height, theta, ascent, value, rise)
    else:
        raise InputError(f"no mode found in {NEWTON_STEPS} Newton steps: raise prior_precision")
    if bool((values <= 0).any()):
        raise InputError(f"the posterior has no proper mode at {theta.tolist()}: raise prior_precision")
    return theta, vectors * values.rsqrt()


def _climb(height: Callable[[Tensor], Tensor], theta: Tensor, ascent: Tensor, value: Tensor, rise: Tensor) -> Tensor:
    """Go along `ascent`, halving the way until the height gained is a fair part of what the slope promises."""
    for halvings in range(HALVINGS):
        size = 0.5**halvings
        ahead = theta + size * ascent
        if bool(height(ahead) >= value + ARMIJO * size * rise):
            return ahead
    raise InputError(f"the log posterior does not rise along its gradient at {theta.tolist()}: is it smooth?")
