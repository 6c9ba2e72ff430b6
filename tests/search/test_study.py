"""Settings are those that numpy's legacy generator draws, as in the code that the papers used."""

from typing import NamedTuple

import numpy as np
import pytest

from bdl.search import SAMPLERS, Study


class Between(NamedTuple):
    low: float
    high: float
    scale: str = "log"


SPACE = {
    "learning_rate": Between(1e-3, 1e-2),
    "prior_precision": Between(1e-2, 10),
    "noise_precision": Between(1e-2, 1),
}
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
    for setting in Study(space, "random", seed).ask(30):
        expected = {
            name: np.exp(draws.uniform(np.log(low), np.log(high))) if scale == "log" else draws.uniform(low, high)
            for name, (low, high, scale) in space.items()
        }
        assert list(setting) == list(space)
        assert setting == pytest.approx(expected, rel=1e-12)


def test_the_first_settings_stay_what_they_are():
    for setting, pinned in zip(Study(SPACE, "random", 0).ask(2), PINNED, strict=True):
        assert setting == pytest.approx(pinned, rel=1e-12)


def test_another_order_of_the_space_gives_other_settings():
    turned = dict(reversed(SPACE.items()))
    assert Study(turned, "random", 0).ask(1)[0]["learning_rate"] != pytest.approx(PINNED[0]["learning_rate"], rel=1e-3)


def test_random_settings_heed_no_score():
    """Asked in pieces and told good scores, bad ones and failures, the sampler goes on as before."""
    study = Study(SPACE, "random", 3)
    pieces = study.ask(2)
    study.tell([float("nan"), float("inf")])
    pieces += study.ask(1)
    study.tell([0.5])
    pieces += study.ask(2)
    assert pieces == Study(SPACE, "random", 3).ask(5)


def test_scores_belong_to_the_settings_asked_for_last():
    study = Study(SPACE, "random", 0)
    study.ask(2)
    with pytest.raises(ValueError, match="zip"):
        study.tell([1.0])


def test_the_sampler_of_the_papers_is_there():
    assert "random" in SAMPLERS
