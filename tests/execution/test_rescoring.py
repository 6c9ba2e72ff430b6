"""A score that is added to a benchmark needs no training."""

import json
from dataclasses import replace

import numpy as np
import pytest

from bdl.execution.executor import InProcessExecutor
from bdl.execution.rescoring import rescore
from bdl.execution.runner import run
from bdl.plan.cell import plan
from bdl.spec import load_benchmark
from bdl.store.store import Row, Store

SMALL = [
    "splits=3",
    "entries.vifa-lr.search=null",
    "entries.vifa-lr.hyper={learning_rate: 0.01, prior_precision: 1, noise_precision: 0.0003}",
    "entries.vifa-lr.training.epochs=1",
    "evaluation.samples=5",
]
QUIET = type("Quiet", (), {name: lambda self, *args: None for name in ("begin", "advance")})


class Ear(QUIET):
    """A listener that remembers which splits were fitted."""

    def __init__(self):
        self.fitted = []

    def stored(self, cell, rows):
        self.fitted += [row.split for row in rows]


def cells(metrics, splits=(0, 1)):
    benchmark = load_benchmark("uci-regression", "quick", [*SMALL, f"metrics={json.dumps(metrics)}"])
    return plan(benchmark.select(entries=["vifa-lr"]), splits=splits, compile=False)


def go(store, metrics, splits=(0, 1)):
    ear = Ear()
    run(cells(metrics, splits), store, InProcessExecutor(), ear)
    return store.rows("final", "diabetes", "vifa-lr"), ear.fitted


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


def test_an_added_metric_is_that_of_a_run_which_had_it_from_the_start(store, tmp_path):
    before, fitted = go(store, ["nmll", "runtime"])
    assert fitted == [0, 1]
    kept = store.predictions("diabetes", "vifa-lr", 0)
    after, fitted = go(store, ["joint_nll", "nmll", "rmse", "runtime"])
    assert fitted == []
    with Store(tmp_path / "other.sqlite") as other:
        expected, _ = go(other, ["joint_nll", "nmll", "rmse", "runtime"])
    for row, old, fresh in zip(after, before, expected, strict=True):
        assert row.metrics == fresh.metrics | {"runtime": old.metrics["runtime"]}
        assert replace(row, metrics=old.metrics) == old, "all else is as it was"
    np.testing.assert_array_equal(store.predictions("diabetes", "vifa-lr", 0), kept)


def test_the_other_splits_are_fitted_and_all_are_scored(store):
    go(store, ["nmll"], splits=(1,))
    rows, fitted = go(store, ["nmll", "rmse"], splits=(0,))
    assert fitted == [0]
    assert [(row.split, {*row.metrics}) for row in rows] == [(n, {"nmll", "rmse", "runtime"}) for n in (0, 1)]


def test_a_metric_that_is_taken_away_stays_in_the_rows(store):
    before, _ = go(store, ["nmll", "rmse"])
    assert go(store, ["rmse"]) == (before, [])


def row(split=0, **changes):
    known = {"status": "ok", "reason": None, "hyper": {"noise_precision": 1.0}, "metrics": {"rmse": 3.0}}
    return Row("diabetes", "vifa-lr", "final", split, 0, 0, seconds=1.0, details={}, **(known | changes))


def test_rows_that_failed_and_rows_with_moments_are_left_alone(store):
    """The distances of a benchmark are not part of its hash, so that its store may be met with predictive metrics."""
    failed = row(0, status="failed", reason="diverged", metrics={})
    moments = row(1, metrics={"rel_mean_dist": 0.1, "rel_mean_dist_mcse": 0.01}, predictions=np.eye(12)[:, :11])
    store.append([failed, moments])
    rescore(cells(["nmll", "rmse"])[0], store)
    assert store.rows("final", "diabetes", "vifa-lr") == [failed, moments]


def test_what_there_is_is_not_overwritten_and_a_score_that_is_not_finite_is_none(store):
    (cell,) = cells(["rmse", "nmll"])
    outputs = np.full((2, len(cell.data.split(0).test)), np.inf, dtype=np.float32)
    store.append([row(0, predictions=outputs)])
    rescore(cell, store)
    assert [found.metrics for found in store.rows("final", "diabetes", "vifa-lr")] == [{"rmse": 3.0, "nmll": None}]
