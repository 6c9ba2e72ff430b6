"""Fit the spread of predictions to rows that a fit has not seen.

The choice of hyper-parameters that a caller leaves out ends with it.
"""

from collections.abc import Mapping
from math import ceil, exp, log, nan, pi
from typing import NamedTuple

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from bdl.metrics.closed_form import has_closed_form, predict_exactly
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.likelihoods import Nmll
from bdl.metrics.predictions import Draws, as_tensors
from bdl.posteriors import Linearised

SCORED_ROWS = 10_000
"""Rows, drawn at random, that the evidence and held-out scores are computed from.

More would change one or two numbers little.
"""

_NOISE_VARIANCES = (1e-6, 4.0)
"""Bounds of the variance of the noise on held-out rows, in variances of the targets."""

_SCALES = (1e-6, 1e6)
"""Bounds of the scale of the predictive variances of a linearised model."""

_LEVEL = 0.9
"""Probability of the intervals that the noise is calibrated for."""


class Choice(NamedTuple):
    """Hyper-parameters in original units."""

    hyper: dict[str, float]
    """Those of the fit."""
    noise_precision: float | None = None
    """That of predictions, where it is not the one of the fit."""


class CalibratedNmll:
    """`Nmll` of predictions whose spread is fitted to the rows that are predicted.

    One parameter of these rows cannot adapt to more than their scale. It is the noise variance of
    predictions, while the fit stays as it is: with another noise it would have other errors. Of a
    linearised model it is the scale of the whole predictive variance, since its mode depends on
    the ratio of prior and noise precision alone, and its covariance is inverse to both: divided by
    the scale, they give the same mode and variances times the scale.

    Parameters
    ----------
    target_variance
        Variance of the targets, which bounds that of the noise.
    can_scale
        Whether prior and noise precision may be scaled together.
    """

    info = Nmll.info

    def __init__(self, target_variance: float, can_scale: bool) -> None:
        self.target_variance = target_variance
        self.can_scale = can_scale
        self.is_scaled = False
        self.errors: list[Tensor] = []

    def __call__(self, evaluation: Evaluation) -> float:
        """Keep the errors and return the score; NaN if an output is not finite."""
        problem, posterior = evaluation.model, evaluation.posterior
        tested = evaluation.tested.take(slice(SCORED_ROWS))
        log_unit = 0.0
        if (
            self.can_scale
            and isinstance(posterior, Linearised)
            and has_closed_form(problem, posterior)
        ):
            self.is_scaled = True
            hyper = as_tensors(evaluation.hyper)
            law = predict_exactly(problem, posterior, tested, hyper, evaluation.buffers)
            errors = ((tested.y - law.mean) / law.stddev).unsqueeze(0)
            log_unit = float(law.stddev.log().mean())
        else:
            draws = Draws(evaluation.samples, evaluation.key)
            errors = tested.y - evaluation.outputs(tested, draws).squeeze(-1)
        if not bool(errors.isfinite().all()):
            return nan
        self.errors.append(errors)
        return self._fit(errors)[0] + log_unit

    def calibrate(self, hyper: Mapping[str, float]) -> Choice:
        """Return the hyper-parameters at which intervals cover the rows predicted so far."""
        errors = torch.cat(self.errors, 1)
        variance = calibrate_noise(errors, self._fit(errors)[1])
        if not self.is_scaled:
            return Choice(dict(hyper), 1 / variance)
        names = ("prior_precision", "noise_precision")
        return Choice({**hyper, **{name: hyper[name] / variance for name in names}})

    def _fit(self, errors: Tensor) -> tuple[float, float]:
        """Return the least NMLL of errors of normal predictions, and their variance there."""
        squares = errors.square()

        def loss(log_variance: float) -> float:
            log_densities = -0.5 * (squares / exp(log_variance) + log_variance + log(2 * pi))
            return log(len(squares)) - float(log_densities.logsumexp(0).mean())

        bounds = _SCALES if self.is_scaled else _NOISE_VARIANCES
        unit = 1.0 if self.is_scaled else self.target_variance
        optimum = minimize_scalar(
            loss,
            bounds=(log(bounds[0] * unit), log(bounds[1] * unit)),
            method="bounded",
            options={"xatol": 1e-3},
        )
        return float(optimum.fun), exp(optimum.x)


def calibrate_noise(errors: Tensor, variance: float) -> float:
    """Return the least variance at which central 90 % intervals cover held-out targets.

    They cover ceil(0.9 (n + 1)) of the n, as in split-conformal prediction (Lei et al. 2018,
    "Distribution-free predictive inference for regression"). Errors of few rows are often far
    larger than those of most, and the noise of highest likelihood then covers too much.

    Parameters
    ----------
    errors
        Targets minus the outputs of S posterior samples, (S, n), or in units of the predictive
        deviations, (1, n).
    variance
        The variance of highest likelihood, from which the result differs by a factor of 4 at most.
    """
    n_rows = errors.shape[1]
    share = min(1.0, ceil(_LEVEL * (n_rows + 1)) / n_rows)

    def covers(log_variance: float) -> bool:
        transforms = torch.special.ndtr(errors / exp(log_variance / 2)).mean(0)
        return float(((2 * transforms - 1).abs() <= _LEVEL).double().mean()) >= share

    low, high = log(variance / 4), log(variance * 4)
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if covers(middle) else (middle, high)
    return exp(high)
