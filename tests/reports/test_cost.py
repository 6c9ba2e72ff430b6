"""Figures of distances against durations."""

from math import exp

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import same_color

from bdl.reports import compare, cost_figures
from bdl.reports.cost import GAP, LINE, _figure, _floor, _prices, _spread

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
    return _figure(benchmark, "sym_kl", _prices(cells, "sym_kl", "runtime"))


def test_files(drawn, tmp_path):
    """One figure a distance, none of other metrics; the same bytes whatever the user's settings."""
    paths = cost_figures(*drawn, tmp_path / "a")
    assert [path.name for path in paths] == ["uci-nn-sym_kl-cost.png", "uci-nn-sym_kl-cost.pdf"]
    with mpl.rc_context({"font.size": 30, "axes.grid": True}):
        again = cost_figures(*drawn, tmp_path / "b")
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]


def test_there_is_nothing_to_draw_without_a_distance_or_a_duration(make_benchmark, make_trials, tmp_path):
    rows = make_trials("energy", "vifa-nn", [1.0, 2.0], sym_kl=[1.0, 2.0])
    for metrics in (["sym_kl", "nmll"], ["nmll", "runtime"]):
        benchmark = make_benchmark(metrics=metrics, papers=[])
        assert cost_figures(benchmark, compare(benchmark, rows), tmp_path) == []
    benchmark = make_benchmark(metrics=["sym_kl", "runtime"], papers=[])
    assert cost_figures(benchmark, compare(benchmark, rows.assign(status="failed")), tmp_path) == []


def test_marks_have_their_places_and_bars(drawn):
    """Means of 300 and 20 nats after 30 and 60 seconds; standard errors are a tenth, drawn on the logarithm."""
    energy, yacht = draw(*drawn).axes
    assert [panel.get_title(loc="left") for panel in (energy, yacht)] == ["energy", "yacht"]
    assert {(panel.get_xscale(), panel.get_yscale()) for panel in (energy, yacht)} == {("log", "log")}
    marks = [container.lines[0].get_xydata()[0] for container in energy.containers]
    np.testing.assert_allclose(marks, [[30, 300], [60, 20], [0.6, 2]], rtol=1e-12)
    across, along = (bar.get_segments()[0] for bar in energy.containers[0].lines[2])
    np.testing.assert_allclose(across[:, 0], [30 * exp(-0.1), 30 * exp(0.1)], rtol=1e-12)
    np.testing.assert_allclose(along[:, 1], [300 * exp(-0.1), 300 * exp(0.1)], rtol=1e-12)
    assert [text.get_text() for text in energy.texts] == ENTRIES
    assert same_color(energy.texts[0].get_color(), energy.containers[0].lines[0].get_color())


def test_a_distance_of_zero_stands_at_the_edge(drawn):
    yacht = draw(*drawn).axes[1]
    assert len(yacht.containers) == 2
    (edge,) = [line for line in yacht.lines if line.get_marker() == "v" and line.get_xdata()[0] == pytest.approx(0.6)]
    low, high = yacht.get_ylim()
    assert low < edge.get_ydata()[0] < 20
    assert high > 300
    assert low > 20 / 10, "it does not stretch the axis"
    assert yacht.texts[2].get_text() == "exact 0"


@pytest.mark.parametrize(
    ("distances", "floor"),
    [
        ([1, 20, 300], 1),
        ([1e-9, 20, 300], 20),
        ([0, -1e-12, 20], 20),
        ([1e-12, 1e-9, 20, 30], 20),
        ([1e-12, 1e-7, 20, 30], 20),
        ([1, 20, 300, 1e20], 1),
        ([0], 1),
        ([GAP, 1], 1),
    ],
)
def test_what_is_too_far_below_to_be_on_the_axis(distances, floor):
    assert _floor(distances) == floor


def test_labels_that_would_overlap_stand_apart(make_benchmark, make_trials):
    """Eight marks at one place and one elsewhere: the eight are in a column in their order, a line apart."""
    names = [f"entry-{i}" for i in range(9)]
    values = [10 + 0.001 * i for i in range(8)] + [1000.0]
    rows = [
        make_trials("energy", name, [1.0, 1.0], sym_kl=[value] * 2, runtime=[1.0] * 2)
        for name, value in zip(names, values, strict=True)
    ]
    benchmark = make_benchmark(
        datasets=["energy"], entries=dict.fromkeys(names), metrics=["sym_kl", "runtime"], papers=[]
    )
    (panel,) = draw(benchmark, compare(benchmark, pd.concat(rows))).axes
    *eight, alone = [text.get_position() for text in panel.texts]
    assert len({x for x, _ in eight}) == 1
    assert np.diff([y for _, y in eight]) == pytest.approx(LINE)
    assert [text.arrow_patch is not None for text in panel.texts[:8]] == [True] * 8
    assert alone[1] == pytest.approx(panel.texts[8].xy[1])


def test_heights_move_as_little_as_they_can():
    assert _spread([0.1, 0.5]) == [0.1, 0.5]
    np.testing.assert_allclose(_spread([0.5, 0.5]), [0.5 - LINE / 2, 0.5 + LINE / 2])
    moved = _spread([0.5, 0.51, 0.52, 0.52 + 1.4 * LINE])
    np.testing.assert_allclose(np.diff(moved), LINE)
    assert np.mean(moved) == pytest.approx(np.mean([0.5, 0.51, 0.52, 0.52 + 1.4 * LINE]))
    assert max(_spread([0.99, 1.0])) == 1
