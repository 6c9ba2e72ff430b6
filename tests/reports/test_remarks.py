"""A remark stands below the title of every figure."""

import warnings

import numpy as np
import pytest
from matplotlib.figure import Figure

from bdl.reports import compare
from bdl.reports.figures import Shown, draw_figures, save

REMARK = (
    "Not the protocol: 1 of 20 splits (0); entries.vifa-lr.training.epochs=2; entries.vifa-lr.training.batch_size=3."
)


def lines(figure):
    """Return the title as it is broken where it is drawn."""
    figure.canvas.draw()
    return figure._suptitle._get_wrapped_text().split("\n")


@pytest.mark.parametrize("title", ["A title", ""])
def test_every_figure_has_the_remark(tmp_path, title):
    figures = [Figure() for _ in range(3)]
    for figure in figures[:2]:
        figure.suptitle(title)
    save({f"{i}": lambda figure=figure: figure for i, figure in enumerate(figures[:2])}, tmp_path, remark=REMARK)
    save({"2": lambda: figures[2]}, tmp_path)
    for figure in figures[:2]:
        assert figure.get_suptitle().split("\n") == [title] * bool(title) + [REMARK]
        assert len(lines(figure)) > len(figure.get_suptitle().split("\n"))
    assert figures[2].get_suptitle() == ""


def test_a_long_remark_is_cut_and_panels_keep_their_size(tmp_path, make_benchmark, make_trials, monkeypatch):
    """Of a figure with one panel of one row, the smallest there is."""
    drawn, write = [], Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda own, *args, **how: (drawn.append(own), write(own, *args, **how)))
    benchmark = make_benchmark(datasets=["energy"], entries={"vifa-lr": {}}, metrics=["nmll"], papers=[])
    cells = compare(benchmark, make_trials("energy", "vifa-lr", np.arange(3.0)))
    draw_figures(Shown(benchmark, cells), tmp_path / "plain")
    remark = f"Not the protocol: {'; '.join(f'a.field.{i}={i}' for i in range(200))}."
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw_figures(Shown(benchmark, cells, remark=remark), tmp_path / "remarked")
    plain, remark = drawn[0], drawn[-1]
    assert remark.get_suptitle().endswith(" ...")
    assert len(lines(remark)) == len(lines(plain)) + 3
    assert remark._suptitle.get_window_extent().x1 <= remark.bbox.x1
    before, after = (figure.axes[0].get_window_extent() for figure in (plain, remark))
    assert after.height > 0.9 * before.height
    top = remark.axes[0].get_tightbbox().y1
    assert remark._suptitle.get_window_extent().y0 > top  # nothing is drawn over the panels
