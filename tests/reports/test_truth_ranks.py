"""Histograms of ranks: bins, the envelope of uniform ranks, and what is beyond it."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from bdl.metrics.parameters import TruthRank
from bdl.reports.distributions import RankedTruth, truth_rank_figure, truth_ranks
from bdl.spec.labels import MetricName


def ranked(ranks, draws=99) -> RankedTruth:
    return RankedTruth("linear", "own", "parameter 0", np.asarray(ranks, dtype=float), draws)


@pytest.mark.parametrize("draws", [99, 7, 30])
def test_every_rank_is_in_one_bin(draws):
    one = ranked(np.repeat(np.arange(draws + 1), 3), draws)
    assert one.counts.sum() == 3 * (draws + 1)
    assert np.array_equal(one.counts, 3 * np.diff(one.edges)), "bins of more ranks hold more"
    assert one.inside


def test_the_envelope_holds_uniform_ranks_as_often_as_it_says():
    """Of 2000 histograms; each bar has the binomial quantiles of 0.05 / 2 / 20."""
    generator = np.random.default_rng(0)
    histograms = [ranked(generator.integers(0, 100, 300)) for _ in range(2000)]
    low, high = histograms[0].envelope
    assert (low[0], high[0]) == tuple(binom.ppf([0.00125, 0.99875], 300, 0.05))
    share = np.mean([one.inside for one in histograms])
    assert 0.95 - 3 * (0.05 * 0.95 / 2000) ** 0.5 < share < 0.99


def test_ranks_are_gathered_by_quantity_and_drawn(make_benchmark, make_trials):
    metrics = [MetricName.read({"name": "truth_rank", "of": of, "index": 0}) for of in ("parameter", "function")]
    benchmark = make_benchmark(datasets=["energy"], metrics=metrics)
    values = np.arange(300) % 100
    rows = make_trials("energy", "vifa-lr", values.astype(float), ["ok"] * 299 + ["failed"])
    rows = rows.assign(truth_rank_parameter_0=values * 1.0, truth_rank_function_0=np.minimum(values, 5) * 1.0)
    found = truth_ranks(benchmark, rows)
    assert [(one.entry, one.quantity, one.ranks.size) for one in found] == [
        ("vifa-lr", "parameter 0", 299),
        ("vifa-lr", "function 0", 299),
    ]
    assert [one.inside for one in found] == [True, False]
    assert found[0].draws == TruthRank().draws
    figure = truth_rank_figure(benchmark, found)
    assert [panel.get_title(loc="left") for panel in figure.axes] == ["vifa-lr", "vifa-lr"]
    assert [sum(bar.get_height() for bar in panel.patches[1:]) for panel in figure.axes] == [299, 299]
    assert truth_ranks(SimpleNamespace(**vars(benchmark) | {"axes": ("model.hidden",)}), pd.DataFrame()) == []
