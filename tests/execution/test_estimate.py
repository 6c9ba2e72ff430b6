"""What a run takes: fits counted by hand, seconds from stored rows or from a few updates that are timed."""

import time
from contextlib import nullcontext
from dataclasses import replace

import pytest
import yaml

from bdl.execution import timing
from bdl.execution.estimate import MeasuredFit, count_remaining, estimate_remaining
from bdl.execution.timing import time_updates
from bdl.plan import cost
from bdl.plan.cost import estimate_scoring_seconds
from bdl.plan.planning import list_tasks, plan_tasks
from bdl.plan.workload import count_stage_updates
from bdl.records.row import FitResult, Row
from bdl.records.run_folder import RunFolder
from bdl.spec import load_benchmark
from bdl.training.updates import COMPILATION_SECONDS

MODEL = {"model": {"name": "linear"}, "likelihood": {"name": "gaussian"}}
LINEAR = MODEL | {
    "method": {"name": "vifa", "gradients_per_update": 2},
    "training": {"epochs": 3, "batch_size": 10},
}
PRECISIONS = {"prior_precision": 1, "noise_precision": 0.001}
FIXED = LINEAR | {"hyper": PRECISIONS | {"learning_rate": 0.01}}
SPACE = {name: {"low": 0.1, "high": 1} for name in ("learning_rate", *PRECISIONS)}
SEARCHED = LINEAR | {"search": {"trials": 4, "folds": 3, "metric": "nmll", "space": SPACE}}
CONTENT = {
    "name": "small",
    "title": "Small",
    "datasets": ["diabetes"],
    "splits": 5,
    "entries": {"searched": SEARCHED, "fixed": FIXED},
    "evaluation": {"samples": 1},
    "metrics": ["nmll"],
}
SAME, OTHERS = "the same cells", "the same cells in other or published runs"


@pytest.fixture
def load(tmp_path):
    def call(**changes):
        (tmp_path / "small.yaml").write_text(yaml.safe_dump(CONTENT | changes, sort_keys=False))
        return load_benchmark(str(tmp_path / "small.yaml"))

    return call


@pytest.fixture
def cells(load):
    return list_tasks(load())


def row(cell, stage, split, trial=0, fold=0):
    key = (*cell.key, stage, split, trial, fold)
    return FitResult(Row(*key, "ok", None, {}, {"nmll": 1.0}, 0.5, {"width": 12, "updates": 60}))


def measured(cell, stage, seconds, width, updates=None, basis=SAME, compiled=False):
    return MeasuredFit(
        cell.key,
        stage,
        seconds,
        updates or count_stage_updates(cell, stage),
        width,
        "cpu",
        compiled,
        basis,
    )


def left(cells, rows=(), elsewhere=()):
    with RunFolder(None) as store:
        store.append(rows)
        return [count_remaining(cell, store, elsewhere) for cell in cells]


def test_fits_are_those_counted_by_hand(cells):
    """5 splits: 4 settings x 3 folds x 5 = 60 fits of the search and 5 final.

    Without a search 5 final.

    In an interrupted run split 0 is done, and the search of split 1 has 7 of its 12 fits: 5 + 3 x
    12 are left.
    """
    found = estimate_remaining(left(cells), 1, [])
    assert (found.count("search"), found.count("final")) == (60, 10)
    assert (found.done("search"), found.done("final")) == (0, 0)

    folds = [(trial, fold) for trial in range(4) for fold in range(3)]
    rows = [row(cells[0], "search", 0, *own) for own in folds] + [
        row(cells[0], "search", 1, *own) for own in folds[:7]
    ]
    (found,) = left(cells[:1], [*rows, row(cells[0], "final", 0)])
    assert (found.splits, found.search, found.search_done, found.final_done) == (4, 41, 19, 1)
    (found,) = left(cells[:1], elsewhere={0, 2})
    assert (found.splits, found.search) == (3, 36)

    done = left(cells[1:], [row(cells[1], "final", split) for split in range(5)])
    found = estimate_remaining(done, 1, [])
    assert (found.seconds, found.disk, found.count("final")) == (0, 0, 0)


def test_seconds_of_stored_fits_are_those_of_the_same_fits(cells):
    """60 fits of the search of 2 s, in a group, and 10 final ones of 3 s and 1 s, in groups of 5."""
    searched, fixed = cells
    rows = [
        measured(searched, "search", 2, 60),
        measured(searched, "final", 3, 5),
        measured(fixed, "final", 1, 5),
    ]
    found = estimate_remaining(left(cells), 1, rows)
    scoring = 5 * (
        estimate_scoring_seconds(searched, "final") + estimate_scoring_seconds(fixed, "final")
    )
    assert found.seconds == pytest.approx(60 * 2 + 5 * 3 + 5 * 1 + scoring)
    assert found.basis == {SAME: 70}


def test_twice_the_updates_take_twice_the_time_and_own_rows_come_first(cells):
    (_, fixed), n = cells, count_stage_updates(cells[1], "final")
    half = measured(fixed, "final", 1, 5, updates=n / 2, basis=OTHERS)
    found = estimate_remaining(left([fixed]), 1, [half])
    assert (found.seconds, found.basis) == (pytest.approx(5 * 2, rel=1e-3), {OTHERS: 5})
    rows = [measured(fixed, "final", 1, 5), measured(fixed, "final", 100, 5, basis=OTHERS)]
    assert estimate_remaining(left([fixed]), 1, rows).seconds == pytest.approx(5, rel=1e-3)


@pytest.mark.parametrize(
    ("entry", "changes", "basis"),
    [
        pytest.param("fixed", {}, {SAME: 5, "nothing": 65}, id="one cell of two"),
        pytest.param(
            "fixed",
            {"task_key": ("diabetes", "gone", "{}")},
            {"nothing": 70},
            id="an unknown entry",
        ),
        pytest.param("searched", {"device": "cuda"}, {"nothing": 70}, id="another device"),
    ],
)
def test_what_rows_are_taken_for(cells, entry, changes, basis):
    (cell,) = (cell for cell in cells if cell.entry == entry)
    assert (
        estimate_remaining(
            left(cells), 1, [measured(cell, "final", 1, 5)._replace(**changes)]
        ).basis
        == basis
    )


def test_a_timed_update_stands_for_all_updates_of_its_cell(cells):
    """5 fits side by side, 0.02 s for each of their updates.

    Compiled ones are faster, after a compilation.
    """
    (_, fixed), n = cells, count_stage_updates(cells[1], "final")
    timed, scores = (
        measured(fixed, "final", 0.02, 5, updates=1, basis="timed updates"),
        estimate_scoring_seconds(fixed, "final"),
    )
    found = estimate_remaining(left([fixed]), 1, [timed])
    assert (found.basis, found.seconds) == (
        {"timed updates": 5},
        pytest.approx(5 * (0.02 * n + scores)),
    )
    assert estimate_remaining(left([fixed]), 1, [timed, measured(fixed, "final", 1, 5)]).basis == {
        SAME: 5
    }
    found = estimate_remaining(left([replace(fixed, compile=True)]), 1, [timed])
    assert found.seconds == pytest.approx(5 * (0.02 * n / 3 + scores) + COMPILATION_SECONDS)


def test_jobs_share_the_work_of_cells_but_not_the_rounds_of_one(cells, monkeypatch):
    """Two cells of 5 s each: two jobs need 5 s, and one cell alone needs them with any number of jobs."""
    monkeypatch.setattr("bdl.runtime.available_cores", lambda: 2)
    one, other = cells[1], list_tasks(cells[1].benchmark.model_copy(update={"name": "other"}))[1]
    rows = [measured(one, "final", 1, 5)]
    for own, jobs, seconds in (([one], 2, 5), ([one, other], 1, 10), ([one, other], 2, 5)):
        assert estimate_remaining(left(own), jobs, rows).seconds == pytest.approx(
            seconds, rel=1e-3
        )


def test_memory_is_that_of_the_states_grows_with_the_jobs_and_is_refused_where_there_is_none(
    cells, load, monkeypatch
):
    """VIFA with one factor keeps a few vectors of its 11 parameters, 4 bytes a number."""
    assert 3 * 11 * 4 <= cost.count_state_bytes(cells[0].with_splits((0,))) <= 40 * 11 * 4
    one, two = (estimate_remaining(left(cells), jobs, []).memory for jobs in (1, 2))
    assert two > 2 * one
    monkeypatch.setattr("bdl.runtime.available_memory", lambda: 10**6)
    with pytest.raises(Exception, match=r"need about 6.. MB of memory, and 1\.0 MB are available"):
        plan_tasks(load(), splits=range(5))


ENTRIES = {
    "short": FIXED,
    "long": FIXED | {"method": {"name": "bbb"}, "training": {"epochs": 300, "batch_size": 10}},
    "again": FIXED | {"hyper": PRECISIONS | {"learning_rate": 0.02}},
    "direct": MODEL | {"method": {"name": "conjugate"}, "hyper": PRECISIONS},
}


def timed(left, known=(), seconds=60.0):
    return {one.task_key[1]: one for one in time_updates(left, known, seconds)}


def test_updates_are_timed_of_cells_without_earlier_fits_those_with_most_work_first(
    load, monkeypatch
):
    """Equal ones once, those of a method without updates never.

    What takes long is timed from its trace.
    """
    cells, asked = left(list_tasks(load(entries=ENTRIES))), []
    monkeypatch.setattr(timing, "trace_immediately", lambda: asked.append(True) or nullcontext())
    monkeypatch.setattr(timing, "_TRACE_FROM_SECONDS", float("inf"))
    start = time.perf_counter()
    found = timed(cells)
    passed = time.perf_counter() - start
    assert set(found) == {"short", "long", "again"}
    assert found["short"].seconds == found["again"].seconds
    assert all(one.updates == 1 and 0 < one.width * one.seconds < passed for one in found.values())
    assert set(timed(cells, seconds=0)) == {"long"}, "none is begun too late"
    assert set(timed(cells, [found["long"]], 0)) == {"short", "again"}
    assert set(timed(cells, [found["long"]._replace(device="cuda")], 0)) == {"long"}
    assert asked == []
    monkeypatch.setattr(timing, "_TRACE_FROM_SECONDS", 0.0)
    assert set(timed(cells)) == {"short", "long", "again"}
    assert len(asked) == 2


def test_an_observation_of_a_stream_is_timed(load):
    data, em = (
        {"name": "fa", "dim": 100, "top": 10},
        {"method": {"name": "online-em", "latent_dim": 2}},
    )
    stream = load(datasets=[data], entries={"em": em}, metrics=["rel_cov_dist"])
    (one,) = time_updates(left(list_tasks(stream)), [], 60)
    assert (one.width, one.updates) == (1, 1)
    assert 0 < one.seconds < 0.1
