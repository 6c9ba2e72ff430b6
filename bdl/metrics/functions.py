"""Distances of a posterior to the true one as distributions of functions, by samples of both at
the test rows.

The truth comes in groups of samples, (G, T, n): the chains of a sampled reference. The suffix
``floor`` is what an exact posterior is expected to score by as many samples as the posterior has
(`exact_score`); ``mcse`` is the jackknife's standard error (Efron & Tibshirani 1993, equation
11.5) over groups, and over blocks of the posterior's own samples. Chains that do not agree have
no standard error.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from bdl.metrics import MetricInfo
from bdl.metrics.distances import jackknife
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.predictions import as_tensors, summarise
from bdl.posteriors import FullGaussian, kl_divergence

FunctionMeasure = Callable[[Tensor, Tensor], Tensor]
"""Samples of a posterior (S, n) and of the truth (T, n) to a scalar."""

BLOCKS = 8
"""Of the posterior's own samples, for the jackknife."""

SUBSETS = 4
"""Most disjoint subsets of the same groups that the floor is averaged over: single draws of a
point estimate scatter most.
"""


def marginal_w2(f: Tensor, truth: Tensor) -> Tensor:
    """2-Wasserstein distance of each marginal, as empirical distributions: (S, n), (T, n) -> (n,),
    in their unit.

    In one dimension it is the distance of the quantile functions, here steps.
    """
    # Steps end at multiples of 1/S and 1/T: in units of 1/lcm(S, T) they are integers, so that
    # equal ends are found equal.
    size = math.lcm(len(f), len(truth))
    f_step, truth_step = size // len(f), size // len(truth)
    f_ends = torch.arange(1, len(f) + 1) * f_step
    truth_ends = torch.arange(1, len(truth) + 1) * truth_step
    breaks = torch.unique(torch.cat([f_ends, truth_ends]))
    widths = breaks.diff(prepend=breaks.new_zeros(1)).double() / size
    f_quantiles = f.sort(0).values[(breaks - 1) // f_step]
    truth_quantiles = truth.sort(0).values[(breaks - 1) // truth_step]
    difference = f_quantiles - truth_quantiles
    distances: Tensor = (widths @ difference.square()).sqrt()
    return distances


def scaled_marginal_w2(f: Tensor, truth: Tensor) -> Tensor:
    """`marginal_w2` in standard deviations of the truth, averaged over rows: a scalar."""
    return (marginal_w2(f, truth) / truth.std(0)).mean()


def mean_error(f: Tensor, truth: Tensor) -> Tensor:
    """Root mean square over rows of the difference of the means, in standard deviations of the
    truth: a scalar.
    """
    return ((f.mean(0) - truth.mean(0)) / truth.std(0)).square().mean().sqrt()


def sd_ratio(f: Tensor, truth: Tensor) -> Tensor:
    """Standard deviation over that of the truth, averaged over rows: a scalar."""
    return _sd_ratios(f, truth).mean()


def sd_error(f: Tensor, truth: Tensor) -> Tensor:
    """Root mean square over rows of `sd_ratio` - 1: a scalar; 1 for a single function."""
    return (_sd_ratios(f, truth) - 1).square().mean().sqrt()


def sliced_w2(f: Tensor, truth: Tensor, slices: int) -> Tensor:
    """`scaled_marginal_w2` of random combinations of all rows, standard-normal weights: a scalar.

    It sees correlations (Bonneel, Rabin, Peyre & Pfister 2015, J. of Mathematical Imaging and
    Vision 51).
    """
    # a fixed seed: all fits of a split are compared along the same combinations
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(f.shape[1], slices, generator=generator, dtype=torch.float64)
    return scaled_marginal_w2(f @ weights, truth @ weights)


def joint_kl(f: Tensor, truth: Tensor, noise: Tensor, inputs: int, sets: int) -> Tensor:
    """KL(truth || posterior) of the targets at random sets of rows, as Gaussians, averaged over
    sets: nats, a scalar.

    Functions are (S, n) and (T, n), and `noise` is the variance of the targets about them, (n,). A
    set has `inputs` rows, or all of them where there are fewer.
    """
    # a fixed seed: all fits of a split are compared at the same sets of rows
    generator = torch.Generator().manual_seed(0)
    mean, covariance = f.mean(0), torch.cov(f.T, correction=0) + noise.diag()
    true_mean = truth.mean(0)
    true_covariance = torch.cov(truth.T, correction=0) + noise.diag()
    divergences = []
    for _ in range(sets):
        rows = torch.randperm(f.shape[1], generator=generator)[:inputs]
        exact = FullGaussian.from_covariance(true_mean[rows], true_covariance[rows][:, rows])
        ours = FullGaussian.from_covariance(mean[rows], covariance[rows][:, rows])
        divergences.append(kl_divergence(exact, ours))
    return torch.stack(divergences).mean()


@dataclass(frozen=True)
class FunctionW2:
    """2-Wasserstein distance of the function's marginals, without the noise of targets
    (`scaled_marginal_w2`).
    """

    version: ClassVar[int] = 2

    info = MetricInfo(
        "W2 of functions", "standard deviations of the truth", "lower", "distance", by_samples=True
    )

    def __call__(self, evaluation: Evaluation) -> Mapping[str, float]:
        return _measure_distance(evaluation, scaled_marginal_w2)


@dataclass(frozen=True)
class FunctionMeanError:
    """Error of the function's mean (`mean_error`)."""

    version: ClassVar[int] = 2

    info = MetricInfo(
        "Error of means", "standard deviations of the truth", "lower", "distance", by_samples=True
    )

    def __call__(self, evaluation: Evaluation) -> Mapping[str, float]:
        return _measure_distance(evaluation, mean_error)


@dataclass(frozen=True)
class FunctionSdError:
    """Error of the function's standard deviation (`sd_error`)."""

    version: ClassVar[int] = 2

    info = MetricInfo("Error of deviations", "relative", "lower", "distance", by_samples=True)

    def __call__(self, evaluation: Evaluation) -> Mapping[str, float]:
        return _measure_distance(evaluation, sd_error)


@dataclass(frozen=True)
class FunctionSdRatio:
    """Standard deviation of the function over the true one (`sd_ratio`): below 1 is
    overconfident.
    """

    version: ClassVar[int] = 2

    info = MetricInfo("Ratio of deviations", "1 is right", "none", "distance", by_samples=True)

    def __call__(self, evaluation: Evaluation) -> Mapping[str, float]:
        return _measure_distance(evaluation, sd_ratio)


@dataclass(frozen=True)
class FunctionSlicedW2:
    """2-Wasserstein distance of random combinations of the function's values (`sliced_w2`).

    Parameters
    ----------
    slices
        Number of combinations.
    """

    slices: Annotated[int, Ge(1)] = 100

    version: ClassVar[int] = 3
    info = MetricInfo(
        "Sliced W2 of functions",
        "standard deviations of the truth",
        "lower",
        "distance",
        by_samples=True,
    )

    def __call__(self, evaluation: Evaluation) -> Mapping[str, float]:
        order = _order_outputs(evaluation)
        return _measure_distance(
            evaluation, lambda f, truth: sliced_w2(f[:, order], truth[:, order], self.slices)
        )


@dataclass(frozen=True)
class FunctionJointKl:
    """KL divergence of joint predictions of targets at small sets of rows (`joint_kl`).

    Parameters
    ----------
    inputs
        Rows of a set.
    sets
        Number of sets.
    """

    inputs: Annotated[int, Ge(1)] = 5
    sets: Annotated[int, Ge(1)] = 100

    version: ClassVar[int] = 3
    info = MetricInfo(
        "KL of joint predictions", "nats", "lower", "distance", task="regression", by_samples=True
    )

    def __call__(self, evaluation: Evaluation) -> Mapping[str, float]:
        f = evaluation.functions.truth.flatten(0, 1)
        predictive = evaluation.model.likelihood.predictive(
            f.unsqueeze(-1), as_tensors(evaluation.hyper)
        )
        noise, order = predictive.variance.expand(f.shape).mean(0), _order_outputs(evaluation)

        def measure(f: Tensor, truth: Tensor) -> Tensor:
            return joint_kl(f[:, order], truth[:, order], noise[order], self.inputs, self.sets)

        return _measure_distance(evaluation, measure)


@dataclass(frozen=True)
class FunctionTv:
    """Total variation between the predictive probabilities of classes and the true ones, averaged
    over rows.
    """

    version: ClassVar[int] = 2

    info = MetricInfo(
        "Total variation",
        "probability",
        "lower",
        "distance",
        task="classification",
        by_samples=True,
    )

    def __call__(self, evaluation: Evaluation) -> Mapping[str, float]:
        return _measure_distance(
            evaluation,
            _compare_probabilities(evaluation, lambda p, q: 0.5 * (p - q).abs().sum(-1).mean()),
        )


@dataclass(frozen=True)
class FunctionAgreement:
    """Share of the rows for which the most probable class is that of the truth."""

    version: ClassVar[int] = 2

    info = MetricInfo(
        "Agreement", "share of rows", "higher", "distance", task="classification", by_samples=True
    )

    def __call__(self, evaluation: Evaluation) -> Mapping[str, float]:

        def share_of_agreement(p: Tensor, q: Tensor) -> Tensor:
            return (p.argmax(-1) == q.argmax(-1)).double().mean()

        return _measure_distance(
            evaluation, _compare_probabilities(evaluation, share_of_agreement)
        )


def exact_score(measure: FunctionMeasure, groups: Tensor, count: int) -> Tensor:
    """Average what so many of the reference's samples score against its others: a scalar.

    The distance of `count` exact samples to T others grows with 1 / `count` + 1 / T, so that it
    differs between posteriors. Both sides come from different groups (G, T, n), G >= 2, since
    samples of one chain are alike. The fewest groups that have `count` samples give them, evenly
    spaced, and at most half of the groups; each group has its turn. It is too large where half of
    the samples are fewer than `count`, or nearly so: by up to a factor of sqrt(4 / 3) where
    `count` is half of all.
    """
    stride = len(groups) // min(-(-count // groups.shape[1]), len(groups) // 2)
    scores = []
    for first in range(stride):
        is_scored = torch.arange(len(groups)) % stride == first
        comparison, candidates = groups[~is_scored].flatten(0, 1), groups[is_scored].flatten(0, 1)
        size = min(count, len(candidates))
        spacing = len(candidates) // size
        for start in range(0, spacing, -(-spacing // SUBSETS)):
            scores.append(measure(candidates[start::spacing][:size], comparison))
    return torch.stack(scores).mean()


def _order_outputs(evaluation: Evaluation) -> Tensor:
    """Return an order of the outputs that does not depend on that of the rows: by their true
    means.
    """
    return evaluation.functions.truth.mean((0, 1)).argsort()


def _sd_ratios(f: Tensor, truth: Tensor) -> Tensor:
    # without a correction a single function has the deviation 0, rather than NaN
    return f.std(0, correction=0) / truth.std(0, correction=0)


def _compare_probabilities(evaluation: Evaluation, measure: FunctionMeasure) -> FunctionMeasure:
    """Measure predictive probabilities, (n, C), instead of samples of the outputs."""
    problem, y = evaluation.model, evaluation.function_rows.y
    hyper = as_tensors(evaluation.hyper)

    def probabilities(f: Tensor) -> Tensor:
        return summarise(problem, f.reshape(len(f), len(y), problem.d_out), y, hyper).probabilities

    return lambda f, truth: measure(probabilities(f), probabilities(truth))


def _measure_distance(evaluation: Evaluation, measure: FunctionMeasure) -> dict[str, float]:
    """Measure the distance to the truth, and how well it is known."""
    ours, groups = evaluation.functions
    pooled_truth = groups.flatten(0, 1)
    floor = exact_score(measure, groups, len(ours))
    scores = {"": float(measure(ours, pooled_truth)), "floor": float(floor)}
    # the error of a single sample of the posterior is not known
    has_known_error = len(ours) > 1 or not evaluation.has_sampling_error
    if evaluation.reference.chains_agree and has_known_error:
        squared = jackknife(lambda rest: measure(ours, rest.flatten(0, 1)), groups)
        if evaluation.has_sampling_error:
            count = min(BLOCKS, len(ours))
            size = len(ours) // count
            blocks = ours[: count * size].reshape(count, size, -1)
            # the samples of both sides are independent, so that variances add
            squared = squared + jackknife(
                lambda rest: measure(rest.flatten(0, 1), pooled_truth), blocks
            )
        scores["mcse"] = float(squared.sqrt())
    return scores
