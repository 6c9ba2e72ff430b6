"""Figures of scores against what they cost."""

from math import exp

import numpy as np
import pandas as pd
import pytest

from bdl.reports.comparison import compare_with_papers
from bdl.reports.cost_figures import (
    cost_drawings,
    distance_drawings,
)

from .conftest import legend, make_benchmark, make_paired, make_trials, texts, titles

ENTRIES = ["slang-1", "slang-10", "exact"]


@pytest.fixture
def priced():
    """Benchmark and cells on two data sets; on yacht the last entry has a distance of zero."""
    rows = [
        make_trials(
            dataset,
            entry,
            [1.0, 1.0],
            sym_kl=[0.9 * kl, 1.1 * kl],
            runtime=[0.9 * time, 1.1 * time],
        )
        for dataset, last in (("energy", 2.0), ("yacht", 0.0))
        for entry, kl, time in zip(ENTRIES, (300.0, 20.0, last), (0.5, 1.0, 0.01), strict=True)
    ]
    benchmark = make_benchmark(
        entries=dict.fromkeys(ENTRIES), metrics=["sym_kl", "nmll", "runtime"], papers=[]
    )
    return benchmark, compare_with_papers(benchmark, pd.concat(rows))


def marks_of(panel):
    return [container.lines[0].get_xydata()[0] for container in panel.containers]


def test_distances_stand_against_seconds(priced):
    """Means of 300 and 20 nats after 30 and 60 seconds.

    Standard errors are a tenth, drawn on the logarithm.
    """
    drawings = cost_drawings(*priced)
    assert list(drawings) == ["sym_kl-cost"]
    figure = drawings["sym_kl-cost"]()
    energy, yacht = figure.axes
    assert titles(figure) == ["energy", "yacht"]
    assert {(panel.get_xscale(), panel.get_yscale()) for panel in (energy, yacht)} == {
        ("log", "log")
    }
    np.testing.assert_allclose(marks_of(energy), [[30, 300], [60, 20], [0.6, 2]], rtol=1e-12)
    across, along = (bar.get_segments()[0] for bar in energy.containers[0].lines[2])
    np.testing.assert_allclose(across[:, 0], [30 * exp(-0.1), 30 * exp(0.1)], rtol=1e-12)
    np.testing.assert_allclose(along[:, 1], [300 * exp(-0.1), 300 * exp(0.1)], rtol=1e-12)
    assert legend(figure) == ENTRIES
    edge = yacht.containers[2].lines[0]
    assert edge.get_transform() == yacht.get_xaxis_transform()
    assert edge.get_xdata()[0] == pytest.approx(0.6)
    assert 0 < edge.get_ydata()[0] < 0.1, (
        "a distance of zero stands at the edge, by the panel's height"
    )
    low, high = yacht.get_ylim()
    assert high > 300
    assert low > 20 / 10, "it does not stretch the axis"
    assert texts(yacht.texts) == ["beyond the axis: exact (0.00)"]


def test_scores_of_predictions_stand_against_the_distance(priced):
    """Every NMLL is 1, on a linear axis.

    Distances are 300, 20 and 2 nats, and what has none is not drawn.
    """
    energy, yacht = distance_drawings(*priced)["nmll-distance"]().axes
    assert (energy.get_xscale(), energy.get_yscale()) == ("log", "linear")
    np.testing.assert_allclose(marks_of(energy), [[300, 1], [20, 1], [2, 1]], rtol=1e-12)
    assert energy.get_xlabel().startswith("Symmetric KL")
    assert len(yacht.containers) == 2, "a distance of zero has no place on the axis"


def test_with_a_baseline_the_first_score_of_predictions_is_drawn():
    """Means of -1 and 2 nats with standard errors of 0.5, on a linear axis, as scores may be negative."""
    rows = [
        make_trials("energy", entry, [nmll - 0.5, nmll + 0.5], rmse=[1.0, 1.0], runtime=[1.0, 1.0])
        for entry, nmll in (("vifa-lr", 2.0), ("vifa-nn", -1.0))
    ]
    benchmark = make_paired(papers=[])
    drawings = cost_drawings(benchmark, compare_with_papers(benchmark, pd.concat(rows)))
    assert list(drawings) == ["nmll-cost"]
    (panel,) = drawings["nmll-cost"]().axes
    assert (panel.get_xscale(), panel.get_yscale()) == ("log", "linear")
    np.testing.assert_allclose(marks_of(panel), [[60, 2], [60, -1]], rtol=1e-12)
    _, along = (bar.get_segments()[0] for bar in panel.containers[1].lines[2])
    np.testing.assert_allclose(along[:, 1], [-1.5, -0.5], rtol=1e-12)


@pytest.mark.parametrize(
    ("draw", "metrics", "status"),
    [
        (cost_drawings, ["sym_kl", "nmll"], "ok"),
        (cost_drawings, ["sym_kl", "runtime"], "failed"),
        (distance_drawings, ["sym_kl", "runtime"], "ok"),
        (distance_drawings, ["nmll", "runtime"], "ok"),
    ],
)
def test_there_is_nothing_to_draw_without_both_numbers(draw, metrics, status):
    rows = make_trials("energy", "vifa-nn", [1.0, 2.0], [status] * 2, sym_kl=[1.0, 2.0])
    benchmark = make_benchmark(metrics=metrics, papers=[])
    assert draw(benchmark, compare_with_papers(benchmark, rows)) == {}
