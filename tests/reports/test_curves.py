"""Learning curves against NumPy, and how they are drawn."""

from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import same_color
from scipy.stats import sem

from bdl.reports.curves import BATCH, ONLINE, average_curves, curve_drawings, curve_figure

from .conftest import changed, legend, make_benchmark, make_tables, shuffled, texts, titles

CHECKPOINTS = (100, 200, 10_000)
SCORES = {"rel_cov_dist": 1.0, "scaled_w2": 0.1}
METHODS = {
    "online-sga": "online-sga",
    "em": "online-em",
    "batch-svd": "batch-fa",
    "ppca": "batch-fa",
}
THESIS = make_tables(
    "brownlie2022", "online_fa_synthetic", ["Table B.1", "Table B.2"],
    {"online-sga": "online_sga_fa", "em": "online_em_fa", "batch-svd": "batch_svd_fa"},
    datasets={"small": "synthetic obs_dim=100;latent_dim=10;spectrum_range=1-10;n_samples=100000"},
)  # fmt: skip


def entries_of(methods):
    return {
        name: SimpleNamespace(method=SimpleNamespace(name=method))
        for name, method in methods.items()
    }


def streams(**changes):
    """A benchmark of streams, by default on two data sets, of which the thesis has the first."""
    defaults = {
        "name": "streams",
        "datasets": ["small", "large"],
        "entries": entries_of(METHODS),
        "papers": [THESIS],
    }
    return make_benchmark(
        **defaults | {"metrics": ["rel_cov_dist", "scaled_w2", "runtime"]} | changes
    )


def points(dataset, entry, values, axis="observations", at=CHECKPOINTS, scores=SCORES, **swept):
    """One row a score from values of shape (splits, counts).

    The 2-Wasserstein distance is a tenth of them.
    """
    rows = [
        (split, axis, count, metric, value * factor)
        for split, row in enumerate(np.asarray(values, dtype=float))
        for count, value in zip(at, row, strict=False)
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
    """Every entry on small.

    On large one entry, whose streams are cut, and one that gave no finite score.
    """
    frames = [points("small", entry, values * scale) for scale, entry in enumerate(METHODS, 1)]
    return pd.concat(
        [*frames, points("large", "em", values[:, :2]), points("large", "ppca", values * np.nan)]
    )


def draw(benchmark, rows, metric="rel_cov_dist"):
    curves = [curve for curve in average_curves(benchmark, rows) if curve.metric == metric]
    return curves, curve_figure(benchmark, curves)


def lines_of(panel):
    return [line for line in panel.lines if len(line.get_xdata()) > 1]


def test_known_answer(values):
    """Mean and standard error at every checkpoint in numerical order, whatever the order of rows."""
    curves = average_curves(
        streams(), shuffled(points("small", "em", values), points("small", "ppca", 2 * values))
    )
    expected = [
        ("small", entry, metric, "observations") for metric in SCORES for entry in ("em", "ppca")
    ]
    assert [curve[:4] for curve in curves] == expected
    for curve, factor in zip(curves, (1, 2, 0.1, 0.2), strict=True):
        np.testing.assert_array_equal(curve.counts, CHECKPOINTS)
        np.testing.assert_allclose(curve.mean, factor * values.mean(0), rtol=1e-14)
        np.testing.assert_allclose(curve.se, factor * sem(values), rtol=1e-14)


def test_values_that_are_not_finite_are_left_out(values, rows):
    """Split 1 has no distance after 100 observations, and nobody has one after 200."""
    values[1, 0], values[:, 1] = np.inf, np.nan
    curve, _ = average_curves(streams(), points("small", "em", values))
    finite = values[[0, 2, 3, 4], 0], values[:, 2]
    np.testing.assert_array_equal(curve.counts, [100, 10_000])
    np.testing.assert_allclose(curve.mean, [column.mean() for column in finite], rtol=1e-14)
    np.testing.assert_allclose(curve.se, [sem(column) for column in finite], rtol=1e-14)
    for nothing in (rows.assign(value=np.nan), rows[:0], pd.DataFrame()):
        assert average_curves(streams(), nothing) == []


def test_a_single_split_has_no_standard_error(values):
    (curve,), figure = draw(streams(), points("small", "em", values[:1]))
    np.testing.assert_array_equal(curve.mean, values[0])
    assert np.isnan(curve.se).all()
    assert len(figure.axes[0].lines[0].get_xdata()) == 3


def test_what_is_drawn(rows):
    """Nothing of an entry that is missing or failed, and nothing beyond the end of a stream that was cut."""
    curves, figure = draw(streams(), rows)
    assert [curve[:2] for curve in curves] == [
        *(("small", entry) for entry in METHODS),
        ("large", "em"),
    ]
    assert titles(figure) == ["small", "large"]
    lines = [line for panel in figure.axes for line in lines_of(panel)]
    bands = [
        band for panel in figure.axes for band in panel.collections if len(band.get_paths()[0]) > 4
    ]
    for curve, line, band in zip(curves, lines, bands, strict=True):
        np.testing.assert_array_equal(line.get_xydata().T, (curve.counts, curve.mean))
        box = band.get_paths()[0].get_extents()
        ends = (curve.mean - curve.se).min(), (curve.mean + curve.se).max()
        np.testing.assert_allclose((box.y0, box.y1), ends, rtol=1e-12)
        assert same_color(band.get_facecolor()[0, :3], line.get_color())
    dashes = {
        look: mpl.lines.Line2D([], [], linestyle=look)._unscaled_dash_pattern
        for look in (ONLINE, BATCH)
    }
    looks = [ONLINE, ONLINE, BATCH, BATCH, ONLINE]
    assert [line._unscaled_dash_pattern for line in lines] == [dashes[look] for look in looks]
    assert {(panel.get_xscale(), panel.get_yscale()) for panel in figure.axes} == {("log", "log")}
    assert same_color(lines[4].get_color(), lines[1].get_color()), "an entry has one colour"
    assert len({line.get_color() for line in lines}) == 4
    assert legend(figure) == [*METHODS, "paper, whole stream"]


def test_printed_values_stand_beside_the_last_checkpoint(rows):
    """A value of one split does not stand beside means."""
    _, figure = draw(streams(), rows, "scaled_w2")
    small, large = figure.axes
    assert [bar.lines[0].get_ydata()[0] for bar in small.containers] == [0.0062, 0.0058, 0.0061]
    ends = [bar.lines[2][0].get_segments()[0][:, 1] for bar in small.containers]
    np.testing.assert_allclose(np.diff(ends)[:, 0] / 2, [0.0004, 0.0006, 0.0009], rtol=1e-9)
    positions = [bar.lines[0].get_xdata()[0] for bar in small.containers]
    assert 10_000 < positions[0] < positions[1] < positions[2] < 25_000
    assert [bar.lines[0].get_color() for bar in small.containers] == [
        line.get_color() for line in small.lines[:3]
    ]
    assert large.containers == []
    for papers in ([], [changed(THESIS, split=0)]):
        _, unprinted = draw(streams(papers=papers), rows, "scaled_w2")
        assert legend(unprinted) == [*METHODS]


def test_panels_follow_each_other_downwards(values):
    """Five, in three lines; the lowest of each column says what its axis is."""
    names = ["a", "b", "c", "d", "e"]
    _, figure = draw(
        streams(datasets=names, papers=[]),
        pd.concat([points(name, "em", values) for name in names]),
    )
    subplots = {panel.get_title(loc="left"): panel.get_subplotspec() for panel in figure.axes}
    where = {name: (at.rowspan.start, at.colspan.start) for name, at in subplots.items()}
    assert where == {"a": (0, 0), "b": (1, 0), "c": (2, 0), "d": (0, 1), "e": (1, 1)}
    labelled = [panel for panel in figure.axes if panel.get_xlabel()]
    assert {panel.get_title(loc="left") for panel in labelled} == {"c", "e"}
    assert all(panel.xaxis.get_tick_params()["labelbottom"] for panel in labelled)


@pytest.fixture
def learning():
    """Two fitted entries that were looked at while they learned, and eight splits of falling scores."""
    benchmark = make_benchmark(
        entries=entries_of({"vifa-lr": "vifa-lr", "vifa-nn": "vifa-nn"}), metrics=["nmll"]
    )
    return benchmark, 2 + np.random.default_rng(1).exponential(size=(8, 5))


def test_epochs_have_linear_axes_that_each_data_set_has_for_itself(learning):
    """Clocks 1 to 20 and scores from 2 to 5, and ten times that on the other data set."""
    benchmark, values = learning
    frames = [
        points(dataset, entry, values * factor, "epochs", (1, 5, 10, 15, 20), {"nmll": 1.0})
        for dataset, factor in (("energy", 1), ("yacht", 10))
        for entry in benchmark.entries
    ]
    _, figure = draw(benchmark, pd.concat(frames), "nmll")
    energy, yacht = figure.axes
    assert {(panel.get_xscale(), panel.get_yscale()) for panel in figure.axes} == {
        ("linear", "linear")
    }
    assert {panel.get_xlabel() for panel in figure.axes} == {"epochs"}
    assert energy.get_ylim()[1] < 8 < 15 < yacht.get_ylim()[1]
    assert all(tick == int(tick) for tick in energy.get_xticks())
    assert "dashed" not in figure.get_suptitle()
    assert {line.get_linestyle() for line in lines_of(energy)} == {"-"}
    positions = [bar.lines[0].get_xdata()[0] for bar in energy.containers]
    np.testing.assert_allclose(positions, [20 + 0.04 * 19, 20 + 2 * 0.04 * 19], rtol=1e-12)
    assert legend(figure) == ["vifa-lr", "vifa-nn", "paper, end of fit"]


def test_units_that_differ_have_figures_of_their_own(learning):
    benchmark, values = learning
    units = {"vifa-lr": "epochs", "vifa-nn": "updates"}
    frames = [
        points("energy", entry, values, axis, scores={"nmll": 1.0})
        for entry, axis in units.items()
    ]
    drawings = curve_drawings(benchmark, average_curves(benchmark, pd.concat(frames)))
    assert list(drawings) == ["nmll-curve-epochs", "nmll-curve-updates"]


def test_a_sweep_has_a_curve_and_a_panel_at_each_point(learning):
    """Nothing printed stands beside them: the papers' numbers are those of one setting."""
    plain, values = learning
    benchmark = make_benchmark(
        {"model.hidden": ["[50]", "[100]"]}, entries=plain.entries, metrics=["nmll"]
    )
    frames = [
        points(
            "energy",
            "vifa-nn",
            values * factor,
            "epochs",
            scores={"nmll": 1.0},
            **{"model.hidden": text},
        )
        for text, factor in (("[100]", 3), ("[50]", 1))
    ]
    curves, figure = draw(benchmark, pd.concat(frames), "nmll")
    assert [curve.point for curve in curves] == ["hidden = 50", "hidden = 100"]
    np.testing.assert_allclose(curves[1].mean, 3 * curves[0].mean, rtol=1e-14)
    assert titles(figure) == ["energy\nhidden = 50", "energy\nhidden = 100"]
    assert legend(figure) == ["vifa-nn"]


def test_a_line_or_a_printed_value_that_is_far_off_is_said_and_does_not_flatten_the_rest(rows):
    """Printed are 0.0062, 0.0058 and 0.0061, a million times less than all curves but one, which is far above."""
    wild = rows["value"].where(rows["entry"] != "ppca", rows["value"] * 1e9) * 1e6
    _, figure = draw(streams(), rows.assign(value=wild), "scaled_w2")
    small = figure.axes[0]
    low, high = small.get_ylim()
    assert 1e3 < low < 1e5
    assert 1e6 < high < 1e9
    (text,) = texts(small.texts)
    assert text.startswith("beyond the axis: ppca (")
    assert text.replace("\n", " ").count("paper, ") == 3


def test_training_rows_are_dotted_below_new_rows(values):
    """In the colour of their entry, and counted among what the axis shows."""
    scores = {"test_error_pct": 1.0, "training_error_pct": 0.01}
    benchmark = streams(metrics=[*scores], papers=[], datasets=["small"])
    rows = [
        points("small", entry, values * scale, "epochs", scores=scores)
        for entry, scale in (("em", 1), ("ppca", 2))
    ]
    figures = curve_drawings(benchmark, average_curves(benchmark, pd.concat(rows)))
    figure = figures["test_error_pct-curve"]()
    below, above = figure.axes[0].lines[:2], figure.axes[0].lines[2:]
    assert "dotted: training rows" in figure.get_suptitle()
    for training_line, line in zip(below, above, strict=True):
        np.testing.assert_allclose(training_line.get_ydata(), 0.01 * line.get_ydata())
        assert same_color(training_line.get_color(), line.get_color())
        assert figure.axes[0].get_ylim()[0] <= training_line.get_ydata().min()
    assert len(figures["training_error_pct-curve"]().axes[0].lines) == 2
