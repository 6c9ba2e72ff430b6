"""Figures of distances against durations."""

from math import exp

import numpy as np
import pandas as pd
import pytest

from bdl.reports import compare
from bdl.reports.standings import cost_drawings, distance_drawings

ENTRIES = ["slang-1", "slang-10", "exact"]


@pytest.fixture
def drawn(make_benchmark, make_trials):
    """Benchmark and cells on two data sets; on yacht the last entry has a distance of zero."""
    rows = [
        make_trials(dataset, entry, [1.0, 1.0], sym_kl=[0.9 * kl, 1.1 * kl], runtime=[0.9 * time, 1.1 * time])
        for dataset, last in (("energy", 2.0), ("yacht", 0.0))
        for entry, kl, time in zip(ENTRIES, (300.0, 20.0, last), (0.5, 1.0, 0.01), strict=True)
    ]
    benchmark = make_benchmark(entries=dict.fromkeys(ENTRIES), metrics=["sym_kl", "nmll", "runtime"], papers=[])
    return benchmark, compare(benchmark, pd.concat(rows))


def draw(benchmark, cells):
    return cost_drawings(benchmark, cells)["sym_kl-cost"]()


def test_a_figure_for_each_distance_and_none_of_other_metrics(drawn):
    assert list(cost_drawings(*drawn)) == ["sym_kl-cost"]


def test_with_a_baseline_the_first_score_of_predictions_is_drawn(make_benchmark, make_trials):
    """Means of -1 and 2 nats with standard errors of 0.5, on a linear axis, as scores may be negative."""
    rows = [
        make_trials("energy", entry, [nmll - 0.5, nmll + 0.5], rmse=[1.0, 1.0], runtime=[1.0, 1.0])
        for entry, nmll in (("vifa-lr", 2.0), ("vifa-nn", -1.0))
    ]
    benchmark = make_benchmark(baseline="vifa-lr", papers=[])
    found = cost_drawings(benchmark, compare(benchmark, pd.concat(rows)))
    assert list(found) == ["nmll-cost"]
    (panel,) = found["nmll-cost"]().axes
    assert (panel.get_xscale(), panel.get_yscale()) == ("log", "linear")
    marks = [container.lines[0].get_xydata()[0] for container in panel.containers]
    np.testing.assert_allclose(marks, [[60, 2], [60, -1]], rtol=1e-12)
    _, along = (bar.get_segments()[0] for bar in panel.containers[1].lines[2])
    np.testing.assert_allclose(along[:, 1], [-1.5, -0.5], rtol=1e-12)


def test_there_is_nothing_to_draw_without_a_distance_or_a_duration(make_benchmark, make_trials):
    rows = make_trials("energy", "vifa-nn", [1.0, 2.0], sym_kl=[1.0, 2.0])
    for metrics in (["sym_kl", "nmll"],):
        benchmark = make_benchmark(metrics=metrics, papers=[])
        assert cost_drawings(benchmark, compare(benchmark, rows)) == {}
    benchmark = make_benchmark(metrics=["sym_kl", "runtime"], papers=[])
    assert cost_drawings(benchmark, compare(benchmark, rows.assign(status="failed"))) == {}


def test_marks_have_their_places_and_bars(drawn):
    """Means of 300 and 20 nats after 30 and 60 seconds; standard errors are a tenth, drawn on the logarithm."""
    figure = draw(*drawn)
    energy, yacht = figure.axes
    assert [panel.get_title(loc="left") for panel in (energy, yacht)] == ["energy", "yacht"]
    assert {(panel.get_xscale(), panel.get_yscale()) for panel in (energy, yacht)} == {("log", "log")}
    marks = [container.lines[0].get_xydata()[0] for container in energy.containers]
    np.testing.assert_allclose(marks, [[30, 300], [60, 20], [0.6, 2]], rtol=1e-12)
    across, along = (bar.get_segments()[0] for bar in energy.containers[0].lines[2])
    np.testing.assert_allclose(across[:, 0], [30 * exp(-0.1), 30 * exp(0.1)], rtol=1e-12)
    np.testing.assert_allclose(along[:, 1], [300 * exp(-0.1), 300 * exp(0.1)], rtol=1e-12)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ENTRIES


def test_a_distance_of_zero_stands_at_the_edge(drawn):
    yacht = draw(*drawn).axes[1]
    edge = yacht.containers[2].lines[0]
    assert edge.get_transform() == yacht.get_xaxis_transform()
    assert edge.get_xdata()[0] == pytest.approx(0.6)
    assert 0 < edge.get_ydata()[0] < 0.1, "of the panel's height"
    low, high = yacht.get_ylim()
    assert high > 300
    assert low > 20 / 10, "it does not stretch the axis"
    assert [text.get_text() for text in yacht.texts] == ["beyond the axis: exact (0)"]


def test_scores_of_predictions_stand_against_the_distance(drawn):
    """Every NMLL is 1, on a linear axis; distances are 300, 20 and 2 nats, and what has none is not drawn."""
    figure = distance_drawings(*drawn)["nmll-distance"]()
    energy, yacht = figure.axes
    assert (energy.get_xscale(), energy.get_yscale()) == ("log", "linear")
    marks = [container.lines[0].get_xydata()[0] for container in energy.containers]
    np.testing.assert_allclose(marks, [[300, 1], [20, 1], [2, 1]], rtol=1e-12)
    assert energy.get_xlabel().startswith("Symmetric KL")
    assert len(yacht.containers) == 2, "a distance of zero has no place on the axis"


@pytest.mark.parametrize("metrics", [["sym_kl", "runtime"], ["nmll", "runtime"]])
def test_without_a_score_or_a_distance_there_is_no_such_figure(make_benchmark, make_trials, metrics):
    rows = make_trials("energy", "vifa-nn", [1.0, 2.0], sym_kl=[1.0, 2.0], runtime=[1.0, 1.0])
    benchmark = make_benchmark(metrics=metrics, papers=[])
    assert distance_drawings(benchmark, compare(benchmark, rows)) == {}
