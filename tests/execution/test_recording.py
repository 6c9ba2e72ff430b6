"""Scores in the course of fits, also after an interruption, and their seconds, which no compilation is part of."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from bdl.execution import groups
from bdl.execution.fit_records import CurveLog
from bdl.execution.groups import FinalFit, FinalGroup, SearchGroup
from bdl.plan import workload
from bdl.records.run_folder import RunFolder
from bdl.training import engine
from bdl.training.checkpoint import Checkpoint

from .listeners import outcomes, run_here

FIXED = (
    "datasets=[diabetes]",
    "entries.rounds.search=null",
    "entries.rounds.hyper={learning_rate: 0.01, prior_precision: 1, noise_precision: 0.001}",
)


@pytest.fixture
def recorded(tiny):
    """One cell that is looked at while it runs."""

    def cell(record, epochs, *more):
        overrides = (*FIXED, f"entries.rounds.training.epochs={epochs}", f"record={record}", *more)
        (found,) = tiny(*overrides, entries=["rounds"])
        return found

    return cell


def values(store, cell, metric="nmll"):
    """Score by split and place."""
    return {
        (split, found.at): found.value
        for split, found in store.load_curve_points(cell.key)
        if found.metric == metric
    }


def test_a_look_finds_what_a_fit_of_that_length_gives(recorded, store, tmp_path):
    """40 rows, 2 minibatches of 5 an update: 4 updates an epoch. Looking changes nothing."""
    cell = recorded("{unit: epochs, every: 2}", 6)
    ear = run_here([cell], store)
    assert ear.done == ear.total
    found = values(store, cell)
    assert found.keys() == {(split, at) for split in (0, 1) for at in (2, 4, 6)}
    for epochs in (2, 4, 6):
        short = recorded("null", epochs)
        with RunFolder(tmp_path / f"{epochs}") as other:
            run_here([short], other)
            assert other.load_curve_points(short.key) == []
            for row in other.load_rows("final", short.key):
                assert row.metrics["nmll"] == found[row.split, epochs]
                assert row.metrics["rmse"] == values(store, cell, "rmse")[row.split, epochs]
            if epochs == 6:
                assert outcomes(store, [cell]) == outcomes(other, [short])


def test_a_fit_that_was_cut_off_goes_on_in_its_midst(recorded, store, tmp_path, monkeypatch):
    """With the same bits, and with the scores of before; nothing is left of the checkpoint."""
    cell = recorded("{unit: epochs, every: 1}", 6)
    with RunFolder(tmp_path / "calm/store") as calm:
        run_here([cell], calm)
        expected, curve = outcomes(calm, [cell]), calm.load_curve_points(cell.key)
    monkeypatch.setattr(groups, "Checkpoint", partial(Checkpoint, every_seconds=0))
    score, scored = groups.compute_scores, []

    def dying(*seen):
        scored.append(seen)
        if len(scored) == 7:  # two splits side by side, in the fourth epoch
            raise KeyboardInterrupt
        return score(*seen)

    monkeypatch.setattr(groups, "compute_scores", dying)
    with pytest.raises(KeyboardInterrupt):
        run_here([cell], store)
    assert store.load_rows("final", cell.key) == []
    assert list(store.checkpoints.iterdir())

    ear = run_here([cell], store)
    assert ear.done == ear.total > 0
    assert outcomes(store, [cell]) == expected
    assert store.load_curve_points(cell.key) == curve
    assert len(scored) == 7 + 6, "the fourth epoch and what comes after it"
    assert list(store.checkpoints.iterdir()) == []


def test_a_round_of_a_search_goes_on_in_its_midst_with_the_same_scores(
    tiny, tmp_path, monkeypatch
):
    monkeypatch.setattr(groups, "Checkpoint", partial(Checkpoint, every_seconds=0))
    (cell,) = tiny(
        "datasets=[diabetes]", "entries.rounds.training.epochs=6", entries=["rounds"], splits=(0,)
    )
    calm = SearchGroup(cell, {0: []}).run(lambda work: None)
    train = engine.BatchedRun._train

    def cut(self, current, block):
        _, counters = block[-1]
        if counters.epochs == 4:
            raise KeyboardInterrupt
        return train(self, current, block)

    with monkeypatch.context() as patch:
        patch.setattr(engine.BatchedRun, "_train", cut)
        with pytest.raises(KeyboardInterrupt):
            SearchGroup(cell, {0: []}, tmp_path / "kept").run(lambda work: None)
    assert list((tmp_path / "kept").iterdir()), "nothing to go on from"
    again = SearchGroup(cell, {0: []}, tmp_path / "kept").run(lambda work: None)
    assert [(own.row.hyper, own.row.metrics) for own in again] == [
        (own.row.hyper, own.row.metrics) for own in calm
    ]


@pytest.mark.parametrize("stage", ["search", "final"])
def test_seconds_before_an_interruption_count(tiny, tmp_path, monkeypatch, stage):
    """The first half is made to take a second, the rest takes a fraction of it."""
    monkeypatch.setattr(groups, "Checkpoint", partial(Checkpoint, every_seconds=0))
    overrides = ("datasets=[diabetes]", "entries.rounds.training.epochs=6")
    (cell,) = tiny(*overrides, entries=["rounds"], splits=(0,))
    hyper = {"learning_rate": 0.01, "prior_precision": 1.0, "noise_precision": 0.001}
    group = (
        SearchGroup(cell, {0: []}, tmp_path)
        if stage == "search"
        else FinalGroup((FinalFit(cell, 0, hyper),), tmp_path)
    )
    train = engine.BatchedRun._train

    def train_slowly(self, current, block):
        _, counters = block[-1]
        if counters.epochs == 2:
            time.sleep(1.0)
        if counters.epochs == 4:
            raise KeyboardInterrupt
        return train(self, current, block)

    with monkeypatch.context() as patch:
        patch.setattr(engine.BatchedRun, "_train", train_slowly)
        with pytest.raises(KeyboardInterrupt):
            group.run(lambda work: None)
    row = group.run(lambda work: None)[0].row
    assert row.seconds * row.details["width"] >= 1.0


def test_scores_are_written_only_where_a_checkpoint_is_saved(recorded, store, monkeypatch):
    """Within its first minute none is.

    After every evaluation, writing all scores again would take quadratic time.
    """
    written = []
    monkeypatch.setattr(CurveLog, "write", lambda own, _: written.append(own) or "[0.0, {}]")
    cell = recorded("{unit: updates, every: 1}", 3)
    run_here([cell], store)
    assert len(store.load_curve_points(cell.key)) > 10
    assert not written


def test_a_checkpoint_of_other_settings_is_not_gone_on_from(recorded, tmp_path):
    two, three = recorded("null", 2), recorded("null", 3)
    fits = [
        FinalFit(two, 0, {}),
        FinalFit(three, 0, {}),
        FinalFit(two, 1, {}),
        FinalFit(two, 0, {"learning_rate": 0.1}),
    ]
    paths = [FinalGroup((fit,), tmp_path).checkpoint()._path(0) for fit in fits]
    assert len(set(paths)) == 4
    assert (
        FinalGroup((FinalFit(recorded("null", 2), 0, {}, 1.0),), tmp_path).checkpoint()._path(0)
        == paths[0]
    )
    assert FinalGroup((fits[0],)).checkpoint() is None


@pytest.mark.parametrize("group", [FinalGroup, SearchGroup])
def test_a_checkpoint_of_another_slot_batch_is_not_gone_on_from(
    tiny, tmp_path, monkeypatch, group
):
    """Slot batches and compilation follow from the number of splits, under the same hash of the fit."""

    def path(splits=4, **changes):
        (cell,) = tiny("datasets=[diabetes]", f"splits={splits}", entries=["rounds"])
        cell = replace(cell, **changes)
        what = ((FinalFit(cell, 0, {}),),) if group is FinalGroup else (cell, {0: []})
        return group(*what, tmp_path).checkpoint()._path(0)

    first = path()
    assert path() == path(compile=False) == first
    others = {path(splits=3), path(compile=True), path(device="cuda")}
    monkeypatch.setitem(workload.NUMBERS_PER_UPDATE, "cpu", 1)
    assert len({first, *others, path()}) == 5


def test_a_diverged_fit_keeps_its_curve(recorded, store):
    cell = recorded("{unit: updates, every: 1}", 1, "entries.rounds.hyper.learning_rate=1.0e37")
    run_here([cell], store)
    rows, found = store.load_rows("final", cell.key), values(store, cell)
    assert [(row.status, row.artefact) for row in rows] == [("failed", None)] * 2
    assert found.keys() == {(split, at) for split in (0, 1) for at in (1, 2, 3, 4)}
    assert np.isnan(found[0, 4])


DELAY = 0.5
COMPILED = []
"""One list, since programs that are made for one test are found again by the next."""


@pytest.fixture
def slow_compiler(monkeypatch, tmp_path):
    """Compile by waiting for a while; gives the list of what was compiled."""
    found = COMPILED
    found.clear()

    def compile_slowly(graph, inputs, **_):
        found.append(graph)
        time.sleep(DELAY)
        return graph.forward

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", compile_slowly)
    # no program that an earlier process compiled
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    return found


@pytest.mark.parametrize("stage", ["search", "final"])
def test_fits_do_not_pay_for_the_compilation_of_their_program(tiny, slow_compiler, stage):
    cell = replace(tiny(entries=["random"], splits=(0,))[0], compile=True)
    hyper = {"learning_rate": 0.001, "prior_precision": 1.0, "noise_precision": 0.001}
    group = (
        SearchGroup(cell, {0: ()})
        if stage == "search"
        else FinalGroup((FinalFit(cell, 0, hyper),))
    )
    wall = time.perf_counter()
    rows = [outcome.row for outcome in group.run(lambda _: None)]
    elapsed = time.perf_counter() - wall
    assert all(row.status == "ok" and row.details["compiled"] for row in rows)
    assert slow_compiler
    assert elapsed > DELAY * len(slow_compiler)
    seconds = rows[0].seconds * rows[0].details["width"]
    assert 0 < seconds < elapsed - DELAY * len(slow_compiler)


def test_a_stopwatch_imports_no_compiler_and_hears_of_it_once_it_is_there():
    script = (
        "import sys, torch\n"
        "from bdl.execution.fit_records import Stopwatch\n"
        "from bdl.training.compiler import compile_function\n"
        "with Stopwatch() as watch:\n"
        "    print('torch._dynamo' in sys.modules)\n"
        "    compile_function(torch.sin)(torch.ones(2))\n"
        "    from torch._dynamo.callback import callback_handler as handler\n"
        "    print(watch.pause in handler.start_callbacks, watch.resume in handler.end_callbacks)\n"
        "print(len(handler.start_callbacks), len(handler.end_callbacks))\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"TORCHDYNAMO_DISABLE": "1"},  # the import alone is looked at
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.split() == ["False", "True", "True", "0", "0"]
