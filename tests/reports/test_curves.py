"""Learning curves against NumPy, and how they are drawn."""

from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import same_color
from scipy.stats import sem

from bdl.reports.curves import BATCH, ONLINE, curve_drawings, curve_figure, curves
from bdl.reports.figures import Shown, draw_figures
from bdl.reports.papers import paper_values
from bdl.spec.sections import Preparation

CHECKPOINTS = (100, 200, 10_000)
SCORES = {"rel_cov_dist": 1.0, "scaled_w2": 0.1}
METHODS = {"online-sga": "online-sga", "em": "online-em", "batch-svd": "batch-fa", "ppca": "batch-fa"}
THESIS = SimpleNamespace(
    paper="brownlie2022",
    tables=["Table B.1", "Table B.2"],
    task="online_fa_synthetic",
    datasets={"small": "synthetic obs_dim=100;latent_dim=10;spectrum_range=1-10;n_samples=100000"},
    methods={"online-sga": "online_sga_fa", "em": "online_em_fa", "batch-svd": "batch_svd_fa"},
    metrics={},
    split=None,
)


@pytest.fixture
def make(make_benchmark):
    """Build a benchmark of streams, by default on two data sets, of which the thesis has the first."""

    def build(**changes):
        entries = {name: SimpleNamespace(method=SimpleNamespace(name=method)) for name, method in METHODS.items()}
        defaults = {"name": "streams", "datasets": ["small", "large"], "entries": entries, "papers": [THESIS]}
        return make_benchmark(**defaults | {"metrics": ["rel_cov_dist", "scaled_w2", "runtime"]} | changes)

    return build


def points(dataset, entry, values, axis="observations", at=CHECKPOINTS, scores=SCORES, **swept):
    """One row a score from values of shape (splits, counts); the 2-Wasserstein distance is a tenth of them."""
    rows = [
        (split, axis, place, metric, value * factor)
        for split, row in enumerate(np.asarray(values, dtype=float))
        for place, value in zip(at, row, strict=False)
        for metric, factor in scores.items()
    ]
    frame = pd.DataFrame(rows, columns=["split", "axis", "at", "metric", "value"])
    return frame.assign(dataset=dataset, entry=entry, **swept)


@pytest.fixture
def values():
    """Falling distances of five splits at three checkpoints."""
    return np.random.default_rng(0).uniform(0.1, 1, (5, 3)) * [100, 10, 1]


@pytest.fixture
def rows(values):
    """Every entry on small; on large one entry, whose streams are cut, and one that gave no finite score."""
    parts = [points("small", entry, values * scale) for scale, entry in enumerate(METHODS, 1)]
    return pd.concat([*parts, points("large", "em", values[:, :2]), points("large", "ppca", values * np.nan)])


def test_known_answer(make, values):
    """Mean and standard error at every checkpoint in numerical order, whatever the order of rows."""
    rows = pd.concat([points("small", "em", values), points("small", "ppca", 2 * values)])
    found = curves(make(), rows.sample(frac=1, random_state=0))
    assert [curve[:4] for curve in found] == [
        ("small", entry, metric, "observations") for metric in SCORES for entry in ("em", "ppca")
    ]
    for curve, factor in zip(found, (1, 2, 0.1, 0.2), strict=True):
        np.testing.assert_array_equal(curve.places, CHECKPOINTS)
        np.testing.assert_allclose(curve.mean, factor * values.mean(0), rtol=1e-14)
        np.testing.assert_allclose(curve.se, factor * sem(values), rtol=1e-14)
        assert curve.point == ""


def test_values_that_are_not_finite_are_left_out(make, values):
    """Split 1 has no distance after 100 observations, and nobody has one after 200."""
    values[1, 0], values[:, 1] = np.inf, np.nan
    curve = curves(make(), points("small", "em", values))[0]
    kept = values[[0, 2, 3, 4], 0], values[:, 2]
    np.testing.assert_array_equal(curve.places, [100, 10_000])
    np.testing.assert_allclose(curve.mean, [part.mean() for part in kept], rtol=1e-14)
    np.testing.assert_allclose(curve.se, [sem(part) for part in kept], rtol=1e-14)


def test_a_single_split_has_no_standard_error(make, values):
    curve = curves(make(), points("small", "em", values[:1]))[0]
    np.testing.assert_array_equal(curve.mean, values[0])
    assert np.isnan(curve.se).all()
    assert len(drawn(make(), points("small", "em", values[:1]))[1].axes[0].lines[0].get_xdata()) == 3


def test_entries_have_a_curve_where_they_have_values(make, rows):
    """Nothing of an entry that is missing or failed, and nothing beyond the end of a stream that was cut."""
    found = [curve for curve in curves(make(), rows) if curve.metric == "rel_cov_dist"]
    assert [curve[:2] for curve in found] == [*(("small", entry) for entry in METHODS), ("large", "em")]
    assert [curve.places.tolist() for curve in found] == [[100, 200, 10_000]] * 4 + [[100, 200]]


def drawn(benchmark, rows, metric="rel_cov_dist"):
    found = [curve for curve in curves(benchmark, rows) if curve.metric == metric]
    return found, curve_figure(benchmark, found)


def test_what_is_drawn(make, rows):
    benchmark = make()
    found, figure = drawn(benchmark, rows)
    small, large = figure.axes
    assert [panel.get_title(loc="left") for panel in figure.axes] == ["small", "large"]
    lines = [line for panel in figure.axes for line in panel.lines if len(line.get_xdata()) > 1]
    bands = [band for panel in figure.axes for band in panel.collections if len(band.get_paths()[0]) > 4]
    for curve, line, band in zip(found, lines, bands, strict=True):
        np.testing.assert_array_equal(line.get_xydata().T, (curve.places, curve.mean))
        box = band.get_paths()[0].get_extents()
        ends = (curve.mean - curve.se).min(), (curve.mean + curve.se).max()
        np.testing.assert_allclose((box.y0, box.y1), ends, rtol=1e-12)
        assert same_color(band.get_facecolor()[0, :3], line.get_color())
    dashes = {look: mpl.lines.Line2D([], [], linestyle=look)._unscaled_dash_pattern for look in (ONLINE, BATCH)}
    assert [line._unscaled_dash_pattern for line in lines] == [
        dashes[look] for look in (*[ONLINE] * 2, *[BATCH] * 2, ONLINE)
    ]
    assert {(panel.get_xscale(), panel.get_yscale()) for panel in figure.axes} == {("log", "log")}
    assert same_color(large.lines[0].get_color(), small.lines[1].get_color()), "an entry has one colour"
    assert len({line.get_color() for line in lines}) == 4
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == [*METHODS, "paper, whole stream"]


def test_printed_values_stand_beside_the_last_checkpoint(make, rows):
    benchmark = make()
    _, figure = drawn(benchmark, rows, "scaled_w2")
    small, large = figure.axes
    printed = paper_values(benchmark.papers)
    names = ["online-sga", "em", "batch-svd"]
    assert (
        [bar.lines[0].get_ydata()[0] for bar in small.containers]
        == [printed["small", name, "scaled_w2", "mean"].value for name in names]
        == [0.0062, 0.0058, 0.0061]
    )
    ends = [bar.lines[2][0].get_segments()[0][:, 1] for bar in small.containers]
    np.testing.assert_allclose(np.diff(ends)[:, 0] / 2, [0.0004, 0.0006, 0.0009], rtol=1e-9)
    places = [bar.lines[0].get_xdata()[0] for bar in small.containers]
    assert 10_000 < places[0] < places[1] < places[2] < 25_000
    assert [bar.lines[0].get_color() for bar in small.containers] == [line.get_color() for line in small.lines[:3]]
    assert large.containers == []
    _, unprinted = drawn(make(papers=[]), rows)
    assert [text.get_text() for text in unprinted.legends[0].get_texts()] == [*METHODS]


@pytest.mark.parametrize(
    ("count", "shape"), [(1, (1, 1)), (3, (1, 3)), (4, (1, 4)), (5, (3, 2)), (6, (3, 2)), (12, (3, 4)), (14, (4, 4))]
)
def test_panels_follow_each_other_downwards(make, values, count, shape):
    datasets = [f"d{i}" for i in range(count)]
    benchmark = make(datasets=datasets, papers=[])
    _, figure = drawn(benchmark, pd.concat([points(name, "em", values) for name in datasets]))
    places = [panel.get_subplotspec() for panel in figure.axes]
    where = {
        panel.get_title(loc="left"): (at.rowspan.start, at.colspan.start)
        for panel, at in zip(figure.axes, places, strict=True)
    }
    assert where == {name: (i % shape[0], i // shape[0]) for i, name in enumerate(datasets)}
    assert places[0].get_gridspec().get_geometry() == shape
    below = {panel.get_title(loc="left") for panel in figure.axes if panel.get_xlabel()}
    lowest = {column: name for name, (_, column) in where.items()}
    assert below == set(lowest.values()), "the lowest panel of each column says what its axis is"
    assert all(panel.xaxis.get_tick_params()["labelbottom"] for panel in figure.axes if panel.get_xlabel())


def test_files(make, rows, tmp_path, blank_figures):
    """Two formats for each metric with checkpoints."""
    benchmark = make()
    paths = draw_figures(Shown(benchmark, curves=curves(benchmark, rows)), tmp_path)
    assert [path.name for path in paths] == [
        f"streams-{metric}-curve.{suffix}" for metric in ("rel_cov_dist", "scaled_w2") for suffix in ("png", "pdf")
    ]


def test_without_points_there_are_no_curves(make, rows):
    for nothing in (rows.assign(value=np.nan), rows[:0], pd.DataFrame()):
        assert curves(make(), nothing) == []


@pytest.fixture
def learning(make_benchmark):
    """Two fitted entries that were looked at while they learned, and eight splits of falling scores."""
    entries = {name: SimpleNamespace(method=SimpleNamespace(name=name)) for name in ("vifa-lr", "vifa-nn")}
    return make_benchmark(entries=entries, metrics=["nmll"]), 2 + np.random.default_rng(1).exponential(size=(8, 5))


def test_epochs_have_linear_axes_that_each_data_set_has_for_itself(learning):
    """Clocks 1 to 20 and scores from 2 to 5, and ten times that on the other data set."""
    benchmark, values = learning
    at = (1, 5, 10, 15, 20)
    parts = [
        points(dataset, entry, values * factor, "epochs", at, {"nmll": 1.0})
        for dataset, factor in (("energy", 1), ("yacht", 10))
        for entry in benchmark.entries
    ]
    figure = curve_figure(benchmark, curves(benchmark, pd.concat(parts)))
    energy, yacht = figure.axes
    assert {(panel.get_xscale(), panel.get_yscale()) for panel in figure.axes} == {("linear", "linear")}
    assert {panel.get_xlabel() for panel in figure.axes} == {"epochs"}
    assert energy.get_ylim()[1] < 8 < 15 < yacht.get_ylim()[1]
    assert all(tick == int(tick) for tick in energy.get_xticks())
    assert "dashed" not in figure.get_suptitle()
    assert {line.get_linestyle() for line in energy.lines if len(line.get_xdata()) > 1} == {"-"}
    places = [bar.lines[0].get_xdata()[0] for bar in energy.containers]
    np.testing.assert_allclose(places, [20 + 0.04 * 19, 20 + 2 * 0.04 * 19], rtol=1e-12)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["vifa-lr", "vifa-nn", "paper, end of fit"]


def test_units_that_differ_have_figures_of_their_own(learning):
    benchmark, values = learning
    parts = [
        points("energy", entry, values, axis, scores={"nmll": 1.0})
        for entry, axis in (("vifa-lr", "epochs"), ("vifa-nn", "updates"))
    ]
    drawings = curve_drawings(benchmark, curves(benchmark, pd.concat(parts)))
    assert list(drawings) == ["nmll-curve-epochs", "nmll-curve-updates"]


def test_a_sweep_has_a_curve_and_a_panel_at_each_point(make_benchmark, learning):
    """Nothing printed stands beside them: the papers' numbers are those of one setting."""
    plain, values = learning
    benchmark = make_benchmark({"model.hidden": ["[50]", "[100]"]}, entries=plain.entries, metrics=["nmll"])
    parts = [
        points("energy", "vifa-nn", values * factor, "epochs", scores={"nmll": 1.0}, **{"model.hidden": text})
        for text, factor in (("[100]", 3), ("[50]", 1))
    ]
    found = curves(benchmark, pd.concat(parts))
    assert [curve.point for curve in found] == ["hidden = 50", "hidden = 100"]
    np.testing.assert_allclose(found[1].mean, 3 * found[0].mean, rtol=1e-14)
    figure = curve_figure(benchmark, found)
    titles = [panel.get_title(loc="left") for panel in figure.axes]
    assert titles == ["energy  hidden = 50", "energy  hidden = 100"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["vifa-nn"]


def test_a_printed_value_of_one_split_does_not_stand_beside_means(make, rows):
    one_split = SimpleNamespace(**vars(THESIS) | {"split": 0})
    _, figure = drawn(make(papers=[one_split]), rows, "scaled_w2")
    assert [panel.containers for panel in figure.axes] == [[], []]


def test_colours_that_come_again_have_other_lines(make_benchmark, values):
    names = [f"m{i}" for i in range(11)]
    entries = {name: SimpleNamespace(method=SimpleNamespace(name="slang")) for name in names}
    benchmark = make_benchmark(entries=entries, metrics=["nmll"], papers=[], datasets=["energy"])
    parts = [points("energy", name, values + i, scores={"nmll": 1.0}) for i, name in enumerate(names)]
    figure = curve_figure(benchmark, curves(benchmark, pd.concat(parts)))
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) > 1]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 11
    assert same_color(lines[9].get_color(), lines[0].get_color())
    assert "dashed" not in figure.get_suptitle()


def test_a_line_or_a_printed_value_that_is_far_off_is_said_and_does_not_flatten_the_rest(make, rows):
    """Printed are 0.0062, 0.0058 and 0.0061, a million times less than all curves but one, which is far above."""
    wild = rows["value"].where(rows["entry"] != "ppca", rows["value"] * 1e9) * 1e6
    _, figure = drawn(make(), rows.assign(value=wild), "scaled_w2")
    small = figure.axes[0]
    low, high = small.get_ylim()
    assert 1e3 < low < 1e5
    assert 1e6 < high < 1e9
    (text,) = (text.get_text().replace("\n", " ") for text in small.texts)
    assert text.startswith("beyond the axis: ppca (")
    assert text.count("paper, ") == 3


def test_training_rows_are_dotted_below_new_rows(make, values):
    """In the colour of their entry, and counted among what the axis shows."""
    scores = {"test_error_pct": 1.0, "training_error_pct": 0.01}
    benchmark = make(metrics=[*scores], papers=[], datasets=["small"])
    rows = [
        points("small", entry, values * scale, axis="epochs", scores=scores)
        for scale, entry in ((1, "em"), (2, "ppca"))
    ]
    figures = curve_drawings(benchmark, curves(benchmark, pd.concat(rows)))
    figure = figures["test_error_pct-curve"]()
    below, above = figure.axes[0].lines[:2], figure.axes[0].lines[2:]
    assert "dotted: training rows" in figure.get_suptitle()
    for one, other in zip(below, above, strict=True):
        np.testing.assert_allclose(one.get_ydata(), 0.01 * other.get_ydata())
        assert same_color(one.get_color(), other.get_color())
        assert figure.axes[0].get_ylim()[0] <= one.get_ydata().min()
    assert len(figures["training_error_pct-curve"]().axes[0].lines) == 2


@pytest.mark.parametrize(("split", "told"), [("published", "2 splits"), ("first", "2 repeats on one split")])
def test_repeats_are_no_splits(make, values, split, told):
    benchmark = make(splits=2, preparation=Preparation(split=split))
    figure = curve_figure(benchmark, curves(benchmark, points("small", "em", values)))
    assert f"over {told}" in figure.get_suptitle()
