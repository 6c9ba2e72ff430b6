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


def test_power_is_that_of_the_document():
    """Of 2,000 simulations, whose standard error is about 1 %."""
    assert simulate_verdicts.simulate_power(5, 0.2, 2000) == pytest.approx(0.71, abs=0.03)


def test_errors_of_medians_are_those_of_the_document():
    """Of 6,000 simulations; a standard error has a standard deviation of 30 %."""
    assert simulate_verdicts.compute_median_deviation(2) == pytest.approx(1 / 2**0.5, rel=1e-4)
    errors = simulate_verdicts.simulate_median_errors(6000)
    assert errors.mean_excess == pytest.approx(0.035, abs=4 * 0.3 / 6000**0.5)
    assert errors.rms_excess == pytest.approx(0.08, abs=4 * 0.3 / 6000**0.5)
    assert errors.coverage == pytest.approx(0.945, abs=4 * (0.945 * 0.055 / 6000) ** 0.5)
