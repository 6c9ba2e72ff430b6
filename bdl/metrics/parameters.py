"""Scores of the parameters: distances of their posterior to the true one, the bias, small weights,
ranks of the truth.

Where the truth has covariances of d < D parameters only, those alone are compared; a distance that
looks at means only looks at all D. To a sampled truth, the suffix ``mcse`` is the Monte-Carlo
standard error of the distance, and ``floor`` what `bdl.metrics.distances.noise_floor` says.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from bdl.errors import InputError
from bdl.metrics import MetricInfo, distances
from bdl.metrics.elbo import require_gaussian
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.predictions import Draws, draw_vectors
from bdl.posteriors.empirical import Empirical, Point

Moments = distances.Moments
MomentMeasure = Callable[[Moments, Moments], Tensor]


@dataclass(frozen=True)
class RelMeanDist:
    """Relative distance of the means (`bdl.metrics.distances.relative_distance`)."""

    info = MetricInfo("Distance of means", "relative to the reference's norm", "lower", "distance")

    def __call__(self, evaluation: Evaluation) -> Mapping[str, float]:
        return _measure_distance(
            evaluation, lambda ours, reference: distances.relative_distance(ours[0], reference[0])
        )


@dataclass(frozen=True)
class RelCovDist:
    """Relative distance of the covariances (`bdl.metrics.distances.relative_distance`)."""

    info = MetricInfo(
        "Distance of covariances", "relative to the reference's norm", "lower", "distance"
    )

    def __call__(self, evaluation: Evaluation) -> Mapping[str, float]:
        return _measure_distance(
            evaluation,
            _restrict_to_shared(
                lambda ours, reference: distances.relative_distance(ours[1], reference[1])
            ),
        )


@dataclass(frozen=True)
class ScaledW2:
    """2-Wasserstein distance (`bdl.metrics.distances.wasserstein2`) over D (VIFA paper 2023, Table
    4).
    """

    info = MetricInfo("2-Wasserstein", "per parameter", "lower", "distance")

    def __call__(self, evaluation: Evaluation) -> Mapping[str, float]:
        measure = _restrict_to_shared(
            lambda ours, reference: distances.wasserstein2(ours, reference) / len(ours[0])
        )
        return _measure_distance(evaluation, measure)


@dataclass(frozen=True)
class SymKl:
    """Average of both Kullback-Leibler divergences of a Gaussian posterior and of the truth's
    moments.
    """

    info = MetricInfo("Symmetric KL", "nats", "lower", "distance")

    def __call__(self, evaluation: Evaluation) -> Mapping[str, float]:
        require_gaussian("sym_kl", evaluation)
        return _measure_distance(evaluation, _restrict_to_shared(distances.sym_kl))


def _measure_distance(evaluation: Evaluation, measure: MomentMeasure) -> dict[str, float]:
    """Measure the distance to the truth, and how well it is known."""
    truth, ours = evaluation.reference, evaluation.moments
    if not len(truth.mean):
        raise InputError(
            "the truth is known as functions only: measure their distance, by function_w2"
        )
    scores = {"": float(measure(ours, (truth.mean, truth.covariance)))}
    if truth.chains is not None:
        error = distances.monte_carlo_se(lambda reference: measure(ours, reference), truth.chains)
        scores |= {
            "mcse": float(error),
            "floor": float(distances.noise_floor(measure, truth.chains)),
        }
    return scores


def _restrict_to_shared(measure: MomentMeasure) -> MomentMeasure:
    """Look only at the first d parameters, those whose covariances the reference knows."""

    def restricted_measure(ours: Moments, reference: Moments) -> Tensor:
        d = len(reference[1])
        return measure((ours[0][:d], ours[1][:d, :d]), (reference[0][:d], reference[1]))

    return restricted_measure


@dataclass(frozen=True)
class BiasMean:
    """Posterior mean of the one bias of the model, in the unit of its outputs."""

    info = MetricInfo("Mean of the bias", "output units", "none", "posterior")

    def __call__(self, evaluation: Evaluation) -> float:
        return float(evaluation.precise.mean()[_find_bias("bias_mean", evaluation)])


@dataclass(frozen=True)
class BiasVariance:
    """Posterior variance of the one bias of the model, in the unit of its outputs squared."""

    info = MetricInfo("Variance of the bias", "output units squared", "none", "posterior")

    def __call__(self, evaluation: Evaluation) -> float:
        return float(evaluation.precise.variance()[_find_bias("bias_variance", evaluation)])


def _find_bias(name: str, evaluation: Evaluation) -> int:
    positions = evaluation.model.layout.biases.nonzero().flatten().tolist()
    if len(positions) != 1:
        raise InputError(
            f"{name}: the model has {len(positions)} biases, not one: leave the metric out"
        )
    return int(positions[0])


@dataclass(frozen=True)
class _WeightCount:
    """Weights of a layer by the size of their posterior means.

    Parameters
    ----------
    limit
        The limit, in the unit of the weights as the model has them.
    layer
        Layer whose weights are counted, from 0.
    """

    limit: Annotated[float, Gt(0)] = 0.01
    layer: Annotated[int, Ge(0)] = 0

    def weight_sizes(self, name: str, evaluation: Evaluation) -> Tensor:
        """Return how large each weight is, for the metric of that name.

        `InputError` if there is no such layer.
        """
        layout = evaluation.model.layout
        if self.layer >= (n := layout.n_layers):
            raise InputError(
                f"{name}: the model has {n} layers, counted from 0: there is no layer {self.layer}"
            )
        return evaluation.precise.mean()[layout.layers == self.layer].abs()


@dataclass(frozen=True)
class WeightsBelow(_WeightCount):
    """Weights whose posterior mean is below a limit in size.

    The thesis prints "# w < limit" and means this.
    """

    info = MetricInfo("Weights below", "weights", "none", "posterior")

    def __call__(self, evaluation: Evaluation) -> float:
        return float((self.weight_sizes("weights_below", evaluation) < self.limit).sum())


@dataclass(frozen=True)
class WeightsFrom(_WeightCount):
    """Weights whose posterior mean is a limit or more in size."""

    info = MetricInfo("Weights from", "weights", "none", "posterior")

    def __call__(self, evaluation: Evaluation) -> float:
        return float((self.weight_sizes("weights_from", evaluation) >= self.limit).sum())


_STEP = 5
"""First counter word of its draws; those of other scores and of figures have others."""


@dataclass(frozen=True)
class TruthRank:
    """Number of posterior draws below the true value, where the true parameters are drawn from the
    prior.

    Over data sets drawn from the model, ranks of the exact posterior are uniform on 0 to `draws`
    (Cook, Gelman & Rubin 2006; Talts, Betancourt, Simpson, Vehtari & Gelman 2018). Too narrow a
    posterior has too many at both ends, and a shifted one at one end (Yao, Vehtari, Simpson &
    Gelman 2018, section 3).

    Parameters
    ----------
    of
        ``"parameter"``, or ``"function"``: the first output of the model for a test row, without
        noise.
    index
        Number of the parameter, or of the test row.
    draws
        Independent draws from the posterior; of a set of vectors so many, evenly spaced.
    """

    info = MetricInfo("Rank of the truth", "draws below it", "none", "posterior")

    of: Literal["parameter", "function"] = "parameter"
    index: Annotated[int, Ge(0)] = 0
    draws: Annotated[int, Ge(1)] = 99

    def __call__(self, evaluation: Evaluation) -> float:
        truth, draws = _get_true_parameters(evaluation), Draws(self.draws, evaluation.key, _STEP)
        atoms: Tensor | None = getattr(evaluation.posterior, "atoms", None)
        if atoms is not None and len(atoms) < self.draws:
            raise InputError(
                f"truth_rank: the posterior has {len(atoms)} vectors: set draws to "
                f"{len(atoms)} or less"
            )
        available = len(truth) if self.of == "parameter" else len(evaluation.tested.y)
        if self.index >= available:
            raise InputError(
                f"truth_rank: there is no {self.of} {self.index}: choose an index below "
                f"{available}"
            )
        if atoms is not None:
            # none of them twice: repeated draws have too many ranks at both ends
            spaced = torch.linspace(0, len(atoms) - 1, self.draws).round().long()
            evaluation = replace(evaluation, posterior=Empirical(atoms[spaced]))
        if self.of == "parameter":
            # in float64: a rank is a count of comparisons, which rounding to float32 makes ties of
            theta = torch.cat(list(draw_vectors(evaluation.precise, draws)))
            return float((theta[:, self.index] < truth[self.index]).sum())
        row = evaluation.tested.take(torch.arange(len(evaluation.tested.y)) == self.index)
        values = evaluation.outputs(row, draws)[:, 0, 0]
        true_value = evaluation.outputs(row, draws, Point(truth))[0, 0, 0]
        return float((values < true_value).sum())


def _get_true_parameters(evaluation: Evaluation) -> Tensor:
    truth, dim = evaluation.generating, evaluation.model.dim
    if truth is None:
        raise InputError(
            "truth_rank: it is not known which parameters the data were drawn with: use "
            "the data set prior_draws, with "
            "its own splits and standardise: none"
        )
    if len(truth) != dim:
        raise InputError(
            f"truth_rank: the data were drawn with {len(truth)} parameters, and the model "
            f"has {dim}: give it the units "
            "and biases of the data set"
        )
    return truth
