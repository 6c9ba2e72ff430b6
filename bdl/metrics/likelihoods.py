"""Scores from the likelihood of the test targets: marginal, joint, in dyadic batches, and calibrated on other rows."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from annotated_types import Ge
from torch import Tensor
from torch.distributions import Distribution

from bdl.metrics import MetricInfo
from bdl.metrics.evaluation import At, Evaluation
from bdl.metrics.targets import row_order
from bdl.posteriors import Empirical


@dataclass(frozen=True)
class Nmll:
    """Negative mean marginal log-likelihood, nats per test point.

    The mean over points of -log (1/S) sum_s p(y_i | theta_s), a mixture for each point on its own
    (VIFA paper 2023, section 4.2.1).

    Parameters
    ----------
    at
        Parameters that predict: samples of the posterior, or its mean alone.
    """

    at: At = "samples"

    info = MetricInfo(
        "NMLL", "nats per test point", "lower", "predictive", "regression", margin=0.05
    )

    def __call__(self, evaluation: Evaluation) -> float:
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
    """Negative log-likelihood of labels, nats per test point: the mean of -log of the label's mean probability."""

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
            :, row_order(rows)
        ]
        first, second, count = self._draw_batches(len(rows.y))
        joint = densities[:, first] * count + densities[:, second] * (self.rows - count)
        total, samples = joint.logsumexp(0), len(joint)
        scores = {"": float(math.log(samples) - total.mean()) / self.rows}
        if evaluation.has_sampling_error and samples > 1:
            influence = samples * (joint - total).exp().mean(1) / self.rows
            scores["mcse"] = float(influence.std() / math.sqrt(samples))
        return scores

    def _draw_batches(self, n: int) -> tuple[Tensor, Tensor, Tensor]:
        """Draw two rows of n for each batch, different ones if there are two, and how often the first is in it."""
        generator = torch.Generator().manual_seed(0)
        first = torch.randint(n, (self.batches,), generator=generator)
        step = torch.randint(max(1, n - 1), (self.batches,), generator=generator) + 1
        count = torch.randint(2, (self.batches, self.rows), generator=generator).sum(1)
        return first, (first + step) % n, count


FIRST = "first"
"""Suffix of the score of an ensemble's first members, followed by their number."""

_MEMBERS = 20
"""Most vectors of a posterior that is scored by its first one, two and so on: of an ensemble,
rather than a sampler.
"""
_SEARCHED = torch.linspace(-4, 6, 21, dtype=torch.float64)
"""Logarithms of factors among which the best is taken, and refined; about that of
`Family.squares`.
"""
_TINY = 1e-300
"""Least probability, whose logarithm is finite."""


class Family(NamedTuple):
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
        order = row_order(rows)
        labels = not evaluation.model.likelihood.fits(0)
        y = rows.y.long() if labels else rows.y.double()
        posterior = evaluation.posterior
        count = len(posterior.draws) if isinstance(posterior, Empirical) else 0
        members = range(1, count) if count <= min(_MEMBERS, evaluation.samples) else range(0)

        whole = (
            _tempered(evaluation.predictions.probabilities, y)
            if labels
            else _widened(evaluation.components, y)
        )
        found = {"": self._score(whole, order)}
        for number in members:
            law = evaluation.components
            some = _tempered(_shares(law, number), y) if labels else _widened(law, y, number)
            found[f"{FIRST}_{number}"] = self._score(some, order)
        return found

    def _score(self, family: Family, order: Tensor) -> float:
        """Average over halvings the score of each row by the factor that the half without it has chosen."""
        total = 0.0
        for halves in self._halves(len(order)):
            first, second = (order[half] for half in halves)
            for choosing, scored in ((first, second), (second, first)):
                total -= float(family.densities(best(family, choosing))[scored].sum())
        return total / (self.halvings * len(order))

    def _halves(self, n: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(0)
        for _ in range(self.halvings):
            drawn = torch.randperm(n, generator=generator)
            yield drawn[: n // 2], drawn[n // 2 :]


def best(family: Family, rows: Tensor) -> Tensor:
    """Choose the logarithm of the factor under which rows, given by their numbers, are most likely; 0 without rows.

    It is the best of a grid, then the zero of the derivative next to it.
    """
    from scipy.optimize import (
        brentq,
    )  # takes a tenth of the time of a command that only shows numbers

    if not len(rows):
        return torch.zeros((), dtype=torch.float64)

    def loss(at: Tensor) -> Tensor:
        return -family.densities(at)[rows].mean()

    slope, grid = (
        torch.func.grad(loss),
        _SEARCHED + family.squares[rows].mean().clamp(min=_TINY).log() / 2,
    )
    place = int(torch.stack([loss(at) for at in grid]).argmin())
    low, high = (grid[min(max(place + side, 0), len(grid) - 1)] for side in (-1, 1))
    if not slope(low) < 0 < slope(high):  # at an end, or where the loss is not convex
        return grid[place]

    def at(value: float) -> float:
        return float(slope(torch.tensor(value, dtype=torch.float64)))

    return torch.tensor(
        brentq(at, float(low), float(high), xtol=1e-13, rtol=1e-14), dtype=torch.float64
    )


def _tempered(probabilities: Tensor, y: Tensor) -> Family:
    """Divide log-probabilities, of (n, C), by the temperature."""
    logs = probabilities.clamp(min=_TINY).log()
    own = logs.gather(-1, y.unsqueeze(-1)).squeeze(-1)

    def densities(at: Tensor) -> Tensor:
        return own / at.exp() - (logs / at.exp()).logsumexp(-1)

    return Family(densities, torch.ones_like(own))


def _widened(law: Distribution, y: Tensor, members: int | None = None) -> Family:
    """Widen the equal mixtures of the first components, of (n, S), about their means."""
    mean, variance = law.mean[:, :members], law.variance[:, :members]
    centre = mean.mean(-1)
    spread = (variance + (mean - centre.unsqueeze(-1)).square()).mean(-1)

    def densities(at: Tensor) -> Tensor:
        each = law.log_prob((centre + (y - centre) / at.exp()).unsqueeze(-1))[:, :members]
        return each.logsumexp(-1) - math.log(each.shape[-1]) - at

    return Family(densities, (y - centre).square() / spread)


def _shares(law: Distribution, members: int) -> Tensor:
    """Average the probabilities of classes over the first components, (n, S) -> (n, C)."""
    labels = law.enumerate_support(expand=False)
    return law.log_prob(labels).exp()[..., :members].mean(-1).T
