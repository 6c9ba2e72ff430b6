"""Figures of predictions that may be refused: known answers of what they draw."""

import numpy as np
import pytest

from bdl.reports.certainty import (
    SENSITIVITIES,
    SHARES,
    Labelled,
    at_shares,
    referral_figure,
    referred,
    refusal_drawings,
    reliability_figure,
    risk_figure,
)


def fit(p, labels, entry="vifa", risks=None):
    """Predictions with probabilities `p` of class 1."""
    p = np.asarray(p, dtype=float)
    orders = dict.fromkeys(("entropy", "disagreement"), np.linspace(0, 0.3, len(p)) if risks is None else risks)
    return Labelled("eyes", entry, np.stack([1 - p, p], 1), np.asarray(labels), orders)


@pytest.fixture
def benchmark(make_benchmark):
    return make_benchmark(datasets=["eyes"], entries={"vifa": {}, "adam": {}}, papers=[])


def test_a_sensitivity_costs_what_lies_above_its_threshold():
    """Of ten positive rows the eighth, ninth and tenth have 2, 4 and 10 of ten negative ones above them."""
    positive = [0.99, 0.98, 0.97, 0.96, 0.95, 0.94, 0.93, 0.7, 0.5, 0.05]
    negative = [0.8, 0.75, 0.6, 0.55, 0.4, 0.3, 0.2, 0.15, 0.1, 0.06]
    share = dict(zip(SENSITIVITIES.round(3), referred(fit([*positive, *negative], [1] * 10 + [0] * 10)), strict=True))
    assert share[0.8] == (8 + 2) / 20
    assert share[0.805] == share[0.9] == (9 + 4) / 20
    assert share[0.905] == share[1.0] == 1.0


def test_rows_as_probable_as_the_threshold_are_referred():
    assert referred(fit([0.5] * 4, [1, 1, 0, 0])).tolist() == [1.0] * len(SENSITIVITIES)


def test_errors_are_those_of_as_many_rows_as_are_kept():
    found = dict(zip(SHARES.round(2), at_shares(np.arange(1.0, 51.0)), strict=True))
    assert (found[0.1], found[0.5], found[0.99], found[1.0]) == (5, 25, 49, 50)


def test_lines_are_means_over_splits_with_bands_of_a_standard_error(benchmark):
    fits = [fit([0.9, 0.1], [1, 0], risks=np.array([value, value])) for value in (0.1, 0.2, 0.6)]
    figure = risk_figure(benchmark, fits)
    by_entropy, by_disagreement = figure.axes
    assert by_entropy.get_title(loc="left") == "eyes, by entropy"
    assert by_disagreement.get_title(loc="left") == "eyes, by disagreement"
    np.testing.assert_allclose(by_entropy.lines[0].get_ydata(), 0.3)
    heights = by_entropy.collections[0].get_paths()[0].vertices[:, 1]
    se = np.std([0.1, 0.2, 0.6], ddof=1) / np.sqrt(3)
    np.testing.assert_allclose([heights.min(), heights.max()], [0.3 - se, 0.3 + se])


def test_reliability_takes_the_rows_of_all_splits_together(benchmark):
    fits = [fit([0.95, 0.95], [1, 1]), fit([0.95, 0.05], [0, 0]), fit([0.62, 0.6], [1, 0], "adam")]
    vifa, adam = reliability_figure(benchmark, fits).axes
    np.testing.assert_allclose(vifa.lines[1].get_xydata(), [[0.95, 0.75]])
    np.testing.assert_allclose(adam.lines[1].get_xydata(), [[0.6, 0], [0.62, 1]])
    assert [panel.get_title(loc="left") for panel in (vifa, adam)] == ["vifa", "adam"]


def test_referral_is_of_two_classes_alone(benchmark):
    fits = [fit([0.9, 0.2, 0.4], [1, 1, 0])]
    assert [*refusal_drawings(benchmark, fits)] == ["refusal-risk", "refusal-reliability", "refusal-referral"]
    (panel,) = referral_figure(benchmark, fits).axes
    np.testing.assert_allclose(panel.lines[0].get_xydata()[[0, -1]], [[0.8, 1.0], [1.0, 1.0]])
    three = fits[0]._replace(probabilities=np.full((3, 3), 1 / 3))
    assert [*refusal_drawings(benchmark, [three])] == ["refusal-risk", "refusal-reliability"]
