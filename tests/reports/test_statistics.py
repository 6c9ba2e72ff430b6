"""Standard errors against SciPy, resamples and formulas.

Values of a sweep as people and axes read them.
"""

import math
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import betainc

from bdl.reports.statistics import (
    format_setting,
    group_by_cell,
    median_se,
    parse_number,
    point_text,
)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_median_se_is_the_bootstrap_over_every_resample(n):
    values = np.random.default_rng(n).normal(size=n)
    medians = np.median(values[np.indices((n,) * n).reshape(n, -1)], axis=0)
    assert median_se(values) == pytest.approx(np.std(medians), rel=1e-12)


def test_median_se_of_equal_values_is_zero_and_it_scales_and_ignores_shifts_and_order():
    values = np.random.default_rng(1).normal(size=20)
    assert median_se(np.full(20, 2.5)) == pytest.approx(0.0, abs=1e-14)
    assert median_se(3 * values[::-1] + 7) == pytest.approx(3 * median_se(values), rel=1e-12)


@pytest.mark.parametrize("n", [5, 6])
def test_median_se_is_no_number_where_squares_overflow(n):
    values = np.append(np.linspace(2, 3, n - 1), 1e160)
    with np.errstate(over="ignore", invalid="ignore"):
        assert not math.isfinite(median_se(values))


def quadratic(values):
    """The formula of Maritz and Jarrett and of Efron as it stands, with a place for each pair of values."""
    ordered, n = np.sort(values), len(values)
    m = n // 2
    grid = np.arange(n + 1) / n
    lower = np.diff(betainc(m, n - m + 1, grid))
    reach = np.diff(grid**m)
    apart = np.triu(math.comb(n, m) * np.outer(reach, reach[::-1]), k=1)
    joint = apart + np.diag(lower - apart.sum(axis=1))
    medians = ordered[:, None] / 2 + ordered / 2
    return np.sqrt((joint * (medians - (joint * medians).sum()) ** 2).sum())


@pytest.mark.parametrize("n", [2, 20, 900])
@pytest.mark.parametrize("draw", ["normal", "standard_cauchy"])
def test_median_se_is_the_sum_over_all_pairs(n, draw):
    values = getattr(np.random.default_rng(n), draw)(size=n)
    assert median_se(values) == pytest.approx(quadratic(values), rel=1e-9)


@pytest.mark.parametrize("n", [300_000, 300_001])
def test_median_se_of_many_values_takes_memory_in_proportion(n):
    """A place for each pair would be 671 GiB.

    The standard error is that of a normal sample, sqrt(pi / 2n).
    """
    values = stats.norm.ppf((np.arange(n) + 0.5) / n)
    tracemalloc.start()
    found = median_se(values)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 * values.nbytes
    assert found == pytest.approx(math.sqrt(math.pi / 2 / n), rel=1e-4)


@pytest.mark.parametrize(
    ("text", "shown", "place"),
    [
        ("100", "100", 100.0),
        ("[50]", "50", 50.0),
        ("[50,20]", "50-20", None),
        ("[]", "", None),
        ("1e-05", "1e-05", 1e-5),
        ('"relu"', "relu", None),
        ("true", "true", None),
        ("null", "null", None),
        ('{"name":"decay","power":0.5}', "name=decay power=0.5", None),
    ],
)
def test_values_of_a_sweep(text, shown, place):
    assert format_setting(text) == shown
    assert parse_number(text) == place


def test_points_and_rows_of_a_sweep():
    assert point_text({"model.hidden": "[50]", "method.rank": "2"}) == "hidden = 50, rank = 2"
    rows = pd.DataFrame(
        {
            "model.hidden": ["[50]", "[100]", "[50]"],
            "method.rank": ["2", "2", "1"],
            "nmll": [1, 2, 3],
        }
    )
    rows = rows.assign(dataset="yacht", entry="vifa")
    groups = group_by_cell(rows, ("model.hidden", "method.rank"))
    assert groups["yacht", "vifa", "[50]", "2"]["nmll"].tolist() == [1]
    assert group_by_cell(rows, ())["yacht", "vifa"]["nmll"].tolist() == [1, 2, 3]
