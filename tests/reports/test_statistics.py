from itertools import product

import numpy as np
import pytest
from scipy import stats

from bdl.reports.statistics import STATISTICS, mean_se, median_se


def test_mean_se_is_that_of_scipy():
    values = np.random.default_rng(0).normal(size=20)
    assert mean_se(values) == pytest.approx(stats.sem(values), rel=1e-14)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_median_se_is_the_bootstrap_over_every_resample(n):
    values = np.random.default_rng(n).normal(size=n)
    medians = [np.median(resample) for resample in product(values, repeat=n)]
    assert median_se(values) == pytest.approx(np.std(medians), rel=1e-12)


@pytest.mark.parametrize("n", [19, 20])
def test_median_se_is_the_limit_of_the_simulated_bootstrap(n):
    rng = np.random.default_rng(n)
    values = rng.normal(size=n)
    medians = np.median(rng.choice(values, (40_000, n)), axis=1)
    spread = np.abs(medians - medians.mean()) ** 2
    # Variance of a sample variance: (E[d^4] - E[d^2]^2) / resamples.
    assert abs(median_se(values) ** 2 - spread.mean()) < 4 * spread.std() / np.sqrt(spread.size)


def test_median_se_of_equal_values_is_zero():
    assert median_se(np.full(20, 2.5)) == pytest.approx(0.0, abs=1e-14)


def test_median_se_scales_and_ignores_shifts_and_order():
    values = np.random.default_rng(1).normal(size=20)
    assert median_se(3 * values[::-1] + 7) == pytest.approx(3 * median_se(values), rel=1e-12)


def test_locations_are_those_of_numpy():
    values = np.random.default_rng(2).normal(size=20)
    assert STATISTICS["mean"][0](values) == np.mean(values)
    assert STATISTICS["median"][0](values) == np.median(values)
