"""Folders of before run folders are read, and converted to the same rows."""

import json
import shutil
import sqlite3
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pandas as pd
import pytest
from tiny import EXACT, STEPPED, benchmark_text

import bdl
from bdl.errors import InputError
from bdl.records.row import FitResult
from bdl.records.run_folder import RunFolder
from bdl.stored_results import legacy

SEARCHED = STEPPED | {
    "search": {
        "trials": 1,
        "folds": 2,
        "metric": "rmse",
        "space": {"learning_rate": {"low": 0.01, "high": 0.02}},
    },
    "hyper": {"prior_precision": 1, "noise_precision": 0.001},
}
SPEC = benchmark_text({"exact": EXACT, "stepped": SEARCHED}, record={"every": 1, "unit": "epochs"})
PLACE = Path("results/small")


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    (folder / "small.yaml").write_text(SPEC, "utf-8")
    bdl.benchmark(folder / "small.yaml").run(compile=False, results=folder / "results")
    return folder


@pytest.fixture
def place(original, tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    return tmp_path / PLACE


def load_all(records: RunFolder) -> list[FitResult]:
    return [result for cell in records.list_cells() for result in records.load_results(cell)]


def make_published(place: Path) -> None:
    """Write the published files as they were."""
    records = RunFolder(place)
    rows, points = records.tabulate(), records.tabulate_curve_points()
    rows.attrs["made"] = records.request_text
    rows.to_parquet(place / "trials.parquet")
    points.to_parquet(place / "points.parquet")
    index: dict[str, dict[str, str]] = {}
    with ZipFile(place / "posteriors.zip", "a") as file:
        for row, *_ in load_all(records):
            if row.artefact:
                label = f"{row.dataset}/{row.entry}"
                index.setdefault(label, {})[str(row.split)] = f"{row.artefact}.safetensors"
        file.writestr("index.json", json.dumps(index))
    provenance = json.loads((place / "run.json").read_text("utf-8"))
    checksums = {
        name: sha256((place / name).read_bytes()).hexdigest()
        for name in ("trials.parquet", "points.parquet")
    }
    provenance |= {"checksums": checksums, "posteriors": {"sha256": "its digest"}}
    (place / "provenance.json").write_text(json.dumps(provenance), "utf-8")
    shutil.rmtree(place / "store")
    for name in ("rows.parquet", "run.json"):
        (place / name).unlink()


def make_store(place: Path) -> None:
    """Write the store as it was."""
    store = RunFolder(place / "store")
    with sqlite3.connect(place / "store.sqlite") as db:
        key = "dataset, entry, point, stage, split, trial, fold"
        db.execute("PRAGMA user_version = 2")
        db.execute("CREATE TABLE cells (dataset, entry, point, fit_hash)")
        db.execute(f"CREATE TABLE fits ({key}, status, body, artefact)")
        db.execute(f"CREATE TABLE scores ({key}, metric, value, code)")
        db.execute(f"CREATE TABLE points ({key}, axis, at, metric, value)")
        db.execute(f"CREATE TABLE refusals ({key}, metric, reason)")
        db.execute("CREATE TABLE made (variant)")
        db.execute("INSERT INTO made VALUES (?)", (store.request_text,))
        for cell in store.list_cells():
            db.execute("INSERT INTO cells VALUES (?, ?, ?, ?)", (*cell, store.find_fit_hash(cell)))
        for row, curve_points, _ in load_all(store):
            values = (*row.cell, *row.key)
            body = {name: getattr(row, name) for name in ("reason", "hyper", "seconds", "details")}
            fit = (*values, row.status, json.dumps(body), row.artefact)
            db.execute(f"INSERT INTO fits VALUES ({', '.join('?' * 10)})", fit)
            for name, value in row.metrics.items():
                score = (*values, name, value, row.score_hashes.get(name, ""))
                db.execute(f"INSERT INTO scores VALUES ({', '.join('?' * 10)})", score)
            for point in curve_points:
                db.execute(f"INSERT INTO points VALUES ({', '.join('?' * 11)})", (*values, *point))
    for path in place.iterdir():
        if path.name not in ("store.sqlite", "posteriors"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_published_rows_are_read_and_converted_to_the_same(place, invoke):
    records, shown = RunFolder(place), invoke("table", "small.yaml")[1]
    before, table = load_all(records), records.tabulate()
    hashes = [records.find_fit_hash(cell) for cell in records.list_cells()]
    make_published(place)
    assert invoke("table", "small.yaml")[1] == shown
    assert "fits: 0 of" in invoke("run", "small.yaml", "--published", "--dry-run")[1]
    legacy.convert_folder(place)
    assert not {"trials.parquet", "provenance.json"} & {path.name for path in place.iterdir()}
    after = RunFolder(place)
    pd.testing.assert_frame_equal(after.tabulate(), table, check_exact=True)
    assert [after.find_fit_hash(cell) for cell in after.list_cells()] == hashes
    for old, new in zip(before, load_all(after), strict=True):
        assert old == new
        assert (old.row.artefact, old.row.refusals) == (new.row.artefact, new.row.refusals)
        assert new.row.score_hashes == old.row.score_hashes
        if new.row.artefact:
            assert after.posteriors.is_whole(new.row.artefact)
    code, out, _ = invoke("verify", place)
    assert (code, "8 scores of 4 fits follow" in " ".join(out.split())) == (0, True)


def test_a_store_is_read_and_a_run_goes_on_from_it(place, invoke):
    before, shown = load_all(RunFolder(place / "store")), invoke("table", "small.yaml")[1]
    make_store(place)
    assert invoke("table", "small.yaml")[1] == shown
    assert (place / "store.sqlite").exists(), "a reader changes nothing"
    code, out, err = invoke("run", "small.yaml", "--no-compile", "--tracking", "none")
    assert (code, err) == (0, "")
    assert "Everything is in the store already" in out
    assert not (place / "store.sqlite").exists()
    assert load_all(RunFolder(place / "store")) == before


@pytest.mark.parametrize("stopped_at", ["write_rows", "Path.rename"])
def test_a_conversion_that_is_stopped_leaves_the_old_store(place, invoke, monkeypatch, stopped_at):
    before, shown = load_all(RunFolder(place / "store")), invoke("table", "small.yaml")[1]
    make_store(place)
    (place / "checkpoints").mkdir()
    (place / "checkpoints" / "chain").write_text("draws", encoding="utf-8")

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(f"bdl.stored_results.legacy.{stopped_at}", stop)
        with pytest.raises(KeyboardInterrupt):
            legacy.convert_folder(place)
    assert invoke("table", "small.yaml")[1] == shown
    legacy.convert_folder(place)
    assert load_all(RunFolder(place / "store")) == before
    assert (place / "store" / "checkpoints" / "chain").read_text(encoding="utf-8") == "draws"
    remaining = {path.name for path in place.iterdir()}
    assert not {"store.sqlite", "store.new", "checkpoints"} & remaining


@pytest.mark.parametrize("name", ["trials.parquet", "points.parquet"])
def test_damaged_rows_are_refused(place, name):
    make_published(place)
    content = bytearray((place / name).read_bytes())
    content[len(content) // 2] ^= 1
    (place / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name} is damaged or of another run"):
        legacy.read_published(place)


def test_a_damaged_store_is_refused(place):
    (place / "store.sqlite").write_text("no database" * 1000)
    with pytest.raises(InputError, match=r"cannot read .*store\.sqlite .*; move it away"):
        legacy.read_store(place)
