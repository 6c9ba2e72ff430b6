"""Scores from the likelihood of test targets: by loops, in closed form, and by other optimisers."""

import math

import numpy as np
import pytest
import torch
from scipy import optimize, special, stats
from torch import Tensor
from torch.distributions import Normal

from bdl.metrics.likelihoods import CalibratedNll, DyadicNll, JointNll, Nll, Nmll
from bdl.models.likelihoods import Categorical, GaussianLikelihood
from bdl.models.networks import LinearModel
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian, Empirical
from bdl.posteriors.predictive import Outputs

from .fits import answered, binary, examples, fit, labelled, normal, regression, tensor


@pytest.mark.parametrize("beta", [1e-4, 0.3, 100.0])
def test_mixtures_of_normals_at_each_point_and_at_all_together(beta):
    """Seven samples, and a point where every density underflows."""
    f, y = 2 * normal(0, 7, 5), tensor(0.3, -1, 2.5, 4, -30)
    densities, evaluation = (
        stats.norm(f.numpy(), beta**-0.5).logpdf(y.numpy()),
        regression(f, y, beta),
    )
    marginal, joint = (
        special.logsumexp(densities, axis=0) - math.log(7),
        special.logsumexp(densities.sum(1)),
    )
    assert Nmll()(evaluation) == pytest.approx(-marginal.mean(), rel=1e-12)
    assert JointNll()(evaluation) == pytest.approx((math.log(7) - joint) / 5, rel=1e-12)


@pytest.mark.parametrize(("rows", "batches", "n"), [(10, 40, 9), (1, 5, 9), (3, 40, 2), (4, 7, 1)])
def test_dyadic_batches_by_a_loop(rows, batches, n):
    """Each batch has `rows` rows of at most two, drawn here from what the score draws."""
    f, y, own = normal(0, 6, n), normal(1, n).sort().values, DyadicNll(rows, batches)
    densities, found = stats.norm(f.numpy(), 0.8**-0.5).logpdf(y.numpy()), []
    for first, second, count in zip(*own._draw_batches(n), strict=True):
        assert first != second or n == 1
        batch = [first] * int(count) + [second] * (rows - int(count))
        found.append(-(special.logsumexp(densities[:, batch].sum(1)) - math.log(6)) / rows)
    assert own(answered(Outputs(f), y)) == {"": pytest.approx(np.mean(found), rel=1e-12)}


def test_dyadic_rows_and_counts_are_drawn_evenly():
    """All pairs of five rows, and half of the ten rows of a batch from each: within five standard errors."""
    first, second, count = DyadicNll(batches=20_000)._draw_batches(5)
    pairs = torch.bincount(5 * first + second, minlength=25).view(5, 5)
    assert (pairs[~torch.eye(5, dtype=torch.bool)] - 1000).abs().max() < 5 * math.sqrt(950)
    assert abs(count.double().mean() - 5) < 5 * math.sqrt(2.5 / 20_000)
    assert abs(count.double().var() - 2.5) < 0.15


def test_the_dyadic_score_sees_labels_that_go_together():
    """Two coins of which nothing is known but that they are the same: the joint score knows, the marginal one not."""
    heads, tails = tensor(0.95, 0.05).log(), tensor(0.05, 0.95).log()
    same = torch.stack([torch.stack([coin, coin]) for coin in (heads, tails)])
    apart = torch.stack([torch.stack([a, b]) for a in (heads, tails) for b in (heads, tails)])
    together, alone = (answered(Outputs(f), torch.zeros(2), Categorical()) for f in (same, apart))
    assert (
        Nll()(together)
        == pytest.approx(Nll()(alone), rel=1e-12)
        == pytest.approx(math.log(2), rel=1e-12)
    )
    expected = -math.log(0.95) + math.log(2) / 10
    assert DyadicNll()(together)[""] == pytest.approx(expected, abs=1e-6)
    assert DyadicNll()(alone)[""] > DyadicNll()(together)[""] + 0.05


LINE = Problem(LinearModel(), GaussianLikelihood(), 1)
BELIEF = DiagonalGaussian(tensor(0.2, -0.1), tensor(0.03, 0.05))


def line(posterior, samples: int, seed: int = 0):
    """Evaluate a posterior of a straight line at twelve rows."""
    test = examples(normal(0, 12, 1), normal(1, 12))
    key = torch.tensor([seed, 1], dtype=torch.int32)
    changes = {"hyper": {"noise_precision": 0.8}, "samples": samples, "key": key}
    return fit(posterior, LINE, test=lambda: test, **changes)


@pytest.mark.parametrize("samples", [50, 400])
def test_the_dyadic_error_is_what_sets_of_samples_scatter_by(samples):
    """The standard deviation of 200 scores is known to 5 %; the mean error is within four times that."""
    found = [DyadicNll(batches=50)(line(BELIEF, samples, seed)) for seed in range(200)]
    scatter = np.std([scores[""] for scores in found], ddof=1)
    assert np.mean([scores["mcse"] for scores in found]) == pytest.approx(scatter, rel=0.2)


def test_a_posterior_whose_vectors_are_all_used_has_no_dyadic_error():
    """Nor has one sample a spread."""
    vectors = Empirical(BELIEF.mean() + 0.2 * normal(2, 20, 2))
    assert set(DyadicNll()(line(vectors, 20))) == {""}
    assert set(DyadicNll()(line(vectors, 19))) == {"", "mcse"}
    assert set(DyadicNll()(line(BELIEF, 1))) == {""}


N, S = 41, 6  # an odd number of rows: halves of 20 and 21


def halves(halvings: int):
    """Return the rows that choose and those that are scored, both ways, of rows in ascending order of their targets."""
    for first, second in CalibratedNll(halvings)._draw_halves(N):
        assert sorted([*first.tolist(), *second.tolist()]) == list(range(N))
        yield first.numpy(), second.numpy()
        yield second.numpy(), first.numpy()


def by_hand(loss, halvings: int) -> float:
    """Average the loss, log factor -> (n,), with factors that another optimiser chooses."""
    total = 0.0
    for chosen, scored in halves(halvings):
        best = optimize.minimize_scalar(
            lambda t, own=chosen: loss(t)[own].mean(),
            bounds=(-4, 4),
            method="bounded",
            options={"xatol": 1e-12},
        )
        total += loss(best.x)[scored].sum()
    return total / (N * halvings)


def test_calibrated_normals_in_closed_form():
    """The best factor is the root mean square error in deviations: log T + z^2 / 2 T^2 is least there."""
    y, mean, deviation = normal(0, N).sort().values, normal(1, N), (0.5 * normal(2, N)).exp()
    z, expected = ((y - mean) / deviation).numpy(), 0.0
    for chosen, scored in halves(5):
        wide = stats.norm(mean.numpy(), np.sqrt(np.mean(z[chosen] ** 2)) * deviation.numpy())
        expected -= wide.logpdf(y.numpy())[scored].sum()
    found = CalibratedNll()(answered(Normal(mean[:, None], deviation[:, None]), y))
    assert found == {"": pytest.approx(expected / (5 * N), rel=1e-10)}


def test_calibrated_mixtures_by_another_optimiser():
    y, mean, deviation = (
        2 * normal(0, N).sort().values,
        normal(1, N, S),
        (0.3 * normal(2, N, S)).exp(),
    )
    centre = mean.numpy().mean(1, keepdims=True)

    def loss(t):
        wide = stats.norm(
            centre + np.exp(t) * (mean.numpy() - centre), np.exp(t) * deviation.numpy()
        )
        return math.log(S) - special.logsumexp(wide.logpdf(y.numpy()[:, None]), axis=1)

    found = CalibratedNll(2)(answered(Normal(mean, deviation), y))
    assert found[""] == pytest.approx(by_hand(loss, 2), rel=1e-8)


def test_temperatures_of_classes_by_another_optimiser():
    y = torch.arange(N) * 4 // N  # ascending, as the score orders them
    probabilities = (2 * normal(3, S, N, 4) + 2 * torch.eye(4)[y]).softmax(-1)
    logs = probabilities.mean(0).log().numpy()

    def loss(t):
        return -special.log_softmax(logs * np.exp(-t), axis=1)[np.arange(N), y.numpy()]

    found = CalibratedNll(3)(labelled(probabilities, y.double()))
    assert found[""] == pytest.approx(by_hand(loss, 3), rel=1e-8)


@pytest.mark.parametrize("factor", [0.05, 30.0])
def test_how_sharp_predictions_are_does_not_matter(factor):
    y, mean, deviation = normal(0, N), normal(1, N, S), (0.3 * normal(2, N, S)).exp()
    centre = mean.mean(1, keepdim=True)
    wide = Normal(centre + factor * (mean - centre), factor * deviation)
    logits = normal(3, 1, N)
    labels = (logits[0] + normal(4, N) > 0).double()
    for own, other in (
        (answered(Normal(mean, deviation), y), answered(wide, y)),
        (binary(logits.sigmoid(), labels), binary((logits * factor**0.5).sigmoid(), labels)),
    ):
        assert CalibratedNll()(other)[""] == pytest.approx(CalibratedNll()(own)[""], rel=1e-10)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_calibrated_scores_of_few_rows(n):
    """One row has nobody to choose for it: its factor is 1."""
    zero = torch.zeros(n, 1).double()
    evaluation = answered(Normal(zero, zero + 1), 0.7 + torch.arange(n).double())
    found = CalibratedNll()(evaluation)[""]
    assert math.isfinite(found)
    assert n > 1 or found == pytest.approx(Nmll()(evaluation), rel=1e-12)


def test_labels_that_are_certain_and_all_right_end_at_the_end_of_the_range():
    p = torch.full((1, N), 0.99).double()
    assert 0 <= CalibratedNll()(binary(p, torch.ones(N).double()))[""] < 1e-30


def test_the_first_members_of_an_ensemble():
    """Each prefix as a posterior of its own; the whole is the score.

    A sampler's many draws have no prefixes.
    """
    rows, problem = (
        examples(normal(0, N, 2), normal(1, N)),
        Problem(LinearModel(), GaussianLikelihood(), 2),
    )
    draws = normal(2, 4, 3)

    def score(members: Tensor) -> dict[str, float]:
        given = {"test": lambda: rows, "samples": 30, "hyper": {"noise_precision": 0.8}}
        return CalibratedNll(1)(fit(Empirical(members), problem, **given))

    found = score(draws)
    assert [*found] == ["", "first_1", "first_2", "first_3"]
    for count in (1, 2, 3):
        assert found[f"first_{count}"] == pytest.approx(score(draws[:count])[""], rel=1e-9)
    assert [*score(draws.repeat(6, 1))] == [""]
