"""When an entry counts as converged, and that scores are read as they were written."""

import pandas as pd
import pytest
from convergence import FACTORS, Score, chosen_hyper, has_converged, read_scores, write_scores


def scores(once, twice, error=0.0):
    means = (3.0, 2.5, once, twice)
    return [
        Score("yacht", "vifa", factor, "training", mean, error, 0, 1.0)
        for factor, mean in zip(FACTORS, means, strict=True)
    ]


@pytest.mark.parametrize(
    ("once", "twice", "error", "converged"),
    [
        (2.0, 1.96, 0.0, True),  # less than the margin of 0.05
        (2.0, 1.94, 0.0, False),
        (2.0, 1.8, 0.1, True),  # less than two standard errors of the difference, 0.28
        (2.0, 1.7, 0.1, False),
        (2.0, 2.5, 0.0, True),
        (2.0, None, 0.0, False),
    ],
)
def test_twice_the_updates_gain_less_than_the_margin_or_noise(once, twice, error, converged):
    assert has_converged(scores(once, twice, error)) is converged


def test_scores_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "convergence.json"
    assert read_scores(path) == []
    write_scores(path, scores(2.0, None))
    assert read_scores(path) == scores(2.0, None)


def test_settings_are_the_medians_of_what_searches_chose():
    rows = pd.DataFrame(
        {
            "dataset": ["yacht", "yacht", "yacht", "boston"],
            "entry": ["vifa"] * 4,
            "hyper_learning_rate": [0.01, 0.03, 0.02, 1.0],
            "hyper_dropout_rate": [float("nan")] * 4,
        }
    )
    assert chosen_hyper(rows, "yacht", "vifa") == {"learning_rate": 0.02}
    assert chosen_hyper(rows, "energy", "vifa") == {}
    assert chosen_hyper(None, "yacht", "vifa") == {}
