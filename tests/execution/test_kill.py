"""A run that is killed again and again ends with the rows of a run that was left alone."""

import os
import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from bdl.store import Row, artefacts
from bdl.store.store import Store

from .listeners import outcome

SPLITS, TRIALS, FOLDS, ENTRIES = 8, 2, 2, ("vifa-lr", "vifa-nn")
CHANGES = [
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


def words(results: Path) -> list[str]:
    options = ["--profile", "quick", "--no-compile", "--tracking", "none", "--results", str(results)]
    options += [word for entry in ENTRIES for word in ("--method", entry)]
    return ["run", "uci-regression", *options, *(word for change in CHANGES for word in ("--set", change))]


def start(results: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-c", "from bdl.cli import main; main()", *words(results)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def store_of(results: Path) -> Path:
    """The store of the variant that the options make; a place without one before the run has made it."""
    found = [*results.glob("uci-regression/quick/variants/*/store.sqlite")]
    return found[0] if found else results / "store.sqlite"


def count_from_outside(results: Path) -> int:
    """Count the rows while a run is at work, 0 where they cannot be read."""
    try:
        with sqlite3.connect(f"file:{store_of(results)}?mode=ro", uri=True) as db:
            return int(db.execute("SELECT COUNT(*) FROM fits").fetchone()[0])
    except sqlite3.OperationalError:  # not made yet, busy, or killed in the middle of a transaction
        return 0


def all_rows(store: Store) -> list[Row]:
    return [
        row
        for stage in ("search", "final")
        for entry in ENTRIES
        for row in store.rows(stage, ("diabetes", entry, "{}"))
    ]


def count(results: Path) -> int:
    """Count the rows that the next run finds; it rolls back what a kill left half written."""
    with Store(store_of(results)) as store:
        return len(all_rows(store))


def kill_at_random(results: Path, moments: random.Random) -> None:
    """Kill at any time in two cases of ten, and shortly after up to ten new rows in the others."""
    before, process = count(results), start(results)
    if moments.random() < 0.2:
        time.sleep(moments.uniform(0, 3))
    else:
        enough = before + moments.randint(1, 10)
        while process.poll() is None and count_from_outside(results) < enough:
            time.sleep(0.002)
        time.sleep(moments.uniform(0, 0.05))
    process.kill()
    process.communicate()


def everything(results: Path) -> list[dict[str, object]]:
    """All rows but the times, with the digests of the posteriors, each of which can be read."""
    with Store(store_of(results)) as store:
        rows = all_rows(store)
        for row in rows:
            if row.stage == "final":
                artefacts.read(store.posteriors, str(row.artefact))
        assert list(store.checkpoints.glob("*")) == []
        return [outcome(row) for row in rows]


@pytest.mark.slow  # two processes that are killed
def test_kills_change_nothing(tmp_path, finish):
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    finish(tmp_path, *words(calm))
    moments, counts = random.Random(0), [0]
    for _ in range(KILLS):
        kill_at_random(rough, moments)
        counts.append(count(rough))
    assert counts == sorted(counts), "rows were lost"
    assert len({n for n in counts if 0 < n < N_ROWS}) >= 2, f"too few kills fell into the work: {counts}"
    finish(tmp_path, *words(rough))

    rows = everything(rough)
    keys = [tuple(row[name] for name in ("entry", "stage", "split", "trial", "fold")) for row in rows]
    assert len(keys) == len(set(keys)) == N_ROWS
    assert rows == everything(calm)
    published = pd.read_parquet(store_of(rough).with_name("trials.parquet"))
    assert len(published) == N_ROWS
    assert set(published.status) == {"ok"}
