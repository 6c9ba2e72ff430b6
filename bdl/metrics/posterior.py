"""Scores of a posterior against the true one, by the distances of `bdl.metrics.distances`.

Where the truth has covariances of d < D parameters only, those alone are compared; a distance that looks at means only
looks at all D. To a sampled truth, the suffix ``mcse`` is the Monte-Carlo standard error of the distance, and ``floor``
what `bdl.metrics.distances.noise_floor` says.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from bdl.errors import InputError
from bdl.metrics import distances
from bdl.metrics.base import MetricInfo
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.outputs import gaussian

Moments = distances.Moments
Measure = Callable[[Moments, Moments], Tensor]


@dataclass(frozen=True)
class RelMeanDist:
    """Relative distance of the means (`bdl.metrics.distances.rel_mean_dist`)."""

    info: ClassVar = MetricInfo("Distance of means", "relative to the reference's norm", "lower", "distance")

    def __call__(self, evaluation: Evaluation) -> Mapping[str, float]:
        """Score a fit."""
        return _score(evaluation, lambda ours, reference: distances.rel_mean_dist(ours[0], reference[0]))


@dataclass(frozen=True)
class RelCovDist:
    """Relative distance of the covariances (`bdl.metrics.distances.rel_cov_dist`)."""

    info: ClassVar = MetricInfo("Distance of covariances", "relative to the reference's norm", "lower", "distance")

    def __call__(self, evaluation: Evaluation) -> Mapping[str, float]:
        """Score a fit."""
        return _score(evaluation, _on_shared(lambda ours, reference: distances.rel_cov_dist(ours[1], reference[1])))


@dataclass(frozen=True)
class ScaledW2:
    """2-Wasserstein distance over the number of parameters (`bdl.metrics.distances.scaled_w2`)."""

    info: ClassVar = MetricInfo("2-Wasserstein", "per parameter", "lower", "distance")

    def __call__(self, evaluation: Evaluation) -> Mapping[str, float]:
        """Score a fit."""
        return _score(evaluation, _on_shared(lambda ours, reference: distances.scaled_w2(*ours, *reference)))


@dataclass(frozen=True)
class SymKl:
    """Average of both Kullback-Leibler divergences of a Gaussian posterior and the Gaussian with the truth's moments.

    It is `bdl.metrics.distances.sym_kl`.
    """

    info: ClassVar = MetricInfo("Symmetric KL", "nats", "lower", "distance")

    def __call__(self, evaluation: Evaluation) -> Mapping[str, float]:
        """Score a fit; raise `InputError` if the posterior is not Gaussian."""
        gaussian("sym_kl", evaluation)
        return _score(evaluation, _on_shared(lambda ours, reference: distances.sym_kl(*ours, *reference)))


def _score(evaluation: Evaluation, measure: Measure) -> dict[str, float]:
    """Measure the distance to the truth, and how well it is known."""
    truth, ours = evaluation.reference, evaluation.moments
    if not len(truth.mean):
        raise InputError("the truth is known as functions only: measure their distance, by function_w2")
    found = {"": float(measure(ours, (truth.mean, truth.covariance)))}
    if truth.chains is not None:
        error = distances.monte_carlo_se(lambda *reference: measure(ours, reference), truth.chains)
        found |= {"mcse": float(error), "floor": float(distances.noise_floor(measure, truth.chains))}
    return found


def _on_shared(measure: Measure) -> Measure:
    """Look only at the first d parameters, those whose covariances the reference knows."""

    def measured(ours: Moments, reference: Moments) -> Tensor:
        d = len(reference[1])
        return measure((ours[0][:d], ours[1][:d, :d]), (reference[0][:d], reference[1]))

    return measured
