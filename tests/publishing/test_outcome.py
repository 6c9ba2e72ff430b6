"""Tables and figures show what rows have."""

import numpy as np
import pandas as pd
import pytest

from bdl.publishing.outcome import narrowed
from bdl.spec import load_benchmark


@pytest.fixture
def rows():
    return pd.DataFrame(
        {
            "dataset": ["boston"],
            "entry": ["vifa-nn"],
            "nmll": [2.7],
            "rmse": [np.nan],
            "status": ["ok"],
            "reason": [None],
        }
    )


def test_what_no_row_has_is_left_out(rows):
    shown = narrowed(load_benchmark("uci-regression"), rows)
    assert (shown.datasets, tuple(shown.entries), shown.metrics) == (("boston",), ("vifa-nn",), ("nmll",))


def test_where_every_trial_failed_all_metrics_are_shown(rows):
    benchmark = load_benchmark("uci-regression")
    assert narrowed(benchmark, rows.assign(nmll=np.nan)).metrics == benchmark.metrics
