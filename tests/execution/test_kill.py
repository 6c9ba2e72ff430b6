"""A run that is killed, between groups of fits or within one, ends with the rows of a run that was left alone."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from bdl.records.row import Row
from bdl.records.run_folder import RunFolder
from bdl.stored_results.folders import open_store

from .listeners import outcome

SPLITS, TRIALS, FOLDS, ENTRIES = 8, 2, 2, ("vifa-lr", "vifa-nn")
SEARCHES = [
    f"splits={SPLITS}",
    *(
        f"entries.{entry}.{change}"
        for entry in ENTRIES
        for change in (f"search.trials={TRIALS}", f"search.folds={FOLDS}", "training.epochs=2")
    ),
    "entries.vifa-nn.model.hidden=[5]",
    "entries.vifa-nn.search.sampler=bayesian",
    "entries.vifa-nn.search.startup=1",
]
N_ROWS = len(ENTRIES) * SPLITS * (TRIALS * FOLDS + 1)
KILLS = 2
LONG = [
    "splits=2",
    "entries.vifa-nn.search=null",
    "entries.vifa-nn.hyper={learning_rate: 0.01, prior_precision: 1, noise_precision: 3e-4}",
    "entries.vifa-nn.training.epochs=160",
    "record={unit: epochs, every: 40}",
    "metrics=[nmll, rmse]",
]
COMMAND = """
from bdl.training import checkpoint
checkpoint.Checkpoint.__init__.__defaults__ = (0.05,)  # seconds between two savings
from bdl.cli import main
main()
"""


def words(results: Path, changes: list[str], entries: tuple[str, ...]) -> list[str]:
    options = [
        "--profile",
        "check",
        "--no-compile",
        "--tracking",
        "none",
        "--results",
        str(results),
    ]
    options += [word for entry in entries for word in ("--method", entry)]
    return [
        "run",
        "uci-regression",
        *options,
        *(word for change in changes for word in ("--set", change)),
    ]


def start(command: list[str]) -> subprocess.Popen[str]:
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    given = [sys.executable, "-u", "-c", COMMAND, *command]
    return subprocess.Popen(
        given, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env
    )


def store_of(results: Path) -> Path:
    """The store of the variant that the options make.

    A place without one before the run has made it.
    """
    found = [*results.glob("uci-regression/check/variants/*/store")]
    return found[0] if found else results / "store"


def count_from_outside(results: Path) -> int:
    """Count the rows while a run is at work."""
    return len(RunFolder(store_of(results)).select())


def all_rows(store: RunFolder) -> list[Row]:
    cells = [("diabetes", entry, "{}") for entry in ENTRIES]
    return [
        row
        for stage in ("search", "final")
        for cell in cells
        for row in store.load_rows(stage, cell)
    ]


def count(results: Path) -> int:
    """Count the rows that the next run finds; it rolls back what a kill left half written."""
    with RunFolder(store_of(results)) as store:
        return len(all_rows(store))


def kill_at_random(results: Path, moments: random.Random) -> None:
    """Kill at any time in two cases of ten, and shortly after up to ten new rows in the others."""
    before, process = count(results), start(words(results, SEARCHES, ENTRIES))
    if moments.random() < 0.2:
        time.sleep(moments.uniform(0, 3))
    else:
        enough = before + moments.randint(1, 10)
        while process.poll() is None and count_from_outside(results) < enough:
            time.sleep(0.002)
        time.sleep(moments.uniform(0, 0.05))
    process.kill()
    process.communicate()


def everything(results: Path) -> tuple[list[dict[str, object]], list[object]]:
    """All rows but the times, with the digests of the posteriors, each of which can be read, and recorded scores."""
    with open_store(store_of(results).parent) as store:
        rows = all_rows(store)
        for row in rows:
            if row.stage == "final":
                store.posteriors.read(str(row.artefact))
        assert list(store.checkpoints.glob("*")) == [], (
            "checkpoints are removed when the rows are safe"
        )
        return [outcome(row) for row in rows], store.load_curve_points(
            ("diabetes", "vifa-nn", "{}")
        )


@pytest.mark.slow  # two processes that are killed
def test_kills_change_nothing(tmp_path, finish):
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    finish(tmp_path, *words(calm, SEARCHES, ENTRIES))
    moments, counts = random.Random(0), [0]
    for _ in range(KILLS):
        kill_at_random(rough, moments)
        counts.append(count(rough))
    assert counts == sorted(counts), "rows were lost"
    assert len({n for n in counts if 0 < n < N_ROWS}) >= 2, (
        f"too few kills fell into the work: {counts}"
    )
    finish(tmp_path, *words(rough, SEARCHES, ENTRIES))

    rows, _ = everything(rough)
    keys = [
        tuple(row[name] for name in ("entry", "stage", "split", "trial", "fold")) for row in rows
    ]
    assert len(keys) == len(set(keys)) == N_ROWS
    assert rows == everything(calm)[0]
    published = RunFolder(store_of(rough).parent).tabulate()
    assert len(published) == N_ROWS
    assert set(published.status) == {"ok"}


@pytest.mark.slow  # a process that trains for some seconds
def test_a_fit_that_is_killed_in_its_midst_goes_on_from_its_checkpoint(tmp_path, finish):
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    finish(tmp_path, *words(calm, LONG, ENTRIES[1:]))
    process, saved = (
        start(words(rough, LONG, ENTRIES[1:])),
        "uci-regression/check/variants/*/store/checkpoints/*.safetensors",
    )
    written = set[int]()
    while process.poll() is None and len(written) < 4:  # some savings are there, the fit is not
        written |= {path.stat().st_mtime_ns for path in rough.glob(saved)}
        time.sleep(0.02)
    assert process.poll() is None, "the fit was over before it could be killed"
    process.kill()
    process.communicate()
    assert list(rough.glob(saved)), "nothing to go on from"
    finish(tmp_path, *words(rough, LONG, ENTRIES[1:]))
    rows, readings = everything(rough)
    assert (rows, readings) == everything(calm)
    first = [reading.at for split, reading in readings if split == 0 and reading.metric == "nmll"]
    assert first == [40, 80, 120, 160]


def test_a_terminated_run_ends_as_an_interrupted_one(tmp_path):
    """Slurm and Docker end a run by SIGTERM: one line says how to go on, and no process is left."""
    results = tmp_path / "results"
    process = start([*words(results, SEARCHES, ENTRIES), "--jobs", "2"])
    deadline = time.monotonic() + 120
    while count_from_outside(results) < 1 and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in err
    assert "resource_tracker" not in err
    assert "Traceback" not in err
    _, alive = psutil.wait_procs(workers, timeout=5)
    assert alive == []
