"""Random settings are those of numpy's legacy generator.

Guided ones follow the scores, and nothing but them.
"""

from typing import NamedTuple

import numpy as np
import pytest
import torch

from bdl.search.proposals import count_settings_per_round, propose


class Between(NamedTuple):
    low: float
    high: float
    scale: str = "log"


class Asked(NamedTuple):
    """Settings of a search."""

    space: dict[str, Between]
    sampler: str = "random"
    trials: int = 30
    startup: int = 5
    grid: dict[str, tuple[float, ...]] = {}  # noqa: RUF012 - a tuple's defaults are shared, and nobody changes it


SPACE = {
    "learning_rate": Between(1e-3, 1e-2),
    "prior_precision": Between(1e-2, 10),
    "noise_precision": Between(1e-2, 1),
}
PINNED = [
    (0.003538453590906551, 1.3981961408994048, 0.16051911333587626),
    (0.003506575410186656, 0.18662266976517972, 0.19578897201213002),
]
"""The first settings of seed 0 in the space of the UCI benchmark."""
PLANE = {"noise_precision": Between(0.07, 0.11), "prior_precision": Between(0.1, 7.0)}
GUIDED = Asked(PLANE, "bayesian", trials=15)


def test_random_settings_are_uniform_draws_in_the_order_of_the_space():
    space = SPACE | {"momentum": Between(-1.0, 3.0, "linear")}
    draws = np.random.RandomState(19)
    proposed = propose(Asked(space), 19, [])
    assert len(proposed) == count_settings_per_round(Asked(space)) == 30
    for setting in proposed:
        expected = {
            name: np.exp(draws.uniform(np.log(low), np.log(high)))
            if scale == "log"
            else draws.uniform(low, high)
            for name, (low, high, scale) in space.items()
        }
        assert list(setting) == list(space)
        assert setting == pytest.approx(expected, rel=1e-12)


def test_the_first_settings_stay_what_they_are():
    found = [tuple(setting.values()) for setting in propose(Asked(SPACE, trials=2), 0, [])]
    assert found == [pytest.approx(pinned, rel=1e-12) for pinned in PINNED]


def bowl(setting):
    """A score with its minimum, 2, at the middle of the logarithms of `PLANE`, and its maximum, 4, in the corners."""
    parts = [
        np.log(setting[name] ** 2 / (low * high)) / np.log(high / low)
        for name, (low, high, _) in PLANE.items()
    ]
    return float(2 + np.sum(np.square(parts)))


def searched(search, seed, score):
    """Search to the end: every setting and its score."""
    told = []
    while len(told) < search.trials:
        told += [(setting, score(setting)) for setting in propose(search, seed, told)]
    return told


@pytest.fixture(scope="module")
def calm():
    """A search in a bowl."""
    return searched(GUIDED, 3, bowl)


def test_a_bayesian_search_begins_with_the_settings_of_a_random_one(calm):
    assert count_settings_per_round(GUIDED) == 1
    drawn = propose(Asked(PLANE, trials=6), 3, [])
    assert [setting for setting, _ in calm[:5]] == drawn[:5]
    assert calm[5][0] != drawn[5]


def test_guided_settings_close_in_on_the_best(calm):
    """One of ten random draws scores below 2.001 with a chance of 10 pi 0.001 / 4 = 0.8 %."""
    assert all(
        low <= setting[name] <= high
        for setting, _ in calm
        for name, (low, high, _) in PLANE.items()
    )
    scores = [score for _, score in calm]
    assert min(scores[5:]) < 2 + 1e-3 < min(scores[:5])
    assert np.mean(scores[5:]) < np.mean(scores[:5])


def test_lower_is_better(calm):
    """Turned over, the bowl is best in its corners, at -4."""
    turned = searched(GUIDED, 3, lambda setting: -bowl(setting))
    assert turned[:5] == [(setting, -score) for setting, score in calm[:5]]
    assert min(score for _, score in turned[5:]) == pytest.approx(-4, rel=1e-6)


def test_what_is_proposed_follows_from_what_is_told(calm):
    """A search goes on as it would have, whatever the threads, the global generators, and what is not searched."""
    before = torch.get_num_threads()
    torch.set_num_threads(3 - min(before, 2))
    try:
        for done in (2, 5, 7, 9):
            torch.manual_seed(done)
            np.random.seed(done)  # noqa: NPY002
            told = [({"learning_rate": 0.1, **setting}, score) for setting, score in calm[:done]]
            assert propose(GUIDED, 3, told) == [calm[done][0]]
    finally:
        torch.set_num_threads(before)
    assert propose(GUIDED, 0, calm[:2]) != [calm[2][0]]


def test_failures_are_survived(calm):
    """With no score at all the settings stay random, and new.

    With some, a setting without one tells nothing.
    """
    nan, one, other = float("nan"), *(setting for setting, _ in calm[:2])
    failed = searched(GUIDED._replace(trials=7), 3, lambda setting: nan)
    assert len({setting["prior_precision"] for setting, _ in failed}) == 7
    assert propose(GUIDED, 3, [*failed, (one, 2.0)]) != propose(GUIDED, 3, [*failed, (one, nan)])
    assert propose(GUIDED, 3, [*calm[2:7], (one, nan)]) == propose(
        GUIDED, 3, [*calm[2:7], (other, nan)]
    )


def test_one_random_setting_and_equal_scores_are_enough():
    flat = searched(GUIDED._replace(trials=4, startup=1), 0, lambda setting: 1.0)
    assert all(
        low <= setting[name] <= high
        for setting, _ in flat
        for name, (low, high, _) in PLANE.items()
    )


def test_grid_goes_through_every_combination_and_on_from_where_it_was():
    asked = Asked(
        {}, "grid", trials=4, grid={"dropout_rate": (0.01, 0.1), "noise_precision": (0.5, 1.0)}
    )
    proposed = propose(asked, 3, [])
    assert count_settings_per_round(asked) == 4
    assert proposed == [
        {"dropout_rate": p, "noise_precision": beta} for p in (0.01, 0.1) for beta in (0.5, 1.0)
    ]
    assert propose(asked, 0, [(setting, 1.0) for setting in proposed[:3]]) == proposed[3:]
