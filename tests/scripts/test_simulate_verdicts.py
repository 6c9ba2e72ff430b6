"""The test of a printed number, simulated."""

import pytest
import simulate_verdicts


def test_the_test_errs_as_often_as_it_says():
    """The full table is in docs/verdicts.md; 500 comparisons have a standard error of 1 %."""
    for statistic in ("mean", "median"):
        given_splits, welch = simulate_verdicts.simulate(statistic, 0.8, 3, False, 500)
        assert given_splits.level <= 0.06 + 0.02
        assert given_splits.power_full > 0.15
        assert welch.power_full < 0.02


def test_power_and_errors_of_medians_are_those_of_the_document():
    """Of 2,000 simulations, whose standard errors are about 1 %."""
    assert simulate_verdicts.simulate_power(5, 0.2, 2000) == pytest.approx(0.71, abs=0.03)
    errors = simulate_verdicts.simulate_median_errors(2000)
    assert errors.mean_excess == pytest.approx(0.036, abs=0.06)
    assert errors.rms_excess > errors.mean_excess
    assert errors.coverage == pytest.approx(0.944, abs=0.02)
