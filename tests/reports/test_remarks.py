"""A remark stands below the title of every figure, and nowhere after its block."""

import pytest
from matplotlib.figure import Figure

from bdl.reports.figures import remarked, save

REMARK = "Not the protocol: split 0 of 20; entries.vifa-lr.training.epochs=2; entries.vifa-lr.training.batch_size=3."


@pytest.mark.parametrize("title", ["A title", ""])
def test_every_figure_has_the_remark(tmp_path, title):
    figures = [Figure() for _ in range(3)]
    for figure in figures[:2]:
        figure.suptitle(title)
    with remarked(REMARK):
        save({f"{i}": lambda figure=figure: figure for i, figure in enumerate(figures[:2])}, tmp_path)
    save({"2": lambda: figures[2]}, tmp_path)
    for figure in figures[:2]:
        *before, first, last = figure.get_suptitle().split("\n")
        assert before == [title] * bool(title)
        assert f"{first} {last}" == REMARK
    assert figures[2].get_suptitle() == ""
