"""Files, titles, and axes that end before what is out of all proportion."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.style import context
from PIL import Image

from bdl.reports.drawing import FAR, STYLE, brief, fit, grid, label_logs, ordinary, styles
from bdl.reports.figures import file_name, save


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
        ([1e-12, 1e-9, 20, 30], FAR, (20, 30)),
        ([1e-12, 1e-7, 0.1, 20, 30], FAR, (0.1, 30)),
        ([FAR, 1], FAR, (1, FAR)),
    ],
)
def test_what_is_ordinary(values, factor, expected):
    assert ordinary(values, factor) == expected


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([1, 30], "linear"),
        ([31, 1], "log"),
        ([-1, 1000], "linear"),
        ([0, 1, 2], "linear"),
        ([1e-17, -1e-17, 0, 1, 10, 20, 40], "log"),  # zero but for rounding
    ],
)
def test_positive_values_that_span_much_are_logarithmic(values, scale):
    panel = Figure().subplots()
    beyond = fit(panel, "x", {i: [value] for i, value in enumerate(values)}, factor=FAR)
    assert panel.get_xscale() == scale
    low, high = panel.get_xlim()
    assert all(low <= value <= high for i, value in enumerate(values) if i not in beyond)
    assert len(beyond) == sum(abs(value) < 1e-9 for value in values) * (scale == "log")


def test_values_whose_bars_go_below_zero_are_not_logarithmic():
    panel = Figure().subplots()
    fit(panel, "x", {"a": [0.003], "b": [1.5]}, [-0.18, 0.19, 1.4, 1.6], factor=FAR)
    assert panel.get_xscale() == "linear"
    assert panel.get_xlim()[0] < -0.18


def test_a_line_that_goes_astray_does_not_flatten_the_others():
    """Its name and its largest value stand on the panel; its first values are among the others'."""
    panel = Figure().subplots()
    lines = {"a": [1.0, 2.0], "b": [1.5, 3.0], "astray": [1.0, -4e17, np.nan]}
    beyond = fit(panel, "y", lines)
    assert beyond == {"astray": -4e17}
    assert panel.get_ylim() == pytest.approx((1 - 0.16, 3 + 0.16))
    assert [text.get_text() for text in panel.texts] == ["beyond the axis: astray (-4e17)"]
    assert fit(panel, "y", {"a": [np.nan]}) == {}


@pytest.mark.parametrize(("scale", "ends"), [("linear", [-1e9, 1.5, 4.0]), ("log", [-1.0, 1.5, 4.0])])
def test_bars_are_seen_whole_unless_they_stretch_the_axis(scale, ends):
    panel = Figure().subplots()
    fit(panel, "x", {"a": [2.0, 3.0]}, ends, scale=scale)
    low, high = panel.get_xlim()
    assert 0.9 < low < 1.5
    assert 4.0 < high < 5.0


@pytest.mark.parametrize(("last", "label"), [(90, "30"), (100, "10"), (1e6, "$\\mathdefault{10^{4}}$")])
def test_labels_are_numbers_where_they_are_few(last, label):
    panel = Figure().subplots()
    panel.set(yscale="log", ylim=(1, last))
    label_logs(panel.yaxis, last)
    assert label in [text.get_text() for text in panel.get_yticklabels()]
    assert not any(text.get_text() for text in panel.get_yticklabels(minor=True))


@pytest.mark.parametrize(("value", "text"), [(4.24e17, "4.2e17"), (1512.0, "1512"), (-3e-9, "-3e-9"), (42.0, "42")])
def test_numbers_are_brief(value, text):
    assert brief(value) == text


def test_entries_look_different():
    found = [tuple(map(str, look.values())) for look in styles(map(str, range(27))).values()]
    assert len({(color, line) for color, _, line in found}) == 27


def test_panels_that_are_not_used_are_removed():
    figure, panels = grid(5, (2, 2))
    assert figure.axes == panels
    assert [panel.get_subplotspec().colspan.start for panel in panels] == [0, 1, 2, 3, 0]


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


def test_panels_with_nothing_below_have_numbers():
    _, panels = grid(5, (2, 2), sharex=True)
    shown = [panel.xaxis.get_tick_params()["labelbottom"] for panel in panels]
    assert shown == [False, True, True, True, True]


def test_long_titles_are_broken_at_the_width_of_the_figure(tmp_path):
    figure = Figure(figsize=(4, 3))
    figure.suptitle("SGD\n" + "word " * 20)
    save({"a": lambda: figure}, tmp_path)
    figure.canvas.draw()
    first, *lines = figure._suptitle._get_wrapped_text().splitlines()
    assert first == "SGD"
    assert len(lines) > 1
    box = figure._suptitle.get_window_extent()
    assert box.x1 < figure.bbox.x1
