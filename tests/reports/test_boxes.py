"""Boxplots of repeats: which there are, and that quartiles are NumPy's."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from bdl.reports.distributions import box_figure, boxes
from bdl.spec.sections import Preparation


@pytest.fixture
def repeats(make_benchmark, make_trials):
    """Six repeats of one entry, one of which failed, and four of the other."""
    benchmark = make_benchmark(preparation=Preparation(split="first"), datasets=["energy"])
    values = np.array([2.0, 3.0, 5.0, 9.0, 2.5, 99.0])
    rows = [
        make_trials("energy", "vifa-lr", values, ["ok"] * 5 + ["failed"]),
        make_trials("energy", "vifa-nn", [1.0, 2.0, 3.0, 4.0]),
    ]
    return benchmark, pd.concat(rows)


def test_five_repeats_make_a_box_of_predictive_scores(repeats):
    found = boxes(*repeats)
    assert [(box.entry, box.metric) for box in found] == [("vifa-lr", "nmll"), ("vifa-lr", "rmse")]
    assert found[0].values.tolist() == [2.0, 3.0, 5.0, 9.0, 2.5]


@pytest.mark.parametrize("changes", [{"preparation": Preparation(split="published")}, {"axes": ("model.hidden",)}])
def test_splits_and_sweeps_have_none(repeats, changes):
    benchmark, rows = repeats
    assert boxes(SimpleNamespace(**vars(benchmark) | changes), rows) == []


def test_a_box_has_quartiles_and_the_printed_mean(repeats):
    benchmark, rows = repeats
    figure = box_figure(benchmark, boxes(benchmark, rows)[:1])
    box, *_, printed = figure.axes[0].lines
    ends = np.quantile([2.0, 3.0, 5.0, 9.0, 2.5], [0.25, 0.75])
    assert (min(box.get_xdata()), max(box.get_xdata())) == pytest.approx(tuple(ends))
    assert list(printed.get_xdata()) == [2.57]  # Table 1 of the VIFA paper
    assert "20 repeats on one split" in figure.get_suptitle()
