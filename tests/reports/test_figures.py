"""All figures: files, titles with remarks, axes that end before what is out of all proportion, and their documents."""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.style import context
from PIL import Image

from bdl.reports.comparison import compare_with_papers
from bdl.reports.drawing import (
    OUTLIER_FACTOR,
    STYLE,
    central_range,
    draw_legend,
    fit_axis,
    label_log_axis,
    lay_out_panels,
    ordinary_range,
)
from bdl.reports.figures import (
    FIGURE_KINDS,
    FigureData,
    draw_figure,
    draw_figures,
    drawings_of,
    heading_of,
    save_figures,
)

from .conftest import make_benchmark, make_trials, texts


def test_files_do_not_depend_on_time_or_the_users_settings_and_leave_these_alone(
    tmp_path, monkeypatch
):
    benchmark = make_benchmark(metrics=["nmll"])
    figure_data = FigureData(
        benchmark, compare_with_papers(benchmark, make_trials("energy", "vifa-lr", [2.5, 2.6]))
    )
    first = draw_figures(figure_data, tmp_path / "new")
    assert [path.name for path in first] == ["uci-nn-nmll.png", "uci-nn-nmll.pdf"]
    with Image.open(first[0]) as picture:
        assert picture.width == pytest.approx(200 * (2 * 3.4 + 0.4), abs=1)
    assert first[1].read_bytes().startswith(b"%PDF")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    with mpl.rc_context(
        {"font.size": 30, "axes.grid": True, "lines.linewidth": 9, "savefig.bbox": "tight"}
    ):
        before = dict(mpl.rcParams)
        second = draw_figures(figure_data, tmp_path / "again")
        assert dict(mpl.rcParams) == before
    contents = [path.read_bytes() for path in first]
    assert contents == [path.read_bytes() for path in second]
    assert not any(b"CreationDate" in content or b"Software" in content for content in contents)
    if "matplotlib.pyplot" in sys.modules:
        assert sys.modules["matplotlib.pyplot"].get_fignums() == []


@pytest.mark.parametrize("sweep", [{}, {"model.hidden": ["[20]", "[50]"]}])
def test_nothing_run_yet_still_draws(sweep):
    benchmark = make_benchmark(sweep, papers=[])
    drawings = drawings_of(FigureData(benchmark, compare_with_papers(benchmark, pd.DataFrame())))
    assert list(drawings) == ["nmll", "rmse", "runtime"]
    for draw in drawings.values():
        assert len(draw().axes) == 2


def test_importing_the_reports_stays_light():
    heavy = "{'torch', 'sklearn', 'matplotlib', 'pandas', 'mlflow'}"
    code = f"import sys, bdl.reports\nprint(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_documents_list_every_kind():
    """In the table of docs/spec.md, in their order."""
    text = (Path(__file__).parents[2] / "docs" / "spec.md").read_text(encoding="utf-8")
    files = re.findall(r"^\| `<benchmark>-(.*?)` \|", text, re.MULTILINE)
    assert list(dict.fromkeys(files)) == [kind.files for kind in FIGURE_KINDS]


def test_the_page_knows_figures_by_their_names():
    names = {
        "nmll": "Scores",
        "weights_below": "Scores",
        "weights-cubic": "Weights",
        "nmll-curve-epochs": "Curves",
        "posterior-energy-vifa": "Posteriors and the truth",
        "posterior-energy-low-cost": "Posteriors and the truth",
        "nmll-cost": "What scores cost",
        "bands-cubic": "Credible bands",
        "refusal-risk": "Predictions that may be refused",
        "nmll-standing": "Overall standing",
    }
    assert {name: heading_of(name) for name in names} == names


def test_a_path_in_a_name_makes_no_folder(tmp_path):
    (png,) = save_figures({"b-posterior-sub/wave.py:wave-vifa": Figure}, tmp_path, pdf=False)
    assert png == tmp_path / "b-posterior-sub_wave.py_wave-vifa.png"
    assert png.exists()


def test_pictures_have_256_colours_near_the_drawn_ones(tmp_path):
    figure = Figure(figsize=(4, 3))
    figure.add_subplot().imshow(np.random.default_rng(0).normal(size=(60, 80)))
    (png,) = save_figures({"a": lambda: figure}, tmp_path, pdf=False)
    with context(["default", STYLE]):
        figure.savefig(tmp_path / "all.png", dpi=200)
    with Image.open(png) as found, Image.open(tmp_path / "all.png") as every:
        assert (found.mode, found.size) == ("P", every.size)
        assert found.info["dpi"] == pytest.approx((200, 200), abs=0.01)
        off = np.abs(np.asarray(found.convert("RGB"), int) - np.asarray(every.convert("RGB"), int))
    # of 255 levels; measured 0.02, and 0.9 with 64 colours
    assert off.mean() < 0.1
    assert 2 * png.stat().st_size < (tmp_path / "all.png").stat().st_size


def titled(title):
    figure = Figure(figsize=(4, 3))
    figure.suptitle(title)
    return figure


def title_of(figure):
    """The lines of a title as it is broken where it is drawn, which is within the figure."""
    figure.canvas.draw()
    assert figure._suptitle.get_window_extent().x1 <= figure.bbox.x1
    return figure._suptitle._get_wrapped_text().split("\n")


@pytest.mark.parametrize("title", ["A title", "", "SGD\n" + "word " * 20])
def test_long_titles_are_broken_and_every_figure_has_the_remark(title):
    remark = "Not the protocol: 1 of 20 splits (0); entries.vifa-lr.training.epochs=2; entries.vifa-nn.training.rate=3."
    plain, remarked = (
        draw_figure(lambda: titled(title)),
        draw_figure(lambda: titled(title), remark),
    )
    assert plain.get_suptitle() == title
    assert remarked.get_suptitle().split("\n") == [
        line for line in (*title.split("\n"), remark) if line
    ]
    first, *lines = title_of(plain)
    assert first == title.split("\n")[0]
    assert bool(lines) == ("word" in title)
    assert len(title_of(remarked)) > len(lines) + 2


def test_a_long_remark_is_cut_and_panels_keep_their_size():
    """Of a figure with one panel of one row, the smallest there is."""
    benchmark = make_benchmark(
        datasets=["energy"], entries={"vifa-lr": {}}, metrics=["nmll"], papers=[]
    )
    cells = compare_with_papers(benchmark, make_trials("energy", "vifa-lr", np.arange(3.0)))
    draw = drawings_of(FigureData(benchmark, cells))["nmll"]
    remark = f"Not the protocol: {'; '.join(f'a.field.{i}={i}' for i in range(200))}."
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain, remarked = draw_figure(draw), draw_figure(draw, remark)
        assert len(title_of(remarked)) == len(title_of(plain)) + 3
    assert remarked.get_suptitle().endswith(" ...")
    before, after = (figure.axes[0].get_window_extent() for figure in (plain, remarked))
    assert after.height > 0.9 * before.height
    top = remarked.axes[0].get_tightbbox().y1
    assert remarked._suptitle.get_window_extent().y0 > top, "nothing is drawn over the panels"


@pytest.mark.parametrize(
    ("values", "factor", "expected"),
    [
        ([], 30, (0, 0)),
        ([2.5, 2.6, 1.2, 4e17], 30, (1.2, 2.6)),
        ([2.5, 2.6, 1.2, -4e17], 30, (1.2, 2.6)),
        ([-0.4, 0.2, 0.3, 1e16, 2e16], 30, (-0.4, 0.3)),
        ([1.0, 100.0], 30, (1.0, 100.0)),  # neither of two
        ([1.0, 20.0, 400.0, 8000.0], 30, (1.0, 8000.0)),  # no jump
        ([0.0, 0.0, 0.0, 0.1], 30, (0.0, 0.1)),  # no proportion
        ([1e-16, 0.1, 0.2, 0.3], OUTLIER_FACTOR, (0.1, 0.3)),
        ([1e-12, 1e-9, 20, 30], OUTLIER_FACTOR, (20, 30)),
        ([1e-12, 1e-7, 0.1, 20, 30], OUTLIER_FACTOR, (0.1, 30)),
        ([OUTLIER_FACTOR, 1], OUTLIER_FACTOR, (1, OUTLIER_FACTOR)),
    ],
)
def test_what_is_ordinary(values, factor, expected):
    assert ordinary_range(values, factor) == expected


@pytest.fixture
def panel():
    return Figure().subplots()


@pytest.mark.parametrize(
    ("values", "bars", "scale"),
    [
        ([1, 30], [], "linear"),
        ([31, 1], [], "log"),
        ([-1, 1000], [], "linear"),
        ([0, 1, 2], [], "linear"),
        ([1e-17, -1e-17, 0, 1, 10, 20, 40], [], "log"),  # zero but for rounding
        ([0.003, 1.5], [-0.18, 0.19, 1.4, 1.6], "linear"),  # a bar goes below zero
    ],
)
def test_positive_values_that_span_much_are_logarithmic(panel, values, bars, scale):
    beyond = fit_axis(
        panel, "x", {i: [value] for i, value in enumerate(values)}, bars, factor=OUTLIER_FACTOR
    )
    assert panel.get_xscale() == scale
    low, high = panel.get_xlim()
    assert all(low <= value <= high for i, value in enumerate(values) if i not in beyond)
    assert all(low <= end <= high for end in bars)
    assert len(beyond) == sum(abs(value) < 1e-9 for value in values) * (scale == "log")


def test_a_line_that_goes_astray_does_not_flatten_the_others(panel):
    """Its name and its largest value stand on the panel.

    Its first values are among the others'.
    """
    lines = {"a": [1.0, 2.0], "b": [1.5, 3.0], "astray": [1.0, -4e17, np.nan]}
    assert fit_axis(panel, "y", lines) == {"astray": -4e17}
    assert panel.get_ylim() == pytest.approx((1 - 0.16, 3 + 0.16))
    assert texts(panel.texts) == ["beyond the axis: astray (-4.00e17)"]
    assert fit_axis(panel, "y", {"a": [np.nan]}) == {}


@pytest.mark.parametrize(
    ("scale", "ends"), [("linear", [-1e9, 1.5, 4.0]), ("log", [-1.0, 1.5, 4.0])]
)
def test_bars_are_seen_whole_unless_they_stretch_the_axis(panel, scale, ends):
    fit_axis(panel, "x", {"a": [2.0, 3.0]}, ends, scale=scale)
    low, high = panel.get_xlim()
    assert 0.9 < low < 1.5
    assert 4.0 < high < 5.0


@pytest.mark.parametrize(
    ("last", "label"), [(90, "30"), (100, "10"), (1e6, "$\\mathdefault{10^{4}}$")]
)
def test_labels_are_numbers_where_they_are_few(panel, last, label):
    panel.set(yscale="log", ylim=(1, last))
    label_log_axis(panel.yaxis, last)
    assert label in texts(panel.get_yticklabels())
    assert not any(texts(panel.get_yticklabels(minor=True)))


def test_lines_have_as_many_panels_as_can_be_and_each_panel_has_numbers():
    figure, panels = lay_out_panels(5, (2, 2), sharex=True)
    assert figure.axes == panels, "panels that are not used are removed"
    assert [panel.get_subplotspec().colspan.start for panel in panels] == [0, 1, 2, 0, 1]
    shown = [panel.xaxis.get_tick_params()["labelbottom"] for panel in panels]
    assert shown == [True] * 5, "each is read alone"


def test_a_legend_is_no_wider_than_its_figure():
    figure, (panel,) = lay_out_panels(1, (3, 2))
    for number in range(4):
        panel.plot([0, 1], [0, number], label=f"a method with a long name {number}")
    draw_legend(figure)
    (legend,) = figure.legends
    assert legend.get_window_extent().width <= figure.bbox.width
    assert len(legend.get_texts()) == 4


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([1.6, 1.7, 1.8, 1.9, 2.0, 6.1, 12.1], (1.6, 2.0)),
        ([-90.0, -40.0, 1.6, 1.7, 1.8, 1.9, 2.0], (1.6, 2.0)),
        ([1.0, 2.0, 3.0, 4.0, 20.0], (1.0, 20.0)),
        ([1.0, 1.1, 50.0, 51.0], (1.0, 51.0)),
    ],
)
def test_outliers_are_beyond_a_wide_gap_from_over_half_of_the_values(values, shown):
    assert central_range(values) == shown
