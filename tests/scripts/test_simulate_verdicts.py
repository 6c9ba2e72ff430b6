"""The test of a printed number, simulated."""

import simulate_verdicts


def test_the_test_errs_as_often_as_it_says():
    """The full table is in docs/verdicts.md; 500 comparisons have a standard error of 1 %."""
    for statistic in ("mean", "median"):
        given_splits, welch = simulate_verdicts.simulate(statistic, 0.8, 3, False, 500)
        assert given_splits.level <= 0.06 + 0.02
        assert given_splits.power_full > 0.15
        assert welch.power_full < 0.02
