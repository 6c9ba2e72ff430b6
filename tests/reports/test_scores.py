"""Scores and their differences from the baseline, a row an entry, or along the axis of a sweep."""

import json

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import same_color
from scipy import stats

from bdl.metrics import MetricInfo
from bdl.reports import scores
from bdl.reports.comparison import compare_with_papers
from bdl.reports.drawing import OUR_MARK, PAPER_MARK
from bdl.reports.layout import metric_sections
from bdl.reports.method_styles import entry_styles
from bdl.reports.paired import paired_differences
from bdl.reports.render import render
from bdl.reports.scores import VERDICT_MARKS, paired_drawings, score_drawings

from .conftest import (
    columns,
    legend,
    make_benchmark,
    make_paired,
    make_trials,
    of,
    shuffled,
    texts,
    titles,
)

WIDTHS = ["[50]", "[20]", "[100]"]


def draw(benchmark, cells, metric="nmll"):
    return score_drawings(benchmark, cells)[metric]()


def test_what_is_drawn():
    """Everything of one entry on yacht failed."""
    entries = {"vifa-lr": [2.5, 2.7], "vifa-nn": [2.4, 2.6]}
    rows = [
        make_trials(dataset, entry, own)
        for dataset in ("energy", "yacht")
        for entry, own in entries.items()
    ]
    benchmark = make_benchmark()
    cells = compare_with_papers(benchmark, pd.concat([*rows[:3], rows[3].assign(status="failed")]))
    figure = draw(benchmark, cells)
    energy, yacht = figure.axes
    assert titles(figure) == ["energy", "yacht"]
    assert texts(energy.get_yticklabels()) == ["vifa-lr", "vifa-nn"]
    for panel, dataset in ((energy, "energy"), (yacht, "yacht")):
        for style, field in ((OUR_MARK, "ours"), (PAPER_MARK, "paper")):
            marks = [line for line in panel.lines if line.get_marker() == style["marker"]]
            values = [getattr(cell, field) for cell in of(cells, dataset=dataset)]
            assert [line.get_xdata()[0] for line in marks] == [
                value for value in values if value is not None
            ]
    assert texts(yacht.texts) == ["failed"]
    assert (
        figure.get_suptitle()
        == "UCI neural networks\nNMLL (nats per test point), ↓ lower is better"
    )
    assert legend(figure) == ["ours, mean ± SE", "paper, mean ± SE as printed"]
    assert energy.get_xscale() == "linear"
    assert draw(benchmark, cells, "runtime").axes[0].get_xscale() == "log", (
        "0.5 against 22 minutes"
    )


def test_entries_have_no_place_where_they_do_not_run():
    """Without a printed number marks are on the line of their name."""
    pairs = [("energy", "vifa-lr"), ("yacht", "vifa-lr"), ("yacht", "vifa-nn")]
    benchmark = make_benchmark(pairs=pairs, papers=[])
    figure = draw(
        benchmark,
        compare_with_papers(
            benchmark, pd.concat([make_trials(*pair, [2.5, 2.6]) for pair in pairs])
        ),
    )
    energy, yacht = figure.axes
    assert texts(energy.get_yticklabels()) == ["vifa-lr"]
    assert texts(yacht.get_yticklabels()) == ["vifa-lr", "vifa-nn"]
    assert (energy.get_ylim(), yacht.get_ylim()) == ((0.5, -0.5), (1.5, -0.5))
    assert energy.containers[0].lines[0].get_ydata() == [0]
    assert legend(figure) == ["ours, mean ± SE"]


def test_one_entry_does_not_stretch_the_axis():
    """The mean of ours is 4e17 where three others are below 3: an arrow, its number, and no mark."""
    rows = pd.concat(
        [
            make_trials("energy", "vifa-lr", [2.4, 2.6]),
            make_trials("energy", "vifa-nn", [4e17, 4e17]),
        ]
    )
    benchmark = make_benchmark(datasets=["energy"])
    (panel,) = draw(benchmark, compare_with_papers(benchmark, rows)).axes
    assert panel.get_xscale() == "linear"
    assert np.max(panel.get_xlim()) < 3
    assert texts(panel.texts) == ["4.00e17 →"]
    assert len(panel.containers) == 3


@pytest.fixture
def blown(scores):
    """Differences and figure: one entry blows up on one split of energy.

    Yacht has 18 of 20 pairs, boston none.
    """
    base, better = scores
    values = {
        "vifa-lr": base,
        "better": better,
        "worse": 2 * base - better,
        "gone": np.where(np.arange(20), base, 1e6),
    }
    rows = [make_trials("energy", entry, found) for entry, found in values.items()]
    rows += [
        make_trials("yacht", entry, found[: 20 if entry == "better" else 18])
        for entry, found in values.items()
    ]
    benchmark = make_paired(
        datasets=["energy", "yacht", "boston"], entries=dict.fromkeys(values), metrics=["nmll"]
    )
    rows = pd.concat([part if i != 7 else part[part["nmll"] < 1e6] for i, part in enumerate(rows)])
    found = paired_differences(benchmark, rows, {})
    return found, paired_drawings(benchmark, found)["nmll-paired"]


def test_differences_are_drawn_by_their_verdicts(blown):
    """The entry that blew up leaves the others readable."""
    differences, figure = blown[0], blown[1]()
    energy, yacht = figure.axes
    assert titles(figure) == ["energy", "yacht"]
    assert texts(energy.get_yticklabels()) == ["better", "worse", "gone"]
    for panel, dataset in ((energy, "energy"), (yacht, "yacht")):
        here = [
            difference
            for difference in differences
            if difference.dataset == dataset and difference.mean < 1e4
        ]
        assert [container.lines[0].get_xdata()[0] for container in panel.containers] == [
            difference.mean for difference in here
        ]
        for container, difference in zip(panel.containers, here, strict=True):
            assert same_color(
                container.lines[0].get_color(), VERDICT_MARKS[difference.verdict]["color"]
            )
            ends = container.lines[2][0].get_segments()[0][:, 0]
            np.testing.assert_allclose(ends, [difference.low, difference.high], rtol=1e-12)
    better, worse, gone = differences[:3]
    assert [difference.verdict for difference in differences[:3]] == [
        "better",
        "worse",
        "undecided",
    ]
    assert texts(yacht.texts) == ["n = 18", "n = 18", "n = 17"]
    assert figure.get_suptitle().endswith(
        "↓ lower is better\nmean difference from vifa-lr over 20 splits"
    )
    assert legend(figure) == [
        "left: better than vifa-lr",
        "undecided: 95 % interval holds 0, a fit failed, or n < 3",
        "right: worse than vifa-lr",
    ]
    assert (energy.get_xscale(), yacht.get_xscale()) == ("linear", "linear")
    low, high = energy.get_xlim()
    assert low < better.low < 0 < worse.high < high
    assert high - low < 2 * (worse.high - better.low)
    assert gone.mean > 1e4
    assert texts(energy.texts) == ["50000 →"]


def test_higher_is_better_turns_the_sides_round(monkeypatch, blown):
    monkeypatch.setattr(
        scores,
        "get_metric_info",
        lambda label: MetricInfo("Score", "points", "higher", "predictive"),
    )
    left, _, right = legend(blown[1]())
    assert (left, right) == ("left: worse than vifa-lr", "right: better than vifa-lr")


def test_nothing_to_pair_draws_nothing():
    differences = paired_differences(
        make_paired(), make_trials("energy", "vifa-nn", [1.0, 2.0]), {}
    )
    assert paired_drawings(make_paired(), differences) == {}


def test_differences_of_a_sweep_run_along_its_axis(swept):
    benchmark, rows = swept
    differences = paired_differences(benchmark, rows, {})
    figure = paired_drawings(benchmark, differences)["nmll-paired"]()
    energy, yacht = figure.axes
    (line,) = energy.containers
    np.testing.assert_array_equal(
        line.lines[0].get_xydata(), [[20, differences[0].mean], [50, differences[1].mean]]
    )
    ends = [segment[:, 1] for segment in line.lines[2][0].get_segments()]
    np.testing.assert_allclose(
        ends, [(difference.low, difference.high) for difference in differences[:2]], rtol=1e-12
    )
    assert np.isnan(yacht.containers[0].lines[0].get_ydata()[1])
    for panel in figure.axes:
        assert panel.get_yscale() == "linear"
        assert panel.get_ylim()[0] < 0 < panel.get_ylim()[1]
        assert panel.lines[0].get_ydata() == [0, 0]
    assert figure.get_suptitle().endswith(
        "mean difference from vifa-lr over 20 splits, 95 % intervals"
    )


@pytest.fixture
def values():
    """Scores by data set, point and entry, (2, 3, 2, 8 splits)."""
    centres = np.array(
        [[[2.6, 2.5], [2.9, 2.7], [2.4, 2.45]], [[1.2, 1.1], [1.5, 1.3], [1.0, 0.9]]]
    )
    return centres[..., None] + np.random.default_rng(0).normal(0, 0.1, (2, 3, 2, 8))


@pytest.fixture
def widths(values):
    """A sweep of widths with two entries on two data sets, of which the papers print both, and its cells."""
    benchmark = make_benchmark({"model.hidden": WIDTHS}, metrics=["nmll"])
    rows = [
        make_trials(dataset, entry, own).assign(**point.texts)
        for (dataset, entry, point), own in zip(
            benchmark.cells, values.reshape(-1, 8), strict=True
        )
    ]
    return benchmark, compare_with_papers(benchmark, shuffled(*rows))


def test_cells_have_the_trials_of_their_point_and_nothing_printed(widths, values):
    cells = of(widths[1])
    places = [
        (dataset, text, entry)
        for dataset in ("energy", "yacht")
        for text in WIDTHS
        for entry in ("vifa-lr", "vifa-nn")
    ]
    assert [(cell.dataset, cell.point["model.hidden"], cell.method) for cell in cells] == places
    np.testing.assert_allclose([cell.ours for cell in cells], values.mean(-1).ravel(), rtol=1e-13)
    np.testing.assert_allclose(
        [cell.ours_se for cell in cells], stats.sem(values, axis=-1).ravel(), rtol=1e-12
    )
    assert {(cell.n_trials, cell.paper, cell.verdict) for cell in cells} == {
        (8, None, "no paper value")
    }


def test_tables_have_a_column_an_axis(widths):
    _, cells = widths
    (section,) = metric_sections(cells)
    assert columns(section)[:4] == ["Dataset", "model.hidden", "Method", "Mean ± SE"]
    expected = [
        (cell.dataset, cell.point["model.hidden"].strip("[]"), cell.method) for cell in of(cells)
    ]
    assert [row[:3] for row in section.rows] == expected
    assert section.rows[0][3] == f"{cells[0].ours:.2f} ± {cells[0].ours_se:.2f}"
    assert render(cells, "markdown").splitlines()[4].startswith("| energy | 50 | vifa-lr | ")
    assert json.loads(render(cells, "json"))[-1]["point"] == {"model.hidden": "[100]"}
    assert render(cells, "csv").splitlines()[1].endswith(',"{""model.hidden"": ""[50]""}"')
    empty = compare_with_papers(
        make_benchmark({"hyper.prior_precision": ["1.0"]}, metrics=["nmll"]), pd.DataFrame()
    )
    assert r"| Dataset | hyper.prior\_precision | Method |" in render(empty, "markdown")
    assert r"Method & energy prior\_precision = 1 &" in render(empty, "latex")


def line_of(bar):
    """The line of an entry in a panel: name, colour, x and y."""
    return bar.get_label(), bar.lines[0].get_color(), *bar.lines[0].get_xydata().T


def test_lines_run_along_the_numbers_of_the_axis(widths):
    """From the least value to the greatest, whatever the order of the sweep.

    One colour an entry.
    """
    benchmark, cells = widths
    figure = draw(benchmark, cells)
    assert titles(figure) == ["energy", "yacht"]
    for panel in figure.axes:
        for bar in panel.containers:
            entry, color, x, y = line_of(bar)
            own = of(cells, dataset=panel.get_title(loc="left"), method=entry)
            by_width = {cell.point["model.hidden"]: cell for cell in own}
            along = [by_width[text] for text in ("[20]", "[50]", "[100]")]
            np.testing.assert_array_equal(x, [20, 50, 100])
            np.testing.assert_array_equal(y, [cell.ours for cell in along])
            errors = [np.ptp(segment[:, 1]) / 2 for segment in bar.lines[2][0].get_segments()]
            np.testing.assert_allclose(errors, [cell.ours_se for cell in along], rtol=1e-9)
            assert same_color(color, entry_styles([entry])[entry]["color"])
        ticks = dict(zip(panel.get_xticks(), texts(panel.get_xticklabels()), strict=True))
        assert ticks == {50: "50", 20: "20", 100: "100"}
        assert panel.get_xlabel() == "hidden units"
    assert legend(figure) == ["vifa-lr", "vifa-nn"]
    assert figure.get_suptitle().endswith(
        "NMLL (nats per test point), ↓ lower is better, mean ± SE"
    )


def along(sweep, score=lambda point: 2.0, status=lambda point: "ok", **changes):
    """The figure and the cells of a sweep, from a function of the point.

    Of a single axis its texts are enough.
    """
    sweep = sweep if isinstance(sweep, dict) else {"method.rank": sweep}
    benchmark = make_benchmark(sweep, **{"metrics": ["nmll"], "papers": []} | changes)
    rows = [
        make_trials(dataset, entry, score(point.texts) + np.array([-0.1, 0.1]), [status(point.texts)] * 2)
        .assign(**point.texts)
        for dataset, entry, point in benchmark.cells
    ]  # fmt: skip
    cells = of(compare_with_papers(benchmark, pd.concat(rows)))
    return draw(benchmark, cells), cells


def test_values_that_are_no_numbers_stand_side_by_side():
    """In the order of the sweep; one list of two makes the others categories too."""
    figure, _ = along({"model.hidden": ["[50]", "[50,50]", "[20]"]})
    panel, _ = figure.axes
    assert texts(panel.get_xticklabels()) == ["50", "50-50", "20"]
    np.testing.assert_array_equal(line_of(panel.containers[0])[2], [0, 1, 2])
    assert panel.get_xscale() == "linear"


@pytest.mark.parametrize(("second", "scale"), [(5.0, "linear"), (2000.0, "log")])
def test_a_second_axis_makes_panels_a_data_set_a_line_on_one_scale(second, scale):
    """Logarithmic where the line of panels spans a wide range, though none of them does."""
    sweep = {"method.rank": ["1", "2", "5"], "training.dtype": ['"float32"', '"float64"']}
    levels = {'"float32"': 2.0, '"float64"': second}
    figure, cells = along(sweep, lambda point: levels[point["training.dtype"]])
    dtypes = ("float32", "float64")
    assert titles(figure) == [
        f"{dataset}\ndtype = {dtype}" for dataset in ("energy", "yacht") for dtype in dtypes
    ]
    for panel, level in zip(figure.axes, (2, second, 2, second), strict=True):
        for _, _, x, y in map(line_of, panel.containers):
            np.testing.assert_array_equal(x, [1, 2, 5])
            np.testing.assert_allclose(y, level, rtol=1e-12)
    assert [panel.get_subplotspec().rowspan.start for panel in figure.axes] == [0, 0, 1, 1]
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    assert [panel.get_yscale() for panel in figure.axes] == [scale] * 4
    (section,) = metric_sections(cells)
    assert columns(section)[:4] == ["Dataset", "method.rank", "training.dtype", "Method"]
    assert [row[1:3] for row in section.rows[:5:2]] == [
        ("1", "float32"),
        ("1", "float64"),
        ("2", "float32"),
    ]


@pytest.mark.parametrize(
    ("places", "scale"),
    [
        (["1", "2", "4", "8"], "log"),
        (["0.001", "0.01", "0.1"], "log"),
        (["10", "20", "30", "40"], "linear"),
        (["0", "1", "10"], "linear"),
        (["1", "1000"], "linear"),
    ],
)
def test_the_axis_is_logarithmic_where_that_keeps_values_apart(places, scale):
    panel, _ = along(places)[0].axes
    assert panel.get_xscale() == scale
    assert texts(panel.get_xticklabels()) == places
    assert not panel.get_xticks(minor=True).size


def test_a_line_is_broken_where_everything_failed():
    """Not drawn on as if there were something in between."""
    figure, _ = along(
        ["1", "2", "3"], status=lambda point: "failed" if point["method.rank"] == "2" else "ok"
    )
    np.testing.assert_allclose(
        line_of(figure.axes[0].containers[0])[3], [2, np.nan, 2], rtol=1e-12
    )


def test_scores_of_training_rows_lie_below_those_of_new_rows():
    """Dotted, in the colour of their entry, and within the axis; their own figure stays."""
    benchmark = make_benchmark(
        {"model.hidden": WIDTHS}, metrics=["nmll", "nmll_training"], datasets=["energy"]
    )
    rows = [
        make_trials("energy", entry, [value, value + 0.1], nmll_training=[value / 3] * 2).assign(
            **point.texts
        )
        for entry, value in (("vifa-lr", 3.0), ("vifa-nn", 6.0))
        for point in benchmark.points
    ]
    cells = compare_with_papers(benchmark, pd.concat(rows))
    figure = draw(benchmark, cells)
    (panel,) = figure.axes
    assert "dotted: training rows" in figure.get_suptitle()
    dotted = [line for line in panel.lines if line.get_linestyle() == ":" or line.is_dashed()]
    assert [list(line.get_ydata()) for line in dotted] == [[1.0] * 3, [2.0] * 3]
    solid = [bars.lines[0] for bars in panel.containers]
    assert all(
        same_color(a.get_color(), b.get_color()) for a, b in zip(dotted, solid, strict=True)
    )
    assert panel.get_ylim()[0] <= 1
    assert "dotted" not in draw(benchmark, cells, "nmll_training").get_suptitle()
