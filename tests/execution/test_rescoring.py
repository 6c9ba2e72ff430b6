"""A score that is added to a benchmark, or has changed, needs no training."""

import json
from dataclasses import replace
from itertools import product

import pytest
import torch

from bdl.execution import scheduler
from bdl.execution.groups import FinalGroup
from bdl.execution.scoring import rescore
from bdl.methods.vifa import Vifa
from bdl.metrics.regression import Rmse
from bdl.plan.planning import plan_tasks
from bdl.plan.task import Task
from bdl.posteriors import DiagonalGaussian
from bdl.records import posterior_files
from bdl.records.row import FitResult, Row
from bdl.records.run_folder import RunFolder
from bdl.runtime import OverLimit
from bdl.spec import load_benchmark

from .listeners import run_here

SMALL = [
    "splits=3",
    "entries.vifa-lr.search=null",
    "entries.vifa-lr.hyper={learning_rate: 0.01, prior_precision: 1, noise_precision: 0.0003}",
    "entries.vifa-lr.training.epochs=1",
    "evaluation.samples=5",
]
CELL = ("diabetes", "vifa-lr", "{}")
NETWORK = (0, 1), "entries.vifa-lr.model={name: mlp, hidden: [2]}"
"""A model for whose ELBO draws are needed."""


def cells(metrics, splits=(0, 1), *overrides):
    benchmark = load_benchmark(
        "uci-regression", "check", [*SMALL, f"metrics={json.dumps(metrics)}", *overrides]
    )
    return plan_tasks(benchmark.select(entries=["vifa-lr"]), splits=splits, compile=False)


def go(store, metrics, splits=(0, 1), *overrides):
    """Run; the final rows, and the splits that were fitted."""
    ear = run_here(cells(metrics, splits, *overrides), store)
    return store.load_rows("final", CELL), [row.split for rows in ear.stored_rows for row in rows]


def fits(store):
    """The table of fits and the files of posteriors, byte for byte."""
    files = {path.name: path.read_bytes() for path in store.posteriors.folder.iterdir()}
    rows = [replace(row, metrics={}, refusals={}) for row in store.load_rows("final", CELL)]
    return rows, files


def test_an_added_metric_is_that_of_a_run_which_had_it_from_the_start(
    store, tmp_path, monkeypatch
):
    before, fitted = go(store, ["nmll", "runtime"], *NETWORK)
    assert fitted == [0, 1]
    kept = fits(store)
    with monkeypatch.context() as patch:
        patch.delattr(FinalGroup, "run")
        after, fitted = go(store, ["joint_nll", "nmll", "rmse", "neg_elbo", "runtime"], *NETWORK)
    assert fitted == []
    assert fits(store) == kept
    with RunFolder(tmp_path / "other") as other:
        expected, _ = go(other, ["joint_nll", "nmll", "rmse", "neg_elbo", "runtime"], *NETWORK)
    assert "neg_elbo_mcse" in expected[0].metrics
    for row, old, fresh in zip(after, before, expected, strict=True):
        assert row.metrics == fresh.metrics | {"runtime": old.metrics["runtime"]}
        assert row.score_hashes == fresh.score_hashes
        assert replace(row, metrics=old.metrics) == old, "all else is as it was"


def test_a_score_whose_code_has_changed_is_computed_again(store, monkeypatch):
    before, _ = go(store, ["nmll", "rmse"])
    kept = fits(store)

    identify = Task.score_hash

    def changed(cell, metric):
        return "changed" if metric == "rmse" else identify(cell, metric)

    original = Rmse.__call__
    monkeypatch.setattr(Rmse, "__call__", lambda self, evaluation: 2 * original(self, evaluation))
    again, _ = go(store, ["nmll", "rmse"])
    assert again == before, "unless its hash says so, it is not"
    monkeypatch.setattr(Task, "score_hash", changed)
    after, fitted = go(store, ["nmll", "rmse"])
    assert (fitted, fits(store)) == ([], kept)
    for old, row in zip(before, after, strict=True):
        assert row.metrics == old.metrics | {"rmse": 2 * old.metrics["rmse"]}
        assert row.score_hashes == old.score_hashes | {"rmse": "changed"}


def test_more_samples_are_drawn_and_added_splits_are_scored_without_training_others(store):
    before, _ = go(store, ["nmll", "rmse"], splits=(1,))
    assert go(store, ["rmse"], splits=(1,)) == (before, []), (
        "a metric that is taken away stays in the rows"
    )
    after, fitted = go(store, ["nmll", "rmse"], (0, 1), "evaluation.samples=50")
    assert fitted == [0]
    assert [(row.split, {*row.metrics}) for row in after] == [
        (n, {"nmll", "rmse", "runtime"}) for n in (0, 1)
    ]
    assert after[1].metrics["nmll"] != before[0].metrics["nmll"]


def row(split=0, **changes):
    known = {
        "status": "ok",
        "reason": None,
        "hyper": {"noise_precision": 1.0},
        "metrics": {"rmse": 3.0},
    }
    return Row(*CELL, "final", split, 0, 0, seconds=1.0, **({"details": {}} | known | changes))


def test_what_there_is_is_not_overwritten_and_a_score_that_is_not_finite_is_none(store):
    """Rows without a posterior are left alone."""
    (cell,) = cells(["rmse", "nmll"])
    content = posterior_files.encode_posterior(
        DiagonalGaussian(torch.full((11,), 1e38), torch.ones(11)), {}
    )
    known = {"rmse": cell.score_hash(cell.benchmark.metrics[0])}
    failed, bare = row(2, status="failed", reason="diverged", metrics={}), row(3)
    store.append(
        [
            FitResult(row(0, score_hashes=known), (), content),
            FitResult(row(1, metrics={"rmse": 3.0, "rmse_mcse": 0.1}), (), content),
        ]
    )
    store.append([FitResult(failed), FitResult(bare)])
    rescore(cell, store)
    found = store.load_rows("final", CELL)
    assert [own.metrics for own in found[:2]] == [
        {"rmse": 3.0, "nmll": None},
        # with what the metric returned besides, the error of its value of before
        {"rmse": None, "rmse_mcse": None, "nmll": None},
    ]
    assert found[2:] == [failed, bare]


def test_the_time_of_a_group_that_is_over_is_no_fault_of_a_score(store, monkeypatch):
    def late(self, evaluation):
        raise OverLimit("over the limit")

    monkeypatch.setattr(Rmse, "__call__", late)
    rows, _ = go(store, ["rmse", "nmll"])
    assert [(row.status, row.reason) for row in rows] == [
        ("failed", "OverLimit: over the limit")
    ] * 2
    assert scheduler.forget_failed(cells(["rmse", "nmll"], splits=(0,)), store) == 1
    assert [row.split for row in store.load_rows("final", CELL)] == [1], (
        "the others are not asked for"
    )


def test_failed_fits_of_a_method_that_is_not_installed_stay(store, monkeypatch):
    """They were imported with the reason of the machine that has it, and cannot be made here."""
    store.append([FitResult(row(status="failed", reason="diverged", metrics={}))])
    with monkeypatch.context() as patch:
        patch.setattr(Vifa, "missing", "vifa needs another package")
        assert scheduler.forget_failed(cells(["rmse"], splits=(0,)), store) == 0
    assert scheduler.forget_failed(cells(["rmse"], splits=(0,)), store) == 1


@pytest.mark.parametrize(
    ("failed_folds", "is_kept"),
    [
        (set(), True),
        ({(0, 0), (0, 1)}, True),
        ({(0, 0), (0, 1), (1, 0), (1, 1)}, False),
        # a setting that lost a fold cannot be chosen
        ({(0, 0), (1, 1)}, False),
    ],
)
def test_a_search_without_a_setting_to_choose_is_forgotten_with_its_fit(
    store, failed_folds, is_kept
):
    benchmark = load_benchmark("uci-regression", "check", ["splits=3"])
    (cell,) = plan_tasks(benchmark.select(entries=["vifa-lr"]), splits=(0, 1), compile=False)
    metric = str(cell.settings.search.metric)
    results = []
    for split, trial, fold in product((0, 1), (0, 1), (0, 1)):
        place = {"stage": "search", "trial": trial, "fold": fold, "details": {"updates": 3}}
        found = replace(row(split, metrics={metric: 3.0}), **place)
        if split == 0 and (trial, fold) in failed_folds:
            found = replace(found, status="failed", reason="diverged", metrics={metric: None})
        results.append(FitResult(found))
    results.append(FitResult(row(0, status="failed", reason="bad", metrics={})))
    store.append(results)
    assert scheduler.forget_failed([cell], store) == 1
    assert store.load_rows("final", CELL) == []
    splits = [found.split for found in store.load_rows("search", CELL)]
    assert splits == [*(4 if is_kept else 0) * [0], *4 * [1]]
