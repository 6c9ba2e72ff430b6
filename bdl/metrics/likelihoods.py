"""Scores from the likelihood of the test targets: marginal, joint, in dyadic batches, and
calibrated on other rows.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from annotated_types import Ge
from torch import Tensor
from torch.distributions import Distribution

from bdl.metrics import FIRST_MEMBERS, MetricInfo
from bdl.metrics.chains import score_chains
from bdl.metrics.evaluation import At, Evaluation
from bdl.metrics.targets import order_rows
from bdl.posteriors import Empirical


@dataclass(frozen=True)
class Nmll:
    """Negative mean marginal log-likelihood, nats per test point.

    The mean over points of -log (1/S) sum_s p(y_i | theta_s), a mixture for each point on its own
    (VIFA paper 2023, section 4.2.1). Predictions by chains have the suffix ``mcse``
    (`bdl.metrics.chains`).

    Parameters
    ----------
    at
        Parameters that predict: samples of the posterior, or its mean alone.
    """

    at: At = "samples"

    info = MetricInfo(
        "NMLL", "nats per test point", "lower", "predictive", "regression", margin=0.05
    )

    def __call__(self, evaluation: Evaluation) -> float | dict[str, float]:
        return score_chains(self._score, evaluation)

    def _score(self, evaluation: Evaluation) -> float:
        return -float(evaluation.at(self.at).predictions.log_likelihood.mean())


@dataclass(frozen=True)
class JointNll:
    """Negative joint predictive log-density, nats per test point.

    -(1/n) log (1/S) sum_s prod_i p(y_i | theta_s), one mixture for all n points together, as the
    published code of SLANG evaluates it (Mishkin et al. 2018). It is between the mean negative
    log-likelihood of the best sample and log(S) / n more.
    """

    info = MetricInfo(
        "Joint NLL", "nats per test point", "lower", "predictive", "regression", margin=0.05
    )

    def __call__(self, evaluation: Evaluation) -> float:
        joint = evaluation.predictions.sample_log_likelihood
        return float(math.log(len(joint)) - joint.logsumexp(0)) / len(
            evaluation.predictions.log_likelihood
        )


@dataclass(frozen=True)
class Nll(Nmll):
    """Negative log-likelihood of labels, nats per test point: the mean of -log of the label's mean
    probability.
    """

    info = MetricInfo(
        "NLL", "nats per test point", "lower", "predictive", "classification", margin=0.02
    )


@dataclass(frozen=True)
class DyadicNll:
    """Negative joint log-likelihood of small batches of test rows, nats per row.

    A batch has two rows of the test set, each repeated: `rows` times one of the two is drawn
    (dyadic sampling; Osband et al. 2022, "The Neural Testbed: Evaluating Joint Predictions",
    section 3). With counts k and m of rows a and b the score is the mean over batches of -log
    (1/S) sum_s p(y_a | theta_s)^k p(y_b | theta_s)^m / `rows`. Random batches of distinct rows
    hardly tell it from the marginal score, since few of them are related. A repeated row keeps its
    one target. The batches of a split are the same for all fits.

    The suffix ``mcse`` is its standard error over the S draws, by the delta method: with the
    density p_bs of batch b under draw s, and its mean p_b, a draw moves the score by the mean over
    batches of p_bs / p_b, over `rows`; the error is the standard deviation of that over sqrt(S).
    Where a few draws have most of the density it is too small, and the score too high. Scores of
    a posterior whose vectors are all used have none.

    Parameters
    ----------
    rows
        Rows of a batch, repetitions counted.
    batches
        Number of batches.
    """

    rows: Annotated[int, Ge(1)] = 10
    batches: Annotated[int, Ge(1)] = 1000

    info = MetricInfo("Dyadic joint NLL", "nats per row", "lower", "predictive", margin=0.05)

    def __call__(self, evaluation: Evaluation) -> dict[str, float]:
        rows = evaluation.tested
        densities = evaluation.components.log_prob(rows.y.double().unsqueeze(-1)).T[
            :, order_rows(rows)
        ]
        row_a, row_b, count = self._draw_batches(len(rows.y))
        joint = densities[:, row_a] * count + densities[:, row_b] * (self.rows - count)
        total, samples = joint.logsumexp(0), len(joint)
        scores = {"": float(math.log(samples) - total.mean()) / self.rows}
        if evaluation.has_sampling_error and samples > 1:
            influence = samples * (joint - total).exp().mean(1) / self.rows
            scores["mcse"] = float(influence.std() / math.sqrt(samples))
        return scores

    def _draw_batches(self, n: int) -> tuple[Tensor, Tensor, Tensor]:
        """Draw two rows of n for each batch, different ones if there are two, and how often the
        first is in it.
        """
        generator = torch.Generator().manual_seed(0)
        row_a = torch.randint(n, (self.batches,), generator=generator)
        # from 1 to n - 1, so that the second row is never the first
        step = torch.randint(max(1, n - 1), (self.batches,), generator=generator) + 1
        count = torch.randint(2, (self.batches, self.rows), generator=generator).sum(1)
        return row_a, (row_a + step) % n, count


_MOST_MEMBERS = 20
"""Most vectors of a posterior that is scored by its first one, two and so on: of an ensemble,
rather than a sampler.
"""
_LOG_FACTORS = torch.linspace(-4, 6, 21, dtype=torch.float64)
"""Logarithms of factors among which the best is taken, and refined; about that of
`Family.squares`.
"""
_LEAST_PROBABILITY = 1e-300
"""Least probability, whose logarithm is finite."""


class CalibratedFamily(NamedTuple):
    """Predictions at n rows by the factor that calibrates them."""

    densities: Callable[[Tensor], Tensor]
    """Log densities of the targets, (n,), by the logarithm of the factor, a scalar."""
    squares: Tensor
    """Whose mean is about the square of the best factor, (n,)."""


@dataclass(frozen=True)
class CalibratedNll:
    """Negative log-likelihood after calibration on held-out rows, nats per test point.

    Fits differ in sharpness, which a factor mends; what is left is compared (Ashukha, Lyzhov,
    Molchanov and Vetrov 2020, "Pitfalls of in-domain uncertainty estimation and ensembling in deep
    learning"). Of classes, the log predictive probabilities are divided by a temperature T: p_T(c)
    is proportional to p(c)^(1 / T). Of numbers, the predictive distribution of each row is widened
    about its mean m by a factor T, which leaves its form: the density is p(m + (y - m) / T) / T,
    and the variance T^2 times as large.

    A random half of the test rows chooses the T of least score, the other half is scored, and the
    other way round; the score is the mean over `halvings`. Halves are the same for all fits of a
    split. For a set of at most 20 parameter vectors, an ensemble, the score of the first m of them
    is the suffix ``first_<m>``.

    Parameters
    ----------
    halvings
        How often the rows are divided.
    """

    halvings: Annotated[int, Ge(1)] = 5

    info = MetricInfo("Calibrated NLL", "nats per test point", "lower", "predictive", margin=0.02)

    def __call__(self, evaluation: Evaluation) -> dict[str, float]:
        rows = evaluation.tested
        order = order_rows(rows)
        labels = not evaluation.model.likelihood.fits(0)
        y = rows.y.long() if labels else rows.y.double()
        posterior = evaluation.posterior
        count = len(posterior.draws) if isinstance(posterior, Empirical) else 0
        members = range(1, count) if count <= min(_MOST_MEMBERS, evaluation.samples) else range(0)

        family = (
            _temper(evaluation.predictions.probabilities, y)
            if labels
            else _widen(evaluation.components, y)
        )
        scores = {"": self._score(family, order)}
        for number in members:
            law = evaluation.components
            subfamily = (
                _temper(_average_probabilities(law, number), y)
                if labels
                else _widen(law, y, number)
            )
            scores[f"{FIRST_MEMBERS}_{number}"] = self._score(subfamily, order)
        return scores

    def _score(self, family: CalibratedFamily, order: Tensor) -> float:
        """Average over halvings the score of each row by the factor that the half without it has
        chosen.
        """
        total = 0.0
        for halves in self._draw_halves(len(order)):
            half, complement = (order[numbers] for numbers in halves)
            for choosing, scored in ((half, complement), (complement, half)):
                total -= float(family.densities(find_best_factor(family, choosing))[scored].sum())
        return total / (self.halvings * len(order))

    def _draw_halves(self, n: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(0)
        for _ in range(self.halvings):
            permutation = torch.randperm(n, generator=generator)
            yield permutation[: n // 2], permutation[n // 2 :]


def find_best_factor(family: CalibratedFamily, rows: Tensor) -> Tensor:
    """Choose the logarithm of the factor under which rows, given by their numbers, are most
    likely; 0 without rows.

    It is the best of a grid, then the zero of the derivative next to it.
    """
    # scipy takes a tenth of the time of a command that only shows numbers
    from scipy.optimize import brentq

    if not len(rows):
        return torch.zeros((), dtype=torch.float64)

    def loss(log_factor: Tensor) -> Tensor:
        return -family.densities(log_factor)[rows].mean()

    slope = torch.func.grad(loss)
    centre = family.squares[rows].mean().clamp(min=_LEAST_PROBABILITY).log() / 2
    grid = _LOG_FACTORS + centre
    best = int(torch.stack([loss(log_factor) for log_factor in grid]).argmin())
    low, high = (grid[min(max(best + side, 0), len(grid) - 1)] for side in (-1, 1))
    if not slope(low) < 0 < slope(high):  # at an end, or where the loss is not convex
        return grid[best]

    def slope_at(log_factor: float) -> float:
        return float(slope(torch.tensor(log_factor, dtype=torch.float64)))

    # A zero of the slope is known to all digits, a minimum of the loss to half of them only.
    return torch.tensor(
        brentq(slope_at, float(low), float(high), xtol=1e-13, rtol=1e-14), dtype=torch.float64
    )


def _temper(probabilities: Tensor, y: Tensor) -> CalibratedFamily:
    """Divide log-probabilities, of (n, C), by the temperature."""
    logs = probabilities.clamp(min=_LEAST_PROBABILITY).log()
    label_logs = logs.gather(-1, y.unsqueeze(-1)).squeeze(-1)

    def densities(log_factor: Tensor) -> Tensor:
        return label_logs / log_factor.exp() - (logs / log_factor.exp()).logsumexp(-1)

    return CalibratedFamily(densities, torch.ones_like(label_logs))


def _widen(law: Distribution, y: Tensor, members: int | None = None) -> CalibratedFamily:
    """Widen the equal mixtures of the first components, of (n, S), about their means."""
    mean, variance = law.mean[:, :members], law.variance[:, :members]
    centre = mean.mean(-1)
    spread = (variance + (mean - centre.unsqueeze(-1)).square()).mean(-1)

    def densities(log_factor: Tensor) -> Tensor:
        # Widening by T changes variables: the density at y is the original one, at the point that
        # is moved to y, over T.
        origin = centre + (y - centre) / log_factor.exp()
        log_densities = law.log_prob(origin.unsqueeze(-1))[:, :members]
        return log_densities.logsumexp(-1) - math.log(log_densities.shape[-1]) - log_factor

    return CalibratedFamily(densities, (y - centre).square() / spread)


def _average_probabilities(law: Distribution, members: int) -> Tensor:
    """Average the probabilities of classes over the first components, (n, S) -> (n, C)."""
    labels = law.enumerate_support(expand=False)
    return law.log_prob(labels).exp()[..., :members].mean(-1).T
