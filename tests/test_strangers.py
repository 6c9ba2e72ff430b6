"""Folders of results that a stranger made: reading them runs no code, and writes nowhere else."""

import json
import shutil
import sqlite3
import zipfile
from hashlib import sha256
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import save

from bdl.archive.frames import _MADE  # the key under which a table keeps its request

RESULTS = Path(__file__).parents[1] / "results"
NAME = "noisy-wine-splits"
READING = ["table", "figures", "report", "compare", "failures", "log"]
MARK = "<script>alert(1)</script>"


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """A file whose import leaves a mark."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "evil.py"
    file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n\ndef load():\n    pass\n")
    return file


@pytest.fixture
def folder(tmp_path):
    """Published rows as they come, to be changed."""
    return Path(shutil.copytree(RESULTS / NAME, tmp_path / "results" / NAME))


def change_request(folder, change):
    """Change what the rows say that they were made with, with all checksums right."""
    path = folder / "trials.parquet"
    rows = pd.read_parquet(path)
    request = json.loads(rows.attrs[_MADE])
    change(request["spec"])
    rows.attrs[_MADE] = json.dumps(request)
    rows.to_parquet(path, compression="zstd", index=False)
    provenance = json.loads((folder / "provenance.json").read_text("utf-8"))
    provenance["checksums"]["trials.parquet"] = sha256(path.read_bytes()).hexdigest()
    (folder / "provenance.json").write_text(json.dumps(provenance), "utf-8")


def name_in(*path):
    """Put a name into a spec, at a place of its tree."""

    def change(spec, name):
        for key in path[:-1]:
            spec = spec[key]
        spec[path[-1]] = name

    return change


PLACES = {
    "data set": name_in("datasets", 0),
    "metric": lambda spec, name: spec["metrics"].append(name),
    "method": name_in("entries", "adam", "method", "name"),
    "model": name_in("entries", "adam", "model", "name"),
    "likelihood": name_in("entries", "adam", "likelihood", "name"),
    "prior": name_in("entries", "adam", "prior", "name"),
    "factory": lambda spec, name: spec["entries"]["adam"].update(
        model={"name": "module", "factory": name}
    ),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("spelling", ["{file}:load", "bdl.models./../{file}:load", "evil:load"])
def test_no_reading_command_runs_code_that_results_name(
    invoke, folder, evil, tmp_path, monkeypatch, place, spelling
):
    monkeypatch.syspath_prepend(str(tmp_path))
    change_request(folder, lambda spec: PLACES[place](spec, spelling.format(file=evil)))
    before = sorted(tmp_path.rglob("*"))
    for command in READING:
        code, out, err = invoke(command, NAME)
        assert code == 2, (command, out)
        reason = "has no store" if command == "log" else "asks for code from outside the package"
        assert reason in err
        assert err.count("\n") == 1
    assert not (tmp_path / "ran").exists()
    assert [path for path in sorted(tmp_path.rglob("*")) if path not in before] == []


def test_the_file_that_names_the_code_allows_it(invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(
        "from dataclasses import dataclass\n"
        "from typing import ClassVar\n"
        "from bdl.metrics import MetricInfo\n"
        "@dataclass(frozen=True)\n"
        "class Own:\n"
        "    info: ClassVar = MetricInfo('Own', 'fraction', 'lower', 'predictive', 'regression')\n"
        "    def __call__(self, evaluation):\n"
        "        return 1.0\n"
    )
    Path("own.yaml").write_text(
        "name: own\ntitle: Own\ndatasets: [diabetes]\nsplits: 1\nentries:\n  exact:\n"
        "    model: {name: linear}\n    likelihood: {name: gaussian}\n"
        "    method: {name: conjugate}\n"
        "    hyper: {prior_precision: 1, noise_precision: 1}\n"
        "metrics: [rmse, 'own.py:Own']\n"
    )
    assert invoke("run", "own.yaml", "--tracking", "none")[0] == 0
    assert invoke("table", "own.yaml")[0] == 0


def test_a_store_names_no_code_either(invoke, folder, evil, tmp_path):
    """The request of a store is text as well, and so is the family of a posterior."""
    rows = pd.read_parquet(folder / "trials.parquet")
    request = json.loads(rows.attrs[_MADE])
    PLACES["metric"](request["spec"], f"{evil}:load")
    for path in folder.iterdir():
        if path.is_file():
            path.unlink()
    with sqlite3.connect(folder / "store.sqlite") as db:
        db.execute("PRAGMA user_version = 1")
        db.execute("CREATE TABLE made (variant TEXT)")
        db.execute("INSERT INTO made VALUES (?)", (json.dumps(request),))
    for command in READING:
        assert invoke(command, NAME)[0] == 2
    assert not (tmp_path / "ran").exists()


def test_a_stored_posterior_names_no_code(evil, tmp_path):
    from bdl.errors import InputError
    from bdl.store.artefacts import decode_posterior

    content = save({"posterior.loc": torch.ones(2)}, metadata={"family": f"{evil}:load"})
    with pytest.raises(InputError, match="asks for code from outside the package"):
        decode_posterior(content)
    assert not (tmp_path / "ran").exists()


def test_posteriors_that_unpack_to_gigabytes_are_refused(invoke, tmp_path):
    """Of a benchmark of simulated data, which needs no file."""
    name = "vifa-synthetic"
    folder = Path(shutil.copytree(RESULTS / name, tmp_path / "results" / name))
    with zipfile.ZipFile(folder / "posteriors.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("index.json", b" " * 200_000_000)
    content = (folder / "posteriors.zip").read_bytes()
    provenance = json.loads((folder / "provenance.json").read_text("utf-8"))
    provenance["posteriors"] = {"sha256": sha256(content).hexdigest()}
    (folder / "provenance.json").write_text(json.dumps(provenance), "utf-8")
    code, _, err = invoke("run", name, "--published", "--dry-run", "--results", folder.parent)
    assert code == 2
    assert "unpacks to 200 MB" in err


def test_a_table_of_billions_of_rows_is_refused(invoke, folder):
    """Equal values take a few bytes, however many there are."""
    (folder / "provenance.json").unlink()
    pd.DataFrame({"dataset": ["x"]}).loc[[0] * 50_000_000].to_parquet(folder / "trials.parquet")
    code, _, err = invoke("table", NAME, "--results", folder.parent)
    assert code == 2
    assert "values, more than the 40,000,000 of any run" in err


@pytest.mark.data
def test_html_in_results_is_text_in_a_report(invoke, folder):
    def change(spec):
        spec["title"] = MARK
        spec["notes"] = [{"entry": "adam", "text": MARK}]

    change_request(folder, change)
    path = folder / "trials.parquet"
    rows = pd.read_parquet(path)
    rows["reason"] = MARK
    rows.to_parquet(path)
    (folder / "provenance.json").unlink()
    code, _, err = invoke(
        "report", NAME, "--results", folder.parent, "--output", folder / "r.html"
    )
    assert code == 0, err
    assert MARK not in (folder / "r.html").read_text("utf-8")
