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
    return math.log(len(f)) - _log_densities(f, y, hyper).logsumexp(0).mean()


def joint_nll(f: Tensor, y: Tensor, hyper: Mapping[str, Tensor]) -> Tensor:
    """Negative joint predictive log-density of a Gaussian model, nats per test point.

    -(1/n) log (1/S) sum_s prod_i N(y_i | f_si, 1/beta), one mixture for all n points together, as the published
    code of SLANG evaluates it (Mishkin et al. 2018); beta is ``noise_precision``. It is between the mean negative
    log-likelihood of the best sample and log(S) / n more.
    """
    return (math.log(len(f)) - _log_densities(f, y, hyper).sum(1).logsumexp(0)) / len(y)


def rmse(f: Tensor, y: Tensor, hyper: Mapping[str, Tensor]) -> Tensor:
    """Root mean squared error of the predictive mean, target units."""
    return (f.mean(0) - y).square().mean().sqrt()


def _log_densities(f: Tensor, y: Tensor, hyper: Mapping[str, Tensor]) -> Tensor:
    """Evaluate log N(y_i | f_si, 1/beta) for every sample and point, (S, n)."""
    beta = hyper["noise_precision"]
    return 0.5 * (beta.log() - math.log(2 * math.pi) - beta * (y - f).square())
