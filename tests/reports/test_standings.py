"""Ranks, with p and critical differences by hand, and scores against what they cost."""

import math
import sys
from math import exp
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from bdl.errors import InputError
from bdl.reports.comparison import compare_with_papers
from bdl.reports.method_styles import entry_styles
from bdl.reports.standings import (
    cost_drawings,
    distance_drawings,
    rank_drawings,
    rank_entries,
    rank_section,
)

from .conftest import legend, make_benchmark, make_paired, make_trials, texts, titles


def cells_of(errors, sweep={}):
    """Cells of entries a to c with one error each, of which less is better: a line a data set and point of a sweep."""
    count = len(errors) // math.prod(map(len, sweep.values()))
    datasets, entries = [f"set{i}" for i in range(count)], dict.fromkeys("abc"[: len(errors[0])])
    benchmark = make_benchmark(sweep, datasets=datasets, entries=entries, papers=[])
    cells = zip(benchmark.cells, np.ravel(errors), strict=True)
    rows = [
        make_trials(dataset, entry, [value]).assign(**point.texts)
        for (dataset, entry, point), value in cells
    ]
    return compare_with_papers(benchmark, pd.concat(rows))


@pytest.mark.parametrize(
    "errors",
    [
        [[1.0, 2.0]] * 5,
        [[1.0, 2.0, 3.0]],
        [
            [1.0, 2.0, 3.0],
            [1.0, 2.0, np.nan],
            [1.0, 2.0, np.nan],
        ],  # two of three are on all data sets
    ],
)
def test_too_few_are_not_ranked(errors):
    assert rank_entries(cells_of(errors), "nmll") is None


def test_without_the_library_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scikit_posthocs", None)
    with pytest.raises(InputError, match=r"pip install 'bdl-bench\[ranks\]'"):
        rank_entries(cells_of([[1.0, 2.0, 3.0]] * 2), "nmll")


@pytest.mark.parametrize(
    ("places", "chi", "apart"),
    [(12, 24, [["b", "c"], ["a", "c"], ["a", "b"]]), (4, 8, [["c"], [], ["a"]])],
)
def test_known_answer_of_ranks(places, chi, apart):
    """Ranks 1, 2, 3 everywhere: chi^2 = 12 N / (k (k + 1)) (1 + 4 + 9 - k (k + 1)^2 / 4) = 2 N, with 2 degrees.

    The critical difference is 2.343 sqrt(k (k + 1) / (6 N)): 0.957 for 12 data sets, 1.657 for 4.
    """
    pytest.importorskip("scikit_posthocs")
    ranks = rank_entries(cells_of([[1.0, 2.0, 3.0]] * places), "rmse")
    assert ranks.n_datasets == places
    assert ranks.p == pytest.approx(exp(-chi / 2))
    assert [ranks.distinguishable_from(name) for name in "abc"] == apart
    assert rank_section(ranks).rows[0] == ("a", "1.00", ", ".join(apart[0]))
    drawings = rank_drawings([ranks])
    assert list(drawings) == ["rmse-ranks"]
    figure = drawings["rmse-ranks"]()
    assert f"average rank over {places} data sets" in figure.get_suptitle()
    colours = {to_hex(text.get_color()) for text in figure.axes[0].texts}
    assert colours == {look["color"] for look in entry_styles("abc").values()}


def test_ties_share_their_ranks():
    pytest.importorskip("scikit_posthocs")
    ranks = rank_entries(cells_of([[1.0, 1.0, 2.0], [3.0, 2.0, 1.0]]), "nmll")
    assert ranks.means == {"b": 1.75, "c": 2.0, "a": 2.25}


def test_points_of_a_sweep_are_no_data_sets(monkeypatch):
    """Three widths on one data set rank nothing.

    On two data sets, the averages over the widths are ranked.

    a is best at most widths, but b is on average: 1, 1 and 10 beside 3, 3 and 3. Over two data
    sets chi^2 is 2 N = 4.
    """
    posthocs = SimpleNamespace(
        posthoc_nemenyi_friedman=lambda ranked: pd.DataFrame(1.0, ranked.columns, ranked.columns)
    )
    monkeypatch.setitem(sys.modules, "scikit_posthocs", posthocs)
    errors, sweep = (
        [[1.0, 3.0, 9.0], [1.0, 3.0, 9.0], [10.0, 3.0, 9.0]],
        {"model.hidden": ["[1]", "[2]", "[3]"]},
    )
    assert rank_entries(cells_of(errors, sweep), "nmll") is None
    ranks = rank_entries(cells_of(2 * errors, sweep), "nmll")
    assert ranks.n_datasets == 2
    assert ranks.means == {"b": 1.0, "a": 2.0, "c": 3.0}
    assert ranks.p == pytest.approx(exp(-2))


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
