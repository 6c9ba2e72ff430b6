"""Sweeps as columns of tables and along the horizontal axes of figures."""

import json

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import same_color
from scipy import stats

from bdl.reports import compare
from bdl.reports.figures import Shown, draw_figures
from bdl.reports.layout import sections
from bdl.reports.render import render
from bdl.reports.scores import score_drawings

WIDTHS = ["[50]", "[20]", "[100]"]


@pytest.fixture
def values():
    """Scores by data set, point and entry, (2, 3, 2, 8 splits)."""
    centres = np.array([[[2.6, 2.5], [2.9, 2.7], [2.4, 2.45]], [[1.2, 1.1], [1.5, 1.3], [1.0, 0.9]]])
    return centres[..., None] + np.random.default_rng(0).normal(0, 0.1, (2, 3, 2, 8))


@pytest.fixture
def widths(make_benchmark, make_trials, values):
    """A sweep of widths with two entries on two data sets, of which the papers print both, and its cells."""
    benchmark = make_benchmark({"model.hidden": WIDTHS}, metrics=["nmll"])
    rows = [
        make_trials(dataset, entry, own).assign(**{"model.hidden": text})
        for dataset, by_point in zip(benchmark.datasets, values, strict=True)
        for text, by_entry in zip(WIDTHS, by_point, strict=True)
        for entry, own in zip(benchmark.entries, by_entry, strict=True)
    ]
    shuffled = pd.concat(rows).sample(frac=1, random_state=0)
    return benchmark, compare(benchmark, shuffled)


def means(cells):
    return [cell for cell in cells if cell.statistic == "mean"]


def test_cells_have_the_trials_of_their_point_and_nothing_printed(widths, values):
    _, cells = widths
    found = means(cells)
    assert [(cell.dataset, cell.point["model.hidden"], cell.method) for cell in found] == [
        (dataset, text, entry) for dataset in ("energy", "yacht") for text in WIDTHS for entry in ("vifa-lr", "vifa-nn")
    ]
    np.testing.assert_allclose([cell.ours for cell in found], values.mean(-1).ravel(), rtol=1e-13)
    np.testing.assert_allclose([cell.ours_se for cell in found], stats.sem(values, axis=-1).ravel(), rtol=1e-12)
    assert {(cell.n_trials, cell.paper, cell.verdict) for cell in found} == {(8, None, "no paper value")}


def test_tables_have_a_column_an_axis(widths):
    _, cells = widths
    (section,) = sections(cells)
    assert [title for title, _ in section.columns[:4]] == ["Dataset", "model.hidden", "Method", "Mean ± SE"]
    assert [row[:3] for row in section.rows] == [
        (dataset, text, entry)
        for dataset in ("energy", "yacht")
        for text in ("50", "20", "100")
        for entry in ("vifa-lr", "vifa-nn")
    ]
    assert section.rows[0][3] == f"{cells[0].ours:.2f} ± {cells[0].ours_se:.2f}"
    line = render(cells, "markdown").splitlines()[4]
    assert line.startswith("| energy | 50 | vifa-lr | ")
    assert json.loads(render(cells, "json"))[-1]["point"] == {"model.hidden": "[100]"}
    assert render(cells, "csv").splitlines()[1].endswith(',"{""model.hidden"": ""[50]""}"')


def test_titles_of_columns_are_escaped(make_benchmark):
    benchmark = make_benchmark({"hyper.prior_precision": ["1.0"]}, metrics=["nmll"])
    cells = compare(benchmark, pd.DataFrame())
    assert r"| Dataset | hyper.prior\_precision | Method |" in render(cells, "markdown")
    assert r"Method & energy prior\_precision = 1 &" in render(cells, "latex")


def drawing(benchmark, cells):
    return score_drawings(benchmark, cells)["nmll"]()


def drawn(panel):
    """The line of each entry in a panel: name, colour, x and y."""
    return [(bar.get_label(), bar.lines[0].get_color(), *bar.lines[0].get_xydata().T) for bar in panel.containers]


def test_lines_run_along_the_numbers_of_the_axis(widths):
    """From the least value to the greatest, whatever the order of the sweep; one colour an entry."""
    benchmark, cells = widths
    figure = drawing(benchmark, cells)
    assert [panel.get_title(loc="left") for panel in figure.axes] == ["energy", "yacht"]
    for panel in figure.axes:
        own = [cell for cell in means(cells) if cell.dataset == panel.get_title(loc="left")]
        for entry, color, x, y in drawn(panel):
            np.testing.assert_array_equal(x, [20, 50, 100])
            by_width = {cell.point["model.hidden"]: cell.ours for cell in own if cell.method == entry}
            np.testing.assert_array_equal(y, [by_width["[20]"], by_width["[50]"], by_width["[100]"]])
            assert same_color(color, {"vifa-lr": "#0072b2", "vifa-nn": "#d55e00"}[entry])
        assert dict(zip(panel.get_xticks(), (t.get_text() for t in panel.get_xticklabels()), strict=True)) == {
            50: "50", 20: "20", 100: "100",
        }  # fmt: skip
        assert panel.get_xlabel() == "hidden units"
        segments = panel.containers[0].lines[2][0].get_segments()
        errors = [np.ptp(segment[:, 1]) / 2 for segment in segments]
        expected = {cell.point["model.hidden"]: cell.ours_se for cell in own if cell.method == "vifa-lr"}
        np.testing.assert_allclose(errors, [expected[text] for text in ("[20]", "[50]", "[100]")], rtol=1e-9)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["vifa-lr", "vifa-nn"]
    assert figure.get_suptitle().endswith("NMLL (nats per test point), ↓ lower is better, mean ± SE")


@pytest.fixture
def make_cells(make_benchmark, make_trials):
    """Build a benchmark with a sweep and the means of one metric, from a function of the place in the sweep."""

    def make(sweep, score, status=lambda dataset, entry, point: "ok", **changes):
        benchmark = make_benchmark(sweep, **{"metrics": ["nmll"], "papers": []} | changes)
        rows = [
            make_trials(
                dataset, entry, score(dataset, entry, point.texts) + np.array([-0.1, 0.1]),
                [status(dataset, entry, point.texts)] * 2,
            ).assign(**point.texts)
            for dataset, entry, point in benchmark.cells
        ]  # fmt: skip
        return benchmark, means(compare(benchmark, pd.concat(rows)))

    return make


def test_values_that_are_no_numbers_stand_side_by_side(make_cells):
    """In the order of the sweep; one list of two makes the others categories too."""
    benchmark, cells = make_cells({"model.hidden": ["[50]", "[50,50]", "[20]"]}, lambda *place: 2.0)
    panel = drawing(benchmark, cells).axes[0]
    assert [text.get_text() for text in panel.get_xticklabels()] == ["50", "50-50", "20"]
    np.testing.assert_array_equal(drawn(panel)[0][2], [0, 1, 2])
    assert panel.get_xscale() == "linear"


def test_a_second_axis_makes_panels(make_cells):
    sweep = {"method.rank": ["1", "2", "5"], "training.dtype": ['"float32"', '"float64"']}
    scores = {'"float32"': 2.0, '"float64"': 5.0}
    benchmark, cells = make_cells(sweep, lambda dataset, entry, point: scores[point["training.dtype"]])
    figure = drawing(benchmark, cells)
    assert [panel.get_title(loc="left") for panel in figure.axes] == [
        f"{dataset}  dtype = {dtype}" for dataset in ("energy", "yacht") for dtype in ("float32", "float64")
    ]
    for panel, level in zip(figure.axes, (2, 5, 2, 5), strict=True):
        for _, _, x, y in drawn(panel):
            np.testing.assert_array_equal(x, [1, 2, 5])
            np.testing.assert_allclose(y, level, rtol=1e-12)
    upper, lower = figure.axes[:2], figure.axes[2:]
    assert [panel.get_subplotspec().rowspan.start for panel in figure.axes] == [0, 0, 1, 1], "a data set a line"
    assert upper[0].get_ylim() == upper[1].get_ylim(), "on one scale"
    assert {panel.get_yscale() for panel in (*upper, *lower)} == {"linear"}
    (section,) = sections(cells)
    assert [title for title, _ in section.columns[:4]] == ["Dataset", "method.rank", "training.dtype", "Method"]
    assert [row[1:3] for row in section.rows[:5:2]] == [("1", "float32"), ("1", "float64"), ("2", "float32")]


@pytest.mark.parametrize(
    ("texts", "scale"),
    [
        (["1", "2", "4", "8"], "log"),
        (["0.001", "0.01", "0.1"], "log"),
        (["10", "20", "30", "40"], "linear"),
        (["0", "1", "10"], "linear"),
        (["1", "1000"], "linear"),
    ],
)
def test_the_axis_is_logarithmic_where_that_keeps_values_apart(make_cells, texts, scale):
    benchmark, cells = make_cells({"method.rank": texts}, lambda *place: 2.0)
    panel = drawing(benchmark, cells).axes[0]
    assert panel.get_xscale() == scale
    assert [text.get_text() for text in panel.get_xticklabels()] == texts
    assert not panel.get_xticks(minor=True).size


def test_wide_scores_have_a_logarithmic_axis(make_cells):
    benchmark, cells = make_cells(
        {"method.rank": ["1", "2"]}, lambda dataset, entry, point: 40.0 ** int(point["method.rank"])
    )
    assert {panel.get_yscale() for panel in drawing(benchmark, cells).axes} == {"log"}


def test_panels_on_one_scale_have_one_kind_of_scale(make_cells):
    """Logarithmic where the line of panels spans a wide range, though none of them does."""
    sweep = {"method.rank": ["1", "2"], "training.dtype": ['"float32"', '"float64"']}
    scores = {'"float32"': 2.0, '"float64"': 2000.0}
    benchmark, cells = make_cells(sweep, lambda dataset, entry, point: scores[point["training.dtype"]])
    assert [panel.get_yscale() for panel in drawing(benchmark, cells).axes] == ["log"] * 4


def test_a_line_is_broken_where_everything_failed(make_cells):
    """Not drawn on as if there were something in between."""
    benchmark, cells = make_cells(
        {"method.rank": ["1", "2", "3"]},
        lambda *place: 2.0,
        lambda dataset, entry, point: "failed" if point["method.rank"] == "2" else "ok",
    )
    panel = drawing(benchmark, cells).axes[0]
    np.testing.assert_allclose(drawn(panel)[0][3], [2, np.nan, 2], rtol=1e-12)


def test_entries_that_run_on_other_data_sets_are_in_the_legend(make_cells):
    pairs = [("energy", "vifa-lr"), ("yacht", "vifa-nn")]
    figure = drawing(*make_cells({"method.rank": ["1", "2"]}, lambda *place: 2.0, pairs=pairs))
    assert [[label for label, *_ in drawn(panel)] for panel in figure.axes] == [["vifa-lr"], ["vifa-nn"]]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["vifa-lr", "vifa-nn"]


def test_files(make_benchmark, widths, tmp_path, blank_figures):
    """One figure a metric under its ordinary name, also of what has not been run."""
    benchmark, cells = widths
    paths = draw_figures(Shown(benchmark, cells), tmp_path)
    assert [path.name for path in paths] == ["uci-nn-nmll.png", "uci-nn-nmll.pdf"]
    assert len(draw_figures(Shown(benchmark, compare(benchmark, pd.DataFrame())), tmp_path / "nothing")) == 2


def test_scores_of_training_rows_lie_below_those_of_new_rows(make_benchmark, make_trials):
    """Dotted, in the colour of their entry, and within the axis; their own figure stays."""
    benchmark = make_benchmark({"model.hidden": WIDTHS}, metrics=["nmll", "nmll_training"], datasets=["energy"])
    rows = [
        make_trials("energy", entry, [value, value + 0.1], nmll_training=[value / 3] * 2).assign(
            **{"model.hidden": text}
        )
        for entry, value in (("vifa-lr", 3.0), ("vifa-nn", 6.0))
        for text in WIDTHS
    ]
    drawn = score_drawings(benchmark, compare(benchmark, pd.concat(rows)))
    figure = drawn["nmll"]()
    (panel,) = figure.axes
    assert "dotted: training rows" in figure.get_suptitle()
    dotted = [line for line in panel.lines if line.get_linestyle() == ":" or line.is_dashed()]
    assert [list(line.get_ydata()) for line in dotted] == [[1.0] * 3, [2.0] * 3]
    solid = [bars.lines[0] for bars in panel.containers]
    assert all(same_color(a.get_color(), b.get_color()) for a, b in zip(dotted, solid, strict=True))
    assert panel.get_ylim()[0] <= 1
    assert "dotted" not in drawn["nmll_training"]().get_suptitle()
