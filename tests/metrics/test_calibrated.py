"""Calibrated scores: closed forms for one normal, other optimisers for mixtures and classes, and what they undo."""

import math

import numpy as np
import pytest
import torch
from scipy import optimize, special, stats
from torch import Tensor
from torch.distributions import Normal

from bdl.metrics.evaluation import Evaluation
from bdl.metrics.likelihoods import CalibratedNll, Nmll
from bdl.models.likelihoods import Gaussian
from bdl.models.networks import Linear
from bdl.models.problem import Problem
from bdl.posteriors import Empirical

from .fits import binary, examples, fit, labelled, normal
from .test_intervals import answered

N, S = 41, 6  # an odd number of rows: halves of 20 and 21


def one_normal(mean: Tensor, deviation: Tensor, y: Tensor) -> Evaluation:
    return answered(Normal(mean[:, None], deviation[:, None]), y)


def halves(n: int, halvings: int):
    """Return the rows that choose and those that are scored, both ways, of rows in ascending order of their targets."""
    for halved in CalibratedNll(halvings)._halves(n):
        first, second = (part.numpy() for part in halved)
        assert sorted([*first, *second]) == list(range(n))
        assert len(second) - len(first) == n % 2
        yield first, second
        yield second, first


def by_hand(loss, n: int, halvings: int, bounds: tuple[float, float]) -> float:
    """Average the loss (rows, factor) -> (rows,) with factors of scipy's golden section or of a given choice."""
    total = 0.0
    for chosen, scored in halves(n, halvings):
        found = optimize.minimize_scalar(lambda t, own=chosen: loss(own, t).mean(), bounds=bounds, method="bounded")
        polished = optimize.newton(lambda t, own=chosen: slope(lambda s: loss(own, s).mean(), t), found.x, tol=1e-13)
        total += loss(scored, polished).sum()
    return total / (n * halvings)


def slope(function, at: float) -> float:
    """Differentiate by central differences of high order."""
    step = 2e-2
    weights = {1: 4 / 5, 2: -1 / 5, 3: 4 / 105, 4: -1 / 280}
    return sum(w * (function(at + k * step) - function(at - k * step)) for k, w in weights.items()) / step


def test_one_normal_in_closed_form():
    """The best factor is the root mean square error in deviations: log T + z^2 / 2 T^2 is least there."""
    y, mean, deviation = normal(0, N).sort().values, normal(1, N), (0.5 * normal(2, N)).exp()
    z = ((y - mean) / deviation).numpy()
    expected = 0.0
    for chosen, scored in halves(N, 5):
        factor = np.sqrt(np.mean(z[chosen] ** 2))
        expected -= stats.norm(mean.numpy(), factor * deviation.numpy()).logpdf(y.numpy())[scored].sum()
    found = CalibratedNll()(one_normal(mean, deviation, y))
    assert found == {"": pytest.approx(expected / (5 * N), rel=1e-10)}


def test_mixtures_by_another_optimiser():
    y, mean, deviation = 2 * normal(0, N).sort().values, normal(1, N, S), (0.3 * normal(2, N, S)).exp()
    centre = mean.numpy().mean(1, keepdims=True)

    def loss(rows, t):
        wide = stats.norm(centre + np.exp(t) * (mean.numpy() - centre), np.exp(t) * deviation.numpy())
        return math.log(S) - special.logsumexp(wide.logpdf(y.numpy()[:, None]), axis=1)[rows]

    expected = by_hand(loss, N, 2, (-2, 2))
    assert CalibratedNll(2)(answered(Normal(mean, deviation), y))[""] == pytest.approx(expected, rel=1e-10)


def test_temperatures_of_classes_by_another_optimiser():
    y = torch.arange(N) * 4 // N  # ascending, as the score orders them
    probabilities = (2 * normal(3, S, N, 4) + 2 * torch.eye(4)[y]).softmax(-1)
    logs = probabilities.mean(0).log().numpy()

    def loss(rows, t):
        return -special.log_softmax(logs * np.exp(-t), axis=1)[np.arange(N), y.numpy()][rows]

    expected = by_hand(loss, N, 3, (-1, 4))
    assert CalibratedNll(3)(labelled(probabilities, y.double()))[""] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("factor", [0.05, 1.0, 30.0])
def test_how_sharp_predictions_are_does_not_matter(factor):
    y, mean, deviation = normal(0, N), normal(1, N, S), (0.3 * normal(2, N, S)).exp()
    centre = mean.mean(1, keepdim=True)
    wide = Normal(centre + factor * (mean - centre), factor * deviation)
    assert CalibratedNll()(answered(wide, y))[""] == pytest.approx(
        CalibratedNll()(answered(Normal(mean, deviation), y))[""], rel=1e-10
    )


@pytest.mark.parametrize("power", [0.2, 5.0])
def test_the_temperature_of_classes_does_not_matter(power):
    logits = normal(3, N)
    p, y = logits.sigmoid(), (logits + normal(4, N) > 0).double()
    tempered = (power * p.logit()).sigmoid()
    assert CalibratedNll()(binary(tempered[None], y))[""] == pytest.approx(
        CalibratedNll()(binary(p[None], y))[""], rel=1e-10
    )


def test_calibrated_predictions_hardly_change():
    """Of 4000 draws from what is predicted: the loss of choosing one factor, about 1 / (2 n) a half, is below 0.001."""
    y = normal(0, 4000)
    evaluation = one_normal(torch.zeros(4000).double(), torch.ones(4000).double(), y)
    assert CalibratedNll()(evaluation)[""] == pytest.approx(Nmll()(evaluation), abs=1e-3)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_of_few_rows_it_is_a_number(n):
    """One row has nobody to choose for it: its factor is 1."""
    y, zero = 0.7 + torch.arange(n).double(), torch.zeros(n).double()
    evaluation = one_normal(zero, zero + 1, y)
    found = CalibratedNll()(evaluation)[""]
    assert math.isfinite(found)
    if n == 1:
        assert found == pytest.approx(Nmll()(evaluation), rel=1e-12)


def test_labels_that_are_certain_and_all_right_end_at_the_end_of_the_range():
    p = torch.full((N,), 0.99).double()
    assert 0 <= CalibratedNll()(binary(p[None], torch.ones(N).double()))[""] < 1e-30


def test_the_first_members_of_an_ensemble():
    """Each prefix as a posterior of its own; the whole is the score; a sampler's many draws have no prefixes."""
    rows, problem = examples(normal(0, N, 2), normal(1, N)), Problem(Linear(), Gaussian(), 2)
    draws = normal(2, 4, 3)

    def score(members: Tensor) -> dict[str, float]:
        given = {"test": lambda: rows, "samples": 30, "hyper": {"noise_precision": 0.8}}
        return CalibratedNll()(fit(Empirical(members), problem, **given))

    found = score(draws)
    assert [*found] == ["", "first_1", "first_2", "first_3"]
    for count in (1, 2, 3):
        assert found[f"first_{count}"] == pytest.approx(score(draws[:count])[""], rel=1e-9)
    assert [*score(draws.repeat(6, 1))] == [""]
