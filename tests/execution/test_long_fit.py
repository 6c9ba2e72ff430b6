"""A long fit that is killed in its midst goes on from its checkpoint, and ends with the same bits."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bdl.execution import groups
from bdl.store import Row
from bdl.store.store import Store

ENTRY, CELL = "vifa-nn", ("diabetes", "vifa-nn", "{}")
CHANGES = [
    "splits=2",
    f"entries.{ENTRY}.search=null",
    f"entries.{ENTRY}.hyper={{learning_rate: 0.01, prior_precision: 1, noise_precision: 3e-4}}",
    f"entries.{ENTRY}.training.epochs=160",
    "record={unit: epochs, every: 40}",
    "metrics=[nmll, rmse]",
]
COMMAND = """
import sys
from bdl.training import checkpoint
checkpoint.Checkpoint.__init__.__defaults__ = (0.05,)  # seconds between two savings
from bdl.cli import main
main()
"""


def words(results: Path) -> list[str]:
    options = ["--profile", "quick", "--no-compile", "--tracking", "none", "--results", str(results), "--method", ENTRY]
    return ["run", "uci-regression", *options, *(word for change in CHANGES for word in ("--set", change))]


def start(results: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words(results)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def outcome(results: Path) -> tuple[list[Row], list[bytes], list[object]]:
    (folder,) = results.glob("uci-regression/quick/variants/*")
    with Store(folder / "store.sqlite") as store:
        rows = store.rows("final", CELL)
        files = [(store.posteriors / f"{row.artefact}.safetensors").read_bytes() for row in rows]
        return rows, files, store.readings(CELL)


@pytest.mark.slow  # a process that trains for some seconds
def test_killed_in_the_middle_of_a_fit(tmp_path, finish):
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    finish(tmp_path, *words(calm))
    variants = rough / "uci-regression/quick/variants"
    process, written = start(rough), set[int]()
    while process.poll() is None and len(written) < 4:  # some savings are there, the fit is not
        written |= {path.stat().st_mtime_ns for path in variants.glob("*/checkpoints/*.safetensors")}
        time.sleep(0.02)
    assert process.poll() is None, "the fit was over before it could be killed"
    process.kill()
    process.communicate()
    assert list(variants.glob("*/checkpoints/*.safetensors")), "nothing to go on from"
    finish(tmp_path, *words(rough))

    rows, files, readings = outcome(rough)
    expected_rows, expected_files, expected_readings = outcome(calm)
    assert [row.metrics["nmll"] for row in rows] == [row.metrics["nmll"] for row in expected_rows]
    assert files == expected_files, "the posteriors differ"
    assert readings == expected_readings
    first = [reading.at for split, reading in readings if split == 0 and reading.metric == "nmll"]
    assert first == [40, 80, 120, 160]
    assert not list(variants.glob("*/checkpoints/*")), "checkpoints are removed when the rows are safe"


def test_checkpoints_of_other_settings_are_not_taken(tmp_path):
    """The file's name has all that decides the fits."""
    from bdl.plan.planning import plan
    from bdl.spec import load_benchmark

    (cell,) = plan(load_benchmark("uci-regression", "quick", CHANGES).select(entries=[ENTRY]), splits=[0])
    names = []
    for setting in ({"learning_rate": 0.01}, {"learning_rate": 0.02}):
        checkpoint = groups.FinalGroup((groups.Chosen(cell, 0, setting),), tmp_path).checkpoint()
        assert checkpoint is not None
        checkpoint.save(0, {}, {"updates": 1})
        names.append({path.name for path in tmp_path.iterdir()})
    assert len(names[0]) == 1
    assert len(names[1]) == 2


def test_a_round_of_a_search_goes_on_in_its_midst_with_the_same_scores(tmp_path, monkeypatch):
    """Cut off after some epochs, and begun again: the rows are those of a round that was left alone."""
    from bdl.plan.planning import plan
    from bdl.spec import load_benchmark
    from bdl.training import checkpoint, engine

    changes = ["entries.vifa-lr.training.epochs=6", "entries.vifa-lr.search.trials=2", "splits=1"]
    (cell,) = plan(load_benchmark("uci-regression", "quick", changes).select(entries=["vifa-lr"]), splits=[0])
    monkeypatch.setattr(checkpoint.Checkpoint.__init__, "__defaults__", (0.0,))
    calm = groups.SearchGroup(cell, {0: []}).run(lambda work: None)

    class CutOff(Exception):
        pass

    def cut(self, current, block):
        _, counters = block[-1]
        if counters.epochs == 4:
            raise CutOff
        return train(self, current, block)

    train = engine.Together._train
    interrupted = groups.SearchGroup(cell, {0: []}, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(engine.Together, "_train", cut)
        with pytest.raises(CutOff):
            interrupted.run(lambda work: None)
    assert list(tmp_path.iterdir()), "nothing to go on from"
    done = []
    again = groups.SearchGroup(cell, {0: []}, tmp_path).run(done.append)
    assert [outcome.row.metrics for outcome in again] == [outcome.row.metrics for outcome in calm]
    assert [outcome.row.hyper for outcome in again] == [outcome.row.hyper for outcome in calm]
