"""Boxes of repeats, weights of a layer, and ranks of the truth: quartiles, bins and envelopes."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from bdl.metrics.parameters import TruthRank
from bdl.reports.distributions import (
    WEIGHT_BINS,
    LayerWeights,
    RankedTruth,
    box_drawings,
    gather_boxes,
    gather_truth_ranks,
    truth_rank_drawings,
    weight_drawings,
)
from bdl.spec.labels import MetricName
from bdl.spec.sections import Preparation

from .conftest import changed, make_benchmark, make_trials, titles

REPEATS = [2.0, 3.0, 5.0, 9.0, 2.5]


def test_five_repeats_make_a_box_with_quartiles_and_the_printed_mean():
    """Six repeats of one entry, one of which failed, and four of the other.

    Splits and sweeps have none.
    """
    benchmark = make_benchmark(preparation=Preparation(split="first"), datasets=["energy"])
    own = make_trials("energy", "vifa-lr", [*REPEATS, 99.0], ["ok"] * 5 + ["failed"])
    rows = pd.concat([own, make_trials("energy", "vifa-nn", [1.0, 2.0, 3.0, 4.0])])
    boxes = gather_boxes(benchmark, rows)
    assert [(box.entry, box.metric) for box in boxes] == [("vifa-lr", "nmll"), ("vifa-lr", "rmse")]
    assert boxes[0].values.tolist() == REPEATS
    figure = box_drawings(benchmark, boxes)["nmll-box"]()
    box, *_, printed = figure.axes[0].lines
    ends = np.quantile(REPEATS, [0.25, 0.75])
    assert (min(box.get_xdata()), max(box.get_xdata())) == pytest.approx(tuple(ends))
    assert list(printed.get_xdata()) == [2.57]  # Table 1 of the VIFA paper
    assert "20 repeats on one split" in figure.get_suptitle()
    for changes in ({"preparation": Preparation(split="published")}, {"axes": ("model.hidden",)}):
        assert gather_boxes(changed(benchmark, **changes), rows) == []


def test_bars_count_all_weights_and_boxes_have_the_quartiles():
    values = np.r_[np.linspace(-1, 1, 101), 40.0]
    own = [LayerWeights(*place, values) for place in (("a", "t"), ("b", "t"), ("a", "gaussian"))]
    drawings = weight_drawings(make_benchmark(), own)
    assert list(drawings) == ["weights-a", "weights-b"]
    figure = drawings["weights-a"]()
    assert titles(figure) == ["t", "gaussian"]
    panel = figure.axes[0]
    heights = [bar.get_height() for bar in panel.patches]
    assert len(heights) == WEIGHT_BINS
    assert (sum(heights), heights[-1]) == (102, 1), "the last is the outlier"
    box = panel.child_axes[0].lines
    np.testing.assert_allclose(sorted({*box[0].get_xdata()}), np.percentile(values, [25, 75]))
    assert 40 in box[-1].get_xdata(), "beyond the whiskers"
    assert panel.get_ylim()[1] > 102, "room for the box"


def ranked(ranks, draws=99) -> RankedTruth:
    return RankedTruth("linear", "own", "parameter 0", np.asarray(ranks, dtype=float), draws)


@pytest.mark.parametrize("draws", [99, 7, 30])
def test_every_rank_is_in_one_bin(draws):
    ranking = ranked(np.repeat(np.arange(draws + 1), 3), draws)
    assert ranking.counts.sum() == 3 * (draws + 1)
    assert np.array_equal(ranking.counts, 3 * np.diff(ranking.edges)), (
        "bins of more ranks hold more"
    )
    assert not ranking.outside_envelope.any()


def test_the_envelope_holds_uniform_ranks_as_often_as_it_says():
    """Of 2000 histograms; each bar has the binomial quantiles of 0.05 / 2 / 20."""
    generator = np.random.default_rng(0)
    histograms = [ranked(generator.integers(0, 100, 300)) for _ in range(2000)]
    low, high = histograms[0].envelope
    assert (low[0], high[0]) == tuple(binom.ppf([0.00125, 0.99875], 300, 0.05))
    share = np.mean([not ranking.outside_envelope.any() for ranking in histograms])
    assert 0.95 - 3 * (0.05 * 0.95 / 2000) ** 0.5 < share < 0.99


def test_ranks_are_gathered_by_quantity_and_drawn():
    metrics = [
        MetricName.read({"name": "truth_rank", "of": of, "index": 0})
        for of in ("parameter", "function")
    ]
    benchmark = make_benchmark(datasets=["energy"], metrics=metrics)
    values = np.arange(300.0) % 100
    rows = make_trials("energy", "vifa-lr", values, ["ok"] * 299 + ["failed"])
    rows = rows.assign(truth_rank_parameter_0=values, truth_rank_function_0=np.minimum(values, 5))
    rankings = gather_truth_ranks(benchmark, rows)
    places = [("vifa-lr", "parameter 0", 299), ("vifa-lr", "function 0", 299)]
    assert [
        (ranking.entry, ranking.quantity, ranking.ranks.size) for ranking in rankings
    ] == places
    assert not rankings[0].outside_envelope.any()
    assert rankings[1].outside_envelope.tolist() == [False] + [True] * 19, (
        "too many in the second bar, none in those above"
    )
    assert rankings[0].draws == TruthRank().draws
    figure = truth_rank_drawings(benchmark, rankings)["sbc-energy"]()
    assert titles(figure) == ["vifa-lr", "vifa-lr"]
    assert [sum(bar.get_height() for bar in panel.patches[1:]) for panel in figure.axes] == [
        299,
        299,
    ]
    assert gather_truth_ranks(changed(benchmark, axes=("model.hidden",)), pd.DataFrame()) == []
