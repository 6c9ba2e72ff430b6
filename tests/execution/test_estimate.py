"""What a run takes: fits counted by hand, seconds from stored rows, what is left of an interrupted run."""

from dataclasses import replace

import pytest
import yaml

from bdl.archive.frames import empty
from bdl.execution.estimate import Measured, estimate, left_of
from bdl.plan import initial_check
from bdl.plan.planning import cells_of, plan
from bdl.plan.programs import scoring_seconds, updates_of
from bdl.spec import load_benchmark
from bdl.store import Outcome, Row
from bdl.training.programs import COMPILATION

LINEAR = {
    "model": {"name": "linear"},
    "likelihood": {"name": "gaussian"},
    "method": {"name": "vifa", "gradients_per_update": 2},
    "training": {"epochs": 3, "batch_size": 10},
}
SPACE = {"low": 0.1, "high": 1}
SEARCH = {
    "trials": 4,
    "folds": 3,
    "metric": "nmll",
    "space": dict.fromkeys(("learning_rate", "prior_precision", "noise_precision"), SPACE),
}
OTHERS = "the same cells in other or published runs"
FIXED = {"learning_rate": 0.01, "prior_precision": 1, "noise_precision": 0.001}
CONTENT = {
    "name": "small",
    "title": "Small",
    "datasets": ["diabetes"],
    "splits": 5,
    "entries": {"searched": LINEAR | {"search": SEARCH}, "fixed": LINEAR | {"hyper": FIXED}},
    "evaluation": {"samples": 1},
    "metrics": ["nmll"],
}


@pytest.fixture
def benchmark(tmp_path):
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(CONTENT, sort_keys=False))
    return load_benchmark(str(tmp_path / "small.yaml"))


@pytest.fixture
def cells(benchmark):
    return cells_of(benchmark)


def row(cell, stage, split, trial=0, fold=0):
    key = (*cell.key, stage, split, trial, fold)
    return Outcome(Row(*key, "ok", None, {}, {"nmll": 1.0}, 0.5, {"width": 12, "updates": 60}))


def measured(cell, stage, seconds, width, updates=None, basis="the same cells", compiled=False):
    return Measured(cell.key, stage, seconds, updates or updates_of(cell, stage), width, "cpu", compiled, basis)


def left(cells, store=None):
    with store or empty() as store:
        return [left_of(cell, store) for cell in cells]


def test_fits_are_those_counted_by_hand(cells):
    """5 splits: 4 settings x 3 folds x 5 = 60 fits of the search and 5 final; without a search 5 final."""
    found = estimate(left(cells), 1, [])
    assert (found.count("search"), found.count("final")) == (60, 10)
    assert (found.done("search"), found.done("final")) == (0, 0)


def test_only_what_an_interrupted_run_lacks_is_counted(cells):
    """Split 0 is done, the search of split 1 has 7 of its 12 fits: 5 + 3 x 12 are left of it, and 4 final."""
    searched = cells[0]
    store = empty()
    rows = [row(searched, "search", 0, trial, fold) for trial in range(4) for fold in range(3)]
    rows += [row(searched, "search", 1, trial, fold) for trial in range(4) for fold in range(3)][:7]
    store.append([*rows, row(searched, "final", 0)])
    (found,) = left([searched], store)
    assert (found.splits, found.search) == (4, 41)
    assert (found.search_done, found.final_done) == (19, 1)


def test_splits_that_other_runs_have_are_left_out(cells):
    with empty() as store:
        found = left_of(cells[0], store, {0, 2})
    assert (found.splits, found.search) == (3, 36)


def test_a_finished_run_takes_no_time(cells):
    store = empty()
    store.append([row(cells[1], "final", split) for split in range(5)])
    found = estimate(left(cells[1:], store), 1, [])
    assert (found.seconds, found.disk, found.count("final")) == (0, 0, 0)


def test_seconds_of_stored_fits_are_those_of_the_same_fits(cells):
    """60 fits of the search of 2 s, in a group, and 10 final ones of 3 s and 1 s, in groups of 5."""
    searched, fixed = cells
    rows = [measured(searched, "search", 2, 60), measured(searched, "final", 3, 5), measured(fixed, "final", 1, 5)]
    found = estimate(left(cells), 1, rows)
    scoring = 5 * (scoring_seconds(searched, "final") + scoring_seconds(fixed, "final"))
    assert found.seconds == pytest.approx(60 * 2 + 5 * 3 + 5 * 1 + scoring)
    assert found.basis == {"the same cells": 70}


def test_twice_the_updates_take_twice_the_time(cells):
    fixed = cells[1]
    half = measured(fixed, "final", 1, 5, updates=updates_of(fixed, "final") / 2, basis=OTHERS)
    found = estimate(left([fixed]), 1, [half])
    assert found.seconds == pytest.approx(5 * 2, rel=1e-3)
    assert found.basis == {"the same cells in other or published runs": 5}


def test_rows_of_the_run_itself_come_before_those_of_others(cells):
    fixed = cells[1]
    rows = [measured(fixed, "final", 1, 5), measured(fixed, "final", 100, 5, basis=OTHERS)]
    assert estimate(left([fixed]), 1, rows).seconds == pytest.approx(5, rel=1e-3)


def test_other_cells_stand_for_one_that_was_not_measured(cells):
    fixed = cells[1]
    found = estimate(left(cells), 1, [measured(fixed, "final", 1, 5)])
    assert found.basis == {"the same cells": 5, "other cells": 65}


def test_rows_of_an_unknown_entry_say_nothing(cells):
    gone = measured(cells[0], "final", 1e6, 1)._replace(cell=("diabetes", "gone", "{}"))
    assert estimate(left(cells), 1, [gone]).basis == {"nothing": 70}


def test_rows_of_another_device_say_nothing(cells):
    row = measured(cells[0], "final", 1e6, 5)._replace(device="cuda")
    found = estimate(left(cells), 1, [row])
    assert (found.basis, found.seconds) == ({"nothing": 70}, 0)


def test_a_timed_update_stands_for_all_updates_of_its_cell(cells):
    """5 fits side by side, 0.02 s for each of their updates; a row of the cell itself comes before it."""
    fixed, updates = cells[1], updates_of(cells[1], "final")
    timed = measured(fixed, "final", 0.02, 5, updates=1, basis="timed updates")
    found = estimate(left([fixed]), 1, [timed])
    assert found.basis == {"timed updates": 5}
    assert found.seconds == pytest.approx(5 * (0.02 * updates + scoring_seconds(fixed, "final")))
    assert estimate(left([fixed]), 1, [timed, measured(fixed, "final", 1, 5)]).basis == {"the same cells": 5}


def test_compiled_updates_are_faster_than_timed_ones_and_take_a_compilation(cells):
    fixed, updates = cells[1], updates_of(cells[1], "final")
    timed = measured(fixed, "final", 0.02, 5, updates=1, basis="timed updates")
    found = estimate(left([replace(fixed, compile=True)]), 1, [timed])
    scores = 5 * scoring_seconds(fixed, "final")
    assert found.seconds == pytest.approx(5 * 0.02 * updates / 3 + scores + COMPILATION)


def test_jobs_share_the_work_of_cells_but_not_the_rounds_of_one(cells, monkeypatch):
    """Two cells of 5 s each: two jobs need 5 s, and one cell alone needs them with any number of jobs."""
    monkeypatch.setattr("bdl.runtime.available_cores", lambda: 2)
    one, other = cells[1], cells_of(cells[1].benchmark.model_copy(update={"name": "other"}))[1]
    rows = [measured(one, "final", 1, 5)]
    assert estimate(left([one]), 2, rows).seconds == pytest.approx(5, rel=1e-3)
    assert estimate(left([one, other]), 1, rows).seconds == pytest.approx(10, rel=1e-3)
    assert estimate(left([one, other]), 2, rows).seconds == pytest.approx(5, rel=1e-3)


def test_memory_grows_with_the_jobs(cells):
    one, two = (estimate(left(cells), jobs, []).memory for jobs in (1, 2))
    assert two > 2 * one


def test_memory_that_there_is_not_is_refused(benchmark, monkeypatch):
    monkeypatch.setattr("bdl.runtime.available_memory", lambda: 10**6)
    with pytest.raises(Exception, match=r"need about 6.. MB of memory, and 1\.0 MB are available"):
        plan(benchmark, splits=range(5))


def test_a_state_is_measured_by_the_shapes_of_its_tensors(cells):
    """VIFA with one factor keeps a few vectors of its 11 parameters, 4 bytes a number."""
    assert 3 * 11 * 4 <= initial_check.posterior_size(cells[0].with_splits((0,))) <= 40 * 11 * 4
