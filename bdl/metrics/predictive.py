"""Predictive scores, computed from saved predictions: a new metric needs no retraining.

Every function takes model outputs `f` (S, n) of S posterior samples and targets `y` (n,), both in original
units, and the trial's hyper-parameters; it returns a scalar tensor and works under `vmap`.
"""

import math
from collections.abc import Mapping

from torch import Tensor


def nmll(f: Tensor, y: Tensor, hyper: Mapping[str, Tensor]) -> Tensor:
    """Negative mean marginal log-likelihood of a Gaussian model, nats per test point.

    The mean over points of -log (1/S) sum_s N(y | f_s, 1/beta), a mixture for each point on its own
    (VIFA paper 2023, section 4.2.1); beta is ``noise_precision``.
    """
    beta = hyper["noise_precision"]
    log_density = 0.5 * (beta.log() - math.log(2 * math.pi) - beta * (y - f).square())
    return math.log(len(f)) - log_density.logsumexp(0).mean()


def rmse(f: Tensor, y: Tensor, hyper: Mapping[str, Tensor]) -> Tensor:
    """Root mean squared error of the predictive mean, target units."""
    return (f.mean(0) - y).square().mean().sqrt()
