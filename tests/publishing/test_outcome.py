"""Tables and figures show what rows have."""

import json

import numpy as np
import pandas as pd
import pytest

from bdl.archive.frames import folder
from bdl.archive.loading import load_results
from bdl.plan.planning import cells_of
from bdl.publishing import outcome
from bdl.publishing.outcome import narrowed
from bdl.spec import load_benchmark, load_variant
from bdl.store import Outcome, Row
from bdl.store.store import Store


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


def test_figures_of_a_sweep_have_the_posteriors_of_its_store(tmp_path, monkeypatch):
    """What was asked of a benchmark before, such as one of its points, makes it no other."""
    asked = load_variant("uci-regression", "quick", ["sweep={model.hidden: [[5], [7]]}", "splits=1"])
    cells = cells_of(asked.benchmark)
    with Store(folder(tmp_path, asked) / "store.sqlite") as store:
        store.remember(json.dumps(asked.dump()))
        for cell in cells:
            store.append([Outcome(Row(*cell.key, "final", 0, 0, 0, "ok", None, {}, {"nmll": 1.0}, 1.0, {}))])
    monkeypatch.setattr(outcome, "pictures", lambda cells, store: len(cells))
    found = load_results(asked, tmp_path)
    assert outcome.stored_pictures(found, asked) == len(cells)
