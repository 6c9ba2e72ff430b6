"""Ranks, intervals and smallest differences by known answers."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats

from bdl.reports.overall_standing import (
    IntervalEstimate,
    SplitScores,
    bootstrap_ranks,
    compare_hierarchically,
    compare_pairs,
    critical_difference,
    critical_groups,
    dataset_means,
    expanded_tail,
    normalise_scores,
    pareto_front,
    rank_methods,
    smallest_difference,
    win_rates,
)

HAND = SplitScores(
    ("one", "two"),
    ("a", "b", "c"),
    (
        np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [1.0, 4.0, 3.0]]),  # means 1, 2.67, 3
        np.array([[5.0, 4.0, 9.0], [3.0, 4.0, 9.0]]),  # means 4, 4, 9
    ),
)


def random_scores(entries=4, datasets=5, splits=8, seed=0):
    generator = np.random.default_rng(seed)
    tables = [
        np.arange(entries) / 2 + generator.normal(size=(splits, entries)) for _ in range(datasets)
    ]
    names = tuple(f"set{i}" for i in range(datasets))
    return SplitScores(names, tuple("abcdefgh"[:entries]), tuple(tables))


def test_ranks_normalised_scores_and_wins_by_hand():
    means = dataset_means(HAND)
    np.testing.assert_array_equal(rank_methods(means), [[1, 2, 3], [1.5, 1.5, 3]])
    np.testing.assert_allclose(normalise_scores(means), [[1, 0, 0], [1, 1, 0]])
    # a beats b on all three splits of one, and on one of two of the other
    assert win_rates(HAND)[0, 1] == pytest.approx((1 + 1 / 2) / 2)
    assert win_rates(HAND)[1, 2] == pytest.approx((2 / 3 + 1) / 2)
    np.testing.assert_allclose(win_rates(HAND) + win_rates(HAND).T, 1)


def test_identical_methods_have_one_rank_and_no_difference():
    scores = random_scores()
    values = tuple(np.concatenate([table, table[:, :1]], 1) for table in scores.scores)
    twins = scores._replace(entries=("a", "b", "c", "d", "twin"), scores=values)
    bootstrap = bootstrap_ranks(twins, 200)
    assert bootstrap.rank_interval(0) == bootstrap.rank_interval(4)
    assert bootstrap.rank_difference(0, 4) == IntervalEstimate(0.0, 0.0, 0.0)
    pairs = {(pair.entry, pair.other): pair for pair in compare_pairs(twins, [0.1] * 5)}
    assert not pairs["a", "twin"].shown
    same = [table[:, 0] - table[:, 0] for table in twins.scores]
    assert compare_hierarchically(same, [0.1] * 5, 0.05).alike == 1


def test_the_order_of_methods_does_not_matter():
    scores = random_scores()
    order = ("c", "a", "d", "b")
    forwards, permuted = bootstrap_ranks(scores, 200), bootstrap_ranks(scores.select(order), 200)
    for i, entry in enumerate(order):
        j = scores.entries.index(entry)
        assert permuted.rank_interval(i) == forwards.rank_interval(j)
        assert permuted.normalised_interval(i) == pytest.approx(forwards.normalised_interval(j))


def test_shift_and_scale_of_a_data_set_do_not_matter():
    scores = random_scores()
    moved = scores._replace(
        scores=tuple(10.0**i * table + i for i, table in enumerate(scores.scores))
    )
    bootstrap, after = bootstrap_ranks(scores, 200), bootstrap_ranks(moved, 200)
    np.testing.assert_array_equal(after.rank_samples, bootstrap.rank_samples)
    np.testing.assert_allclose(after.normalised_samples, bootstrap.normalised_samples, atol=1e-9)
    np.testing.assert_array_equal(win_rates(moved), win_rates(scores))


@pytest.mark.parametrize(("ranked", "worst"), [("abc", 4.0), ("ac", 3.0)])
def test_failures_count_as_the_worst_score_of_a_ranked_entry(ranked, worst):
    tables = HAND.scores[0].copy(), HAND.scores[1]
    tables[0][0, 0] = np.nan
    filled = HAND._replace(scores=tables).with_failures_as_worst(ranked)
    assert filled.scores[0][0, 0] == worst
    np.testing.assert_array_equal(filled.scores[1], HAND.scores[1])


@pytest.mark.parametrize(("entries", "quantile"), [(3, 2.343), (5, 2.728), (10, 3.164)])
def test_critical_differences_are_those_that_demsar_prints(entries, quantile):
    """Journal of Machine Learning Research 7 (2006), Table 5."""
    expected = quantile * np.sqrt(entries * (entries + 1) / (6 * 30))
    assert critical_difference(entries, 30) == pytest.approx(expected, rel=3e-4)


def test_one_unit_has_no_interval():
    one_split = SplitScores(("set",), ("a", "b"), (np.array([[1.0, 2.0]]),))
    rank = bootstrap_ranks(one_split, 10).rank_interval(0)
    assert rank.value == 1.0
    assert np.isnan([rank.low, rank.high]).all()


def test_critical_groups_are_the_largest_runs_of_ranks():
    ranks = np.array([5.0, 1.0, 2.0, 3.5, 9.0])
    assert critical_groups(ranks, 2.0) == [(1, 2), (2, 3), (3, 0)]
    assert critical_groups(ranks, 2.5) == [(1, 2, 3), (3, 0)]
    assert critical_groups(ranks, 0.5) == []
    assert critical_groups(ranks, 8.0) == [(1, 2, 3, 0, 4)]


def test_the_front_has_what_nothing_beats_in_both():
    costs, ranks = np.array([1.0, 2.0, 3.0, 2.0]), np.array([5.0, 3.0, 4.0, 3.0])
    np.testing.assert_array_equal(pareto_front(costs, ranks), [True, True, False, True])


def test_few_data_sets_expand_intervals():
    assert expanded_tail(5) == pytest.approx(stats.norm.cdf(np.sqrt(5 / 4) * -2.776445), rel=1e-4)
    assert expanded_tail(10_000) == pytest.approx(0.025, rel=1e-2)


@pytest.mark.parametrize("overlap", [0.0, 1 / 9])
def test_the_smallest_difference_is_found_with_the_stated_power(overlap):
    values = np.random.default_rng(1).normal(size=20)
    size = smallest_difference(values, overlap)
    se = values.std(ddof=1) * np.sqrt(1 / 20 + overlap)
    critical = stats.t.ppf(0.975, 19)
    power = stats.nct.sf(critical, 19, size / se) + stats.nct.cdf(-critical, 19, size / se)
    assert power == pytest.approx(0.8, abs=1e-4)


def test_pairs_have_the_corrected_interval_on_the_splits_that_both_finished():
    table = np.array([[1.0, 0.0], [2.0, 0.5], [np.nan, 3.0], [4.0, 1.0], [2.0, 1.9]])
    (pair,) = compare_pairs(SplitScores(("set",), ("a", "b"), (table,)), [0.1])
    values = np.array([1.0, 1.5, 3.0, 0.1])
    se = values.std(ddof=1) * np.sqrt(1 / 4 + 0.1)
    assert (pair.n, pair.difference) == (4, pytest.approx(1.4))
    assert pair.half_width == pytest.approx(stats.t.ppf(0.975, 3) * se)
    assert pair.shown == (pair.half_width < 1.4)
    assert pair.failures == (1, 0)
    few = SplitScores(("set",), ("a", "b"), (table[:2],))
    assert compare_pairs(few, [0.1]) == []


@pytest.mark.parametrize(("failing", "shown"), [(None, True), (0, False), (1, True)])
def test_a_pair_is_not_shown_by_the_failures_of_the_one_that_is_ahead(failing, shown):
    table = np.array([[0.0, 1.0], [0.1, 1.0], [0.0, 1.1], [0.1, 1.1]])
    if failing is not None:
        table[0, failing] = np.nan
    (pair,) = compare_pairs(SplitScores(("set",), ("a", "b"), (table,)), [0.1])
    assert pair.shown == shown


def test_the_hierarchical_model_by_hand_where_all_data_sets_are_alike():
    """With much smaller noise than spread, the mean has Student's t with J - 2 degrees of freedom.

    The flat prior on the scale tau, rather than on its logarithm, takes one more.
    """
    means = np.array([-1.0, -0.4, -0.7, -0.2, -0.9])
    noise = 1e-6 * np.array([-1.0, 0.0, 1.0, 0.5, -0.5])
    posterior = compare_hierarchically([mean + noise for mean in means], [0.0] * 5, 0.1)
    scale = np.sqrt(((means - means.mean()) ** 2).sum() / (5 * 3))
    expected = stats.t.cdf((-0.1 - means.mean()) / scale, 3)
    assert posterior.better == pytest.approx(expected, abs=2e-3)
    assert sum(posterior) == pytest.approx(1)
    swapped = compare_hierarchically([-mean - noise for mean in means], [0.0] * 5, 0.1)
    assert swapped == pytest.approx((posterior.worse, posterior.alike, posterior.better))


@pytest.mark.parametrize("blow_up", [1e2, 1e4, 8e7, 1e12, 1e153, 1e160])
def test_a_data_set_with_a_diverged_split_says_nothing_of_the_others(blow_up):
    """By quadrature over log tau, and without it if its square overflows."""
    generator = np.random.default_rng(0)
    differences = [-0.2 + 0.05 * generator.standard_normal(20) for _ in range(5)]
    differences[4][3] = blow_up
    overlaps = [0.11] * 5
    posterior = compare_hierarchically(differences, overlaps, 0.05)
    others = compare_hierarchically(differences[:4], overlaps[:4], 0.05)
    assert posterior.better == pytest.approx(others.better, abs=1e-3)
    if blow_up == 1e4:
        assert posterior.better == pytest.approx(_integrate_better(differences, 0.05), abs=1e-4)


def _integrate_better(differences, margin):
    """Integrate over tau by parts of the axis, with the formulas of the model alone."""
    means = np.array([values.mean() for values in differences])
    variances = np.array(
        [19 / 17 * values.var(ddof=1) * (1 / 20 + 0.11) for values in differences]
    )

    def densities(tau):
        total = variances + tau**2
        precision = (1 / total).sum()
        mu = (means / total).sum() / precision
        density = np.exp(-((means - mu) ** 2 / total).sum() / 2)
        density /= np.sqrt(precision) * np.sqrt(total / 0.01).prod()
        return density, density * stats.norm.cdf((-margin - mu) * np.sqrt(precision))

    ends = [0, *np.logspace(-5, 8, 27)]
    sums = np.zeros(2)
    for low, high in pairwise(ends):
        for k in (0, 1):
            sums[k] += integrate.quad(lambda tau, k=k: densities(tau)[k], low, high)[0]
    return sums[1] / sums[0]


def test_fewer_than_three_data_sets_that_do_not_overflow_have_no_posterior():
    overflowing, other = np.array([1e160, 0, 2]), np.array([-0.2, -0.21, -0.19])
    for n_others in (0, 1, 2):
        differences = [other] * n_others + [overflowing] * (3 - n_others)
        assert np.isnan(compare_hierarchically(differences, [0.1] * 3, 0.05)).all()
