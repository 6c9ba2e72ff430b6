"""Figures of the most certain rows: which are drawn, and that their marks are the means."""

import numpy as np
import pandas as pd
import pytest

from bdl.registry import Label
from bdl.reports import compare
from bdl.reports.certainty import orders, selective_drawings, selective_figure

METRICS = [
    Label(text, name, {"kept": kept, "by": by})
    for text, name, kept, by in [
        ("accuracy", "accuracy", 1.0, "entropy"),
        ("accuracy_0.5", "accuracy", 0.5, "entropy"),
        ("accuracy_0.8", "accuracy", 0.8, "entropy"),
        ("accuracy_0.5_disagreement", "accuracy", 0.5, "disagreement"),
        ("f1_0.5", "f1", 0.5, "entropy"),
    ]
]
SCORES = {"accuracy": 0.8, "accuracy_0.5": 0.99, "accuracy_0.8": 0.9, "accuracy_0.5_disagreement": 0.97, "f1_0.5": 0.9}


@pytest.fixture
def drawn(make_benchmark, make_trials):
    scores = {name: [value - 0.01, value + 0.01] for name, value in SCORES.items()}
    benchmark = make_benchmark(datasets=["eyes"], entries={"vifa": {}}, metrics=METRICS, papers=[])
    return benchmark, compare(benchmark, pd.concat([make_trials("eyes", "vifa", [1.0, 1.0], **scores)]))


def test_a_score_with_one_share_has_no_figure(drawn, make_benchmark):
    assert list(selective_drawings(*drawn)) == ["selective-accuracy"]
    few = make_benchmark(datasets=["eyes"], entries={"vifa": {}}, metrics=METRICS[:1], papers=[])
    assert selective_drawings(few, drawn[1]) == {}


def test_means_are_drawn_along_the_share_for_each_order(drawn):
    means = [cell for cell in drawn[1] if cell.statistic == "mean"]
    figure = selective_figure(drawn[0], "accuracy", orders(METRICS)["accuracy"], means)
    by_entropy, by_disagreement = figure.axes
    assert by_entropy.get_title(loc="left") == "eyes, by entropy"
    expected = [[0.5, 0.99], [0.8, 0.9], [1, 0.8]]
    np.testing.assert_allclose(by_entropy.containers[0].lines[0].get_xydata(), expected)
    np.testing.assert_allclose(by_disagreement.containers[0].lines[0].get_xydata(), [[0.5, 0.97], [1, 0.8]])
