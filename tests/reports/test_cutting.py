"""An axis ends before what is out of all proportion."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.style import context
from PIL import Image

from bdl.reports import compare
from bdl.reports.cutting import FAR, Range, brief, limit
from bdl.reports.figures import STYLE, _figure, file_name, save


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
        ([1e-16, 0.1, 0.2, 0.3], FAR, (0.1, 0.3)),
        ([1e-16, 1e-16, 0.1, 0.2], FAR, (1e-16, 0.2)),  # half of all
    ],
)
def test_what_is_shown(values, factor, expected):
    shown = Range.of(values, factor)
    assert shown == expected
    assert [shown.beyond(value) for value in (4e17, shown.low)] == [True, False]


@pytest.mark.parametrize(("scale", "ends"), [("linear", [-1e9, 1.5, 4.0]), ("log", [-1.0, 1.5, 4.0])])
def test_bars_are_seen_whole_unless_they_stretch_the_axis(scale, ends):
    panel = Figure().subplots()
    panel.set_xscale(scale)
    limit(panel, Range(2.0, 3.0), ends)
    low, high = panel.get_xlim()
    assert 0.9 < low < 1.5
    assert 4.0 < high < 4.6


@pytest.mark.parametrize(("value", "text"), [(4.24e17, "4.2e17"), (1512.0, "1512"), (-3e-9, "-3e-9"), (42.0, "42")])
def test_numbers_are_brief(value, text):
    assert brief(value) == text


def test_one_entry_does_not_stretch_the_axis(make_benchmark, make_trials):
    """The mean of ours is 4e17 where three others are below 3: an arrow, its number, and no mark."""
    rows = pd.concat([make_trials("energy", "vifa-lr", [2.4, 2.6]), make_trials("energy", "vifa-nn", [4e17, 4e17])])
    benchmark = make_benchmark(datasets=["energy"])
    cells = compare(benchmark, rows)
    figure = _figure(benchmark, "nmll", [c for c in cells if (c.metric, c.statistic) == ("nmll", "mean")])
    (panel,) = figure.axes
    assert panel.get_xscale() == "linear"
    assert np.max(panel.get_xlim()) < 3
    assert [text.get_text() for text in panel.texts] == ["", "4e17"]
    assert len(panel.containers) == 3


def test_marks_without_a_printed_number_are_on_the_line_of_their_name(make_benchmark, make_trials):
    benchmark = make_benchmark(papers=[], datasets=["energy"])
    cells = compare(benchmark, make_trials("energy", "vifa-lr", [2.4, 2.6]))
    figure = _figure(benchmark, "rmse", [c for c in cells if (c.metric, c.statistic) == ("rmse", "mean")])
    assert figure.axes[0].containers[0].lines[0].get_ydata() == [0]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ours, mean ± SE"]


def test_a_path_in_a_name_makes_no_folder(tmp_path):
    (png, _) = save({"b-posterior-sub/wave.py:wave-vifa": Figure}, tmp_path)
    assert png == tmp_path / "b-posterior-sub_wave.py_wave-vifa.png"
    assert png.exists()
    assert file_name("uci-regression-rmse_standardised") == "uci-regression-rmse_standardised"


def test_pictures_have_256_colours_near_the_drawn_ones(tmp_path):
    figure = Figure(figsize=(4, 3))
    figure.add_subplot().imshow(np.random.default_rng(0).normal(size=(60, 80)))
    (png, _) = save({"a": lambda: figure}, tmp_path)
    with context(["default", STYLE]):
        figure.savefig(tmp_path / "all.png", dpi=200)
    with Image.open(png) as found, Image.open(tmp_path / "all.png") as drawn:
        assert (found.mode, found.size) == ("P", drawn.size)
        assert found.info["dpi"] == pytest.approx((200, 200), abs=0.01)
        off = np.abs(np.asarray(found.convert("RGB"), int) - np.asarray(drawn.convert("RGB"), int))
    # of 255 levels; measured 0.02, and 0.9 with 64 colours
    assert off.mean() < 0.1
    assert 2 * png.stat().st_size < (tmp_path / "all.png").stat().st_size


def test_long_titles_are_broken_at_the_width_of_the_figure(tmp_path):
    figure = Figure(figsize=(4, 3))
    figure.suptitle("SGD\n" + "word " * 20)
    save({"a": lambda: figure}, tmp_path)
    first, *lines = figure.get_suptitle().splitlines()
    assert first == "SGD"
    assert len(lines) == 2
    box = figure._suptitle.get_window_extent()
    assert box.x1 < figure.bbox.x1
