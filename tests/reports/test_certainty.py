"""Figures of calibration, of the most certain rows, and of predictions that may be refused."""

import numpy as np
import pandas as pd

from bdl.registry import Label
from bdl.reports.certainty import (
    SENSITIVITIES,
    SHARES,
    LabelPredictions,
    coverage_drawings,
    errors_at_shares,
    referred_shares,
    refusal_drawings,
    selective_drawings,
)
from bdl.reports.comparison import compare_with_papers

from .conftest import make_benchmark, make_trials, titles


def cells_of(datasets, scores, metrics):
    """Benchmark and cells of entries with means by metric."""
    benchmark = make_benchmark(
        datasets=datasets, entries=dict.fromkeys(scores), metrics=metrics, papers=[]
    )
    rows = [
        make_trials(
            dataset,
            entry,
            [1.0, 1.0],
            **{name: [mean - 0.01, mean + 0.01] for name, mean in own.items()},
        )
        for dataset in datasets
        for entry, own in scores.items()
    ]
    return benchmark, compare_with_papers(benchmark, pd.concat(rows))


def test_mean_coverages_stand_at_their_levels_in_order():
    """One level is no curve."""
    levels = {"coverage_0.95": 0.95, "coverage": 0.9, "coverage_0.5": 0.5}
    metrics = [Label(text, "coverage", {"level": level}) for text, level in levels.items()]
    shares = {"vifa": (0.9, 0.8, 0.3), "swag": (1.0, 1.0, 0.7)}
    scores = {
        entry: dict(zip(levels, entry_means, strict=True)) for entry, entry_means in shares.items()
    }
    assert coverage_drawings(*cells_of(["yacht", "wine"], scores, metrics[:1])) == {}
    drawings = coverage_drawings(*cells_of(["yacht", "wine"], scores, metrics))
    assert list(drawings) == ["calibration"]
    figure = drawings["calibration"]()
    assert titles(figure) == ["yacht", "wine"]
    for panel in figure.axes:
        for drawn, entry_means in zip(panel.containers, scores.values(), strict=True):
            expected = sorted((levels[name], share) for name, share in entry_means.items())
            np.testing.assert_allclose(drawn.lines[0].get_xydata(), expected)
        np.testing.assert_array_equal(panel.lines[0].get_xydata(), [[0, 0], [1, 1]])


def test_scores_of_the_most_certain_rows_are_drawn_along_the_share_for_each_order():
    """A score with one share has no figure."""
    scores = {
        ("accuracy", 1.0, "entropy"): 0.8,
        ("accuracy", 0.5, "entropy"): 0.99,
        ("accuracy", 0.8, "entropy"): 0.9,
        ("accuracy", 0.5, "disagreement"): 0.97,
        ("f1", 0.5, "entropy"): 0.9,
    }
    metrics = [
        Label(f"{name}_{kept}_{by}", name, {"kept": kept, "by": by}) for name, kept, by in scores
    ]
    metrics[0] = Label("accuracy", "accuracy", metrics[0].settings)
    by_metric = dict(zip(map(str, metrics), scores.values(), strict=True))
    drawings = selective_drawings(*cells_of(["eyes"], {"vifa": by_metric}, metrics))
    assert list(drawings) == ["selective-accuracy"]
    figure = drawings["selective-accuracy"]()
    assert titles(figure) == ["eyes, by entropy", "eyes, by disagreement"]
    by_entropy, by_disagreement = (
        panel.containers[0].lines[0].get_xydata() for panel in figure.axes
    )
    np.testing.assert_allclose(by_entropy, [[0.5, 0.99], [0.8, 0.9], [1, 0.8]])
    np.testing.assert_allclose(by_disagreement, [[0.5, 0.97], [1, 0.8]])


BENCHMARK = make_benchmark(datasets=["eyes"], entries={"vifa": {}, "adam": {}}, papers=[])


def fit(p, labels, entry="vifa", risks=None):
    """Predictions with probabilities `p` of class 1."""
    p = np.asarray(p, dtype=float)
    orders = dict.fromkeys(
        ("entropy", "disagreement"), np.linspace(0, 0.3, len(p)) if risks is None else risks
    )
    return LabelPredictions("eyes", entry, np.stack([1 - p, p], 1), np.asarray(labels), orders)


def test_a_sensitivity_costs_what_lies_above_its_threshold():
    """Of ten positive rows the eighth, ninth and tenth have 2, 4 and 10 of ten negative ones above them."""
    positive = [0.99, 0.98, 0.97, 0.96, 0.95, 0.94, 0.93, 0.7, 0.5, 0.05]
    negative = [0.8, 0.75, 0.6, 0.55, 0.4, 0.3, 0.2, 0.15, 0.1, 0.06]
    share = dict(
        zip(
            SENSITIVITIES.round(3),
            referred_shares(fit([*positive, *negative], [1] * 10 + [0] * 10)),
            strict=True,
        )
    )
    assert share[0.8] == (8 + 2) / 20
    assert share[0.805] == share[0.9] == (9 + 4) / 20
    assert share[0.905] == share[1.0] == 1.0
    as_probable = fit([0.5] * 4, [1, 1, 0, 0])
    assert referred_shares(as_probable).tolist() == [1.0] * len(SENSITIVITIES)


def test_errors_are_those_of_as_many_rows_as_are_kept():
    errors = dict(zip(SHARES.round(2), errors_at_shares(np.arange(1.0, 51.0)), strict=True))
    assert (errors[0.1], errors[0.5], errors[0.99], errors[1.0]) == (5, 25, 49, 50)


def test_lines_are_means_over_splits_with_bands_of_a_standard_error():
    fits = [fit([0.9, 0.1], [1, 0], risks=np.array([value, value])) for value in (0.1, 0.2, 0.6)]
    figure = refusal_drawings(BENCHMARK, fits)["refusal-risk"]()
    assert titles(figure) == ["eyes, by entropy", "eyes, by disagreement"]
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), 0.3)
    heights = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]
    se = np.std([0.1, 0.2, 0.6], ddof=1) / np.sqrt(3)
    np.testing.assert_allclose([heights.min(), heights.max()], [0.3 - se, 0.3 + se])


def test_reliability_takes_the_rows_of_all_splits_together():
    fits = [fit([0.95, 0.95], [1, 1]), fit([0.95, 0.05], [0, 0]), fit([0.62, 0.6], [1, 0], "adam")]
    figure = refusal_drawings(BENCHMARK, fits)["refusal-reliability"]()
    vifa, adam = figure.axes
    np.testing.assert_allclose(vifa.lines[1].get_xydata(), [[0.95, 0.75]])
    np.testing.assert_allclose(adam.lines[1].get_xydata(), [[0.6, 0], [0.62, 1]])
    assert titles(figure) == ["vifa", "adam"]


def test_referral_is_of_two_classes_alone():
    two = fit([0.9, 0.2, 0.4], [1, 1, 0])
    drawings = refusal_drawings(BENCHMARK, [two])
    assert [*drawings] == ["refusal-risk", "refusal-reliability", "refusal-referral"]
    (panel,) = drawings["refusal-referral"]().axes
    np.testing.assert_allclose(panel.lines[0].get_xydata()[[0, -1]], [[0.8, 1.0], [1.0, 1.0]])
    # a fit of rows without a positive one has no sensitivity, and no part in the mean
    negatives = fit([0.9, 0.2, 0.4], [0, 0, 0])
    (mixed,) = refusal_drawings(BENCHMARK, [two, negatives])["refusal-referral"]().axes
    np.testing.assert_array_equal(mixed.lines[0].get_xydata(), panel.lines[0].get_xydata())
    three = two._replace(probabilities=np.full((3, 3), 1 / 3))
    assert [*refusal_drawings(BENCHMARK, [three])] == ["refusal-risk", "refusal-reliability"]
