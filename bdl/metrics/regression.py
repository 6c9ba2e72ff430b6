"""Scores of targets that are numbers: errors, CRPS, calibration and width of intervals, spread of
samples.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Gt, Lt
from torch import Tensor
from torch.distributions import Normal

from bdl.errors import InputError
from bdl.metrics import MetricInfo
from bdl.metrics.chains import score_chains
from bdl.metrics.evaluation import At, Evaluation
from bdl.metrics.predictions import Draws, as_tensors
from bdl.metrics.targets import EqualMixture, central_interval, crps


@dataclass(frozen=True)
class Rmse:
    """Root mean squared error of the predictive mean, target units.

    Predictions by chains have the suffix ``mcse`` (`bdl.metrics.chains`), as those of `Crps`.

    Parameters
    ----------
    standardised
        Give it in standard deviations of the training targets, as the thesis on noisy optimisers
        (Mata 2018) prints it.
    at
        Parameters that predict: samples of the posterior, or its mean alone.
    """

    standardised: bool = False
    at: At = "samples"

    info = MetricInfo("RMSE", "target units", "lower", "predictive", "regression")

    def __call__(self, evaluation: Evaluation) -> float | dict[str, float]:
        return score_chains(self._score, evaluation)

    def _score(self, evaluation: Evaluation) -> float:
        errors = evaluation.at(self.at).predictions.mean - evaluation.tested.y
        error = float(errors.square().mean().sqrt())
        return error / float(evaluation.tested.y_unit) if self.standardised else error


@dataclass(frozen=True)
class MseAtMean:
    """Mean squared error of the model with the mean parameters, one pass, target units squared.

    Parameters
    ----------
    rows
        Rows that are predicted: those that test, or those that the fit has seen.
    """

    rows: Literal["test", "training"] = "test"

    info = MetricInfo(
        "MSE at the mean", "target units squared", "lower", "predictive", "regression"
    )

    def __call__(self, evaluation: Evaluation) -> float:
        examples = evaluation.tested if self.rows == "test" else evaluation.trained
        outputs = evaluation.at("mean").outputs(examples, Draws(1, evaluation.key))[0, :, 0]
        return float((outputs - examples.y.cpu()).square().mean())


Level = Annotated[float, Gt(0), Lt(1)]


@dataclass(frozen=True)
class Crps:
    """Continuous ranked probability score, averaged over test rows, target units (Gneiting and
    Raftery 2007).

    The integral over t of (F(t) - [y <= t])^2 of the predictive distribution function F, in closed
    form for mixtures of normals (`bdl.metrics.targets.crps`). Of a point prediction it is the
    absolute error.
    """

    info = MetricInfo("CRPS", "target units", "lower", "predictive", "regression")

    def __call__(self, evaluation: Evaluation) -> float | dict[str, float]:
        return score_chains(self._score, evaluation)

    def _score(self, evaluation: Evaluation) -> float:
        return float(crps(_require_normals("crps", evaluation), evaluation.tested.y).mean())


@dataclass(frozen=True)
class Coverage:
    """Share of the test targets that lie in the central predictive interval, which `level` should
    be.

    Parameters
    ----------
    level
        Probability of the interval.
    """

    level: Level = 0.9

    info = MetricInfo(
        "Coverage", "fraction of test points", "none", "predictive", "regression", margin=0.02
    )

    def __call__(self, evaluation: Evaluation) -> float:
        inside = (2 * _transform_targets("coverage", evaluation) - 1).abs() <= self.level
        return float(inside.double().mean())


@dataclass(frozen=True)
class IntervalWidth:
    """Width of the central predictive interval, averaged over test rows, target units.

    Of two fits with the right coverage, the one with narrower intervals says more.

    Parameters
    ----------
    level
        Probability of the interval.
    """

    level: Level = 0.9

    info = MetricInfo("Interval width", "target units", "none", "predictive", "regression")

    def __call__(self, evaluation: Evaluation) -> float:
        mixtures = EqualMixture.of(_require_normals("interval_width", evaluation))
        low, high = central_interval(mixtures, self.level)
        return float((high - low).mean())


@dataclass(frozen=True)
class PitDistance:
    """Distance of the histogram of probability integral transforms F(y) from a flat one, whatever
    its bins.

    It is the area between their distribution function over test rows and the diagonal, which is
    the 1-Wasserstein distance from the uniform distribution: 0 where predictions are calibrated,
    at most 1/2 (Dawid 1984; Gneiting, Balabdaoui and Raftery 2007). With n rows, a calibrated
    prediction has about 0.3 / sqrt(n).
    """

    info = MetricInfo("PIT distance", "probability", "lower", "predictive", "regression")

    def __call__(self, evaluation: Evaluation) -> float:
        transforms = _transform_targets("pit_distance", evaluation).sort().values
        ends = torch.arange(len(transforms) + 1, dtype=torch.float64) / len(transforms)
        # The i-th transform u is the quantile of all levels t of the i-th step: the integral of
        # |t - u| over the step is the difference of (t - u) |t - u| / 2 at its ends.
        low, high = ends[:-1] - transforms, ends[1:] - transforms
        return float((high * high.abs() / 2 - low * low.abs() / 2).sum())


def _require_normals(name: str, evaluation: Evaluation) -> Normal:
    """Return the components of the mixtures at the test rows, (n, S), original units.

    `InputError` if not normal.
    """
    components = evaluation.components
    if not isinstance(components, Normal):
        raise InputError(
            f"{name}: the likelihood predicts {type(components).__name__}, not Normal: "
            "leave the metric out"
        )
    return components


def _transform_targets(name: str, evaluation: Evaluation) -> Tensor:
    """Compute the predictive probability below each test target, (n,), for the metric of that
    name.
    """
    transforms: Tensor = EqualMixture.of(_require_normals(name, evaluation)).cdf(
        evaluation.tested.y
    )  # type: ignore[no-untyped-call]
    return transforms


_STEP = 3
"""First counter word of its draws; those of other scores and of figures have others."""


@dataclass(frozen=True)
class Spread:
    """Interquartile range of what posterior samples predict for a row, averaged over test rows.

    Predicted are the mean of a target, in its unit, or the probability of the second of two
    classes.

    Parameters
    ----------
    low, high
        Rows whose first input, as the model sees it, is from `low` to `high` count.
    """

    low: float = 0.0
    high: float = 1.0

    info = MetricInfo("Spread of samples", "target units or probability", "none", "predictive")

    def __call__(self, evaluation: Evaluation) -> float:
        rows, problem = evaluation.tested, evaluation.model
        first = rows.x.float()[:, 0]
        counted = (first >= self.low) & (first <= self.high)
        if not bool(counted.any()):
            raise InputError(
                f"spread: no test row has its first input in [{self.low:g}, "
                f"{self.high:g}]: widen that"
            )
        if problem.d_out != 1:
            raise InputError(
                f"spread: the model has {problem.d_out} outputs, not one: leave the metric out"
            )
        counted_rows = rows.take(counted)
        f = evaluation.outputs(counted_rows, Draws(evaluation.samples, evaluation.key, _STEP))
        target = problem.likelihood.predictive(f, as_tensors(evaluation.hyper))
        quartiles = target.mean.quantile(torch.tensor([0.25, 0.75], dtype=torch.float64), dim=0)
        return float((quartiles[1] - quartiles[0]).mean())
