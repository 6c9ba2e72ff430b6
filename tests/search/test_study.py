"""Random settings are those of numpy's legacy generator; guided ones follow the scores, and nothing but them."""

from typing import NamedTuple

import numpy as np
import pytest
import torch

from bdl.search import per_round, propose


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
PLANE = {"noise_precision": Between(0.07, 0.11), "prior_precision": Between(0.1, 7.0)}
NAN = float("nan")
PINNED = [
    {
        "learning_rate": 0.003538453590906551,
        "prior_precision": 1.3981961408994048,
        "noise_precision": 0.16051911333587626,
    },
    {
        "learning_rate": 0.003506575410186656,
        "prior_precision": 0.18662266976517972,
        "noise_precision": 0.19578897201213002,
    },
]
"""The first settings of seed 0 in the space of the UCI benchmark."""


@pytest.mark.parametrize("seed", [0, 1, 19])
def test_random_settings_are_uniform_draws_in_the_order_of_the_space(seed):
    space = SPACE | {"momentum": Between(-1.0, 3.0, "linear")}
    draws = np.random.RandomState(seed)
    proposed = propose(Asked(space), seed, [])
    assert len(proposed) == per_round(Asked(space)) == 30
    for setting in proposed:
        expected = {
            name: np.exp(draws.uniform(np.log(low), np.log(high))) if scale == "log" else draws.uniform(low, high)
            for name, (low, high, scale) in space.items()
        }
        assert list(setting) == list(space)
        assert setting == pytest.approx(expected, rel=1e-12)


def test_the_first_settings_stay_what_they_are():
    for setting, pinned in zip(propose(Asked(SPACE, trials=2), 0, []), PINNED, strict=True):
        assert setting == pytest.approx(pinned, rel=1e-12)


def test_another_order_of_the_space_gives_other_settings():
    (turned,) = propose(Asked(dict(reversed(SPACE.items())), trials=1), 0, [])
    assert turned["learning_rate"] != pytest.approx(PINNED[0]["learning_rate"], rel=1e-3)


def bowl(setting):
    """A score with its minimum, 2, at the middle of the logarithms of `PLANE`, and its maximum, 4, in the corners."""
    parts = [np.log(setting[name] ** 2 / (low * high)) / np.log(high / low) for name, (low, high, _) in PLANE.items()]
    return float(2 + np.sum(np.square(parts)))


def searched(search, seed, score, told=()):
    """Go on with a search to its end: every setting and its score."""
    told = list(told)
    while len(told) < search.trials:
        told += [(setting, score(setting)) for setting in propose(search, seed, told)]
    return told


GUIDED = Asked(PLANE, "bayesian", trials=15)


@pytest.fixture(scope="module")
def calm():
    """A search in a bowl."""
    return searched(GUIDED, 3, bowl)


def test_a_bayesian_search_begins_with_the_settings_of_a_random_one(calm):
    assert per_round(GUIDED) == 1
    assert [setting for setting, _ in calm[:5]] == propose(Asked(PLANE, trials=5), 3, [])
    assert calm[5][0] != propose(Asked(PLANE, trials=6), 3, [])[5]


def test_guided_settings_close_in_on_the_best(calm):
    """One of ten random draws scores below 2.001 with a chance of 10 pi 0.001 / 4 = 0.8 %."""
    assert all(low <= setting[name] <= high for setting, _ in calm for name, (low, high, _) in PLANE.items())
    assert min(score for _, score in calm[5:]) < 2 + 1e-3 < min(score for _, score in calm[:5])
    assert np.mean([score for _, score in calm[5:]]) < np.mean([score for _, score in calm[:5]])


def test_lower_is_better(calm):
    """Turned over, the bowl is best in its corners, at -4."""
    turned = searched(GUIDED, 3, lambda setting: -bowl(setting))
    assert turned[:5] == [(setting, -score) for setting, score in calm[:5]]
    assert min(score for _, score in turned[5:]) == pytest.approx(-4, rel=1e-6)


@pytest.mark.parametrize("done", [2, 5, 9])
def test_a_search_goes_on_as_it_would_have(calm, done):
    assert searched(GUIDED, 3, bowl, calm[:done]) == calm


def test_studies_in_lockstep_propose_what_each_does_alone(calm):
    """Studies of other seeds and scores between the rounds change nothing, nor does the global generator."""
    studies = {seed: [] for seed in (0, 3)}
    for _ in range(GUIDED.trials):
        for seed, told in studies.items():
            torch.manual_seed(len(told))
            np.random.seed(len(told))  # noqa: NPY002
            told += [(setting, bowl(setting)) for setting in propose(GUIDED, seed, told)]
    assert studies[3] == calm
    assert studies[0] == searched(GUIDED, 0, bowl)
    assert studies[0] != studies[3]


def test_threads_change_nothing(calm):
    before = torch.get_num_threads()
    torch.set_num_threads(3 - min(before, 2))
    try:
        assert propose(GUIDED, 3, calm[:7]) == [calm[7][0]]
    finally:
        torch.set_num_threads(before)


def test_what_is_not_searched_is_not_heeded(calm):
    told = [({"learning_rate": 0.1, **setting}, score) for setting, score in calm[:6]]
    assert propose(GUIDED, 3, told) == [calm[6][0]]


def test_failures_are_survived():
    """With no score at all the settings stay random, and new; with one, they are guided."""
    failed = searched(GUIDED._replace(trials=8), 3, lambda setting: NAN)
    assert len({setting["prior_precision"] for setting, _ in failed}) == 8
    one = [*failed, ({"noise_precision": 0.08, "prior_precision": 1.0}, 2.0)]
    assert len(propose(GUIDED, 3, one)) == 1
    assert propose(GUIDED, 3, one) != propose(GUIDED, 3, [*failed, (one[-1][0], NAN)])


def test_one_random_setting_and_equal_scores_are_enough():
    flat = searched(GUIDED._replace(trials=6, startup=1), 0, lambda setting: 1.0)
    assert [list(setting) for setting, _ in flat] == [list(PLANE)] * 6
    assert all(low <= setting[name] <= high for setting, _ in flat for name, (low, high, _) in PLANE.items())


def test_grid_goes_through_every_combination_and_on_from_where_it_was():
    grid = {"dropout_rate": (0.01, 0.1), "noise_precision": (0.5, 1.0, 2.0)}
    asked = Asked({}, "grid", trials=6, grid=grid)
    proposed = propose(asked, 3, [])
    assert per_round(asked) == 6
    assert [tuple(setting.values()) for setting in proposed] == [
        (0.01, 0.5), (0.01, 1.0), (0.01, 2.0), (0.1, 0.5), (0.1, 1.0), (0.1, 2.0)
    ]  # fmt: skip
    assert all(list(setting) == list(grid) for setting in proposed)
    assert propose(asked, 0, [(setting, 1.0) for setting in proposed[:4]]) == proposed[4:]
