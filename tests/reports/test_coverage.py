"""Figures of calibration: where they are drawn, and that their marks are mean coverages at the levels."""

import numpy as np
import pandas as pd
import pytest

from bdl.registry import Label
from bdl.reports import compare
from bdl.reports.certainty import coverage_drawings

LEVELS = [("coverage_0.95", 0.95), ("coverage", 0.9), ("coverage_0.5", 0.5)]
METRICS = [Label(text, "coverage", {"level": level}) for text, level in LEVELS]
SHARES = {"vifa": (0.9, 0.8, 0.3), "swag": (1.0, 1.0, 0.7)}


@pytest.fixture
def cells(make_benchmark, make_trials):
    def made(metrics):
        benchmark = make_benchmark(
            datasets=["yacht", "wine"], entries={name: {} for name in SHARES}, metrics=metrics, papers=[]
        )
        rows = [
            make_trials(dataset, entry, [1.0, 1.0], **{name: [share - 0.05, share + 0.05] for name, share in named})
            for dataset in benchmark.datasets
            for entry, shares in SHARES.items()
            for named in (list(zip(metrics, shares, strict=False)),)
        ]
        return benchmark, compare(benchmark, pd.concat(rows))

    return made


def test_one_level_is_no_curve(cells):
    assert coverage_drawings(*cells(METRICS[:1])) == {}
    assert list(coverage_drawings(*cells(METRICS))) == ["calibration"]


def test_means_stand_at_their_levels_in_order(cells):
    figure = coverage_drawings(*cells(METRICS))["calibration"]()
    assert [panel.get_title(loc="left") for panel in figure.axes] == ["yacht", "wine"]
    for panel in figure.axes:
        for drawn, shares in zip(panel.containers, SHARES.values(), strict=True):
            expected = sorted((level, share) for (_, level), share in zip(LEVELS, shares, strict=True))
            np.testing.assert_allclose(drawn.lines[0].get_xydata(), expected)
        np.testing.assert_array_equal(panel.lines[0].get_xydata(), [[0, 0], [1, 1]])
