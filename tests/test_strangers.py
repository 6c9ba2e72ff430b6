"""Folders of results that a stranger made: reading them runs no code, and writes nowhere else."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from safetensors.torch import save

from bdl.publishing.provenance import write_provenance
from bdl.records.row_files import SCHEMA, read_rows, write_rows

RESULTS = Path(__file__).parents[1] / "results"
NAME = "noisy-wine-splits"
READING = [
    "table",
    "table --tracking sqlite:///runs.db",
    "figures",
    "report",
    "compare",
    "failures",
]
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


def change_table(folder, change):
    """Change the rows, with all checksums right."""
    path = folder / "rows.parquet"
    content = read_rows(path)
    write_rows(path, change(content.table), content.request)
    if (folder / "run.json").exists():
        rewrite_provenance(folder)


def change_request(folder, change):
    """Change what the rows say that they were made with, with all checksums right."""
    path = folder / "rows.parquet"
    content = read_rows(path)
    request = json.loads(content.request)
    change(request["spec"])
    write_rows(path, content.table, json.dumps(request))
    rewrite_provenance(folder)


def rewrite_provenance(folder):
    write_provenance(json.loads((folder / "run.json").read_text("utf-8")), folder)


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
        code, out, err = invoke(*command.split(), NAME)
        assert code == 2, (command, out)
        assert "asks for code from outside the package" in err
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
    content = read_rows(folder / "rows.parquet")
    request = json.loads(content.request)
    PLACES["metric"](request["spec"], f"{evil}:load")
    for path in folder.iterdir():
        if path.is_file():
            path.unlink()
    write_rows(folder / "store/rows.parquet", content.table, json.dumps(request))
    for command in READING:
        assert invoke(*command.split(), NAME)[0] == 2
    assert not (tmp_path / "ran").exists()


def test_a_stored_posterior_names_no_code(evil, tmp_path):
    from bdl.errors import InputError
    from bdl.records.posterior_files import decode_posterior

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
    code, _, err = invoke("run", name, "--published", "--dry-run", "--results", folder.parent)
    assert code == 2
    assert "unpacks to 200 MB" in err


def repeat(table, count):
    """Repeat the first row."""
    few = pa.concat_tables([table.slice(0, 1)] * 1000).combine_chunks()
    return pa.concat_tables([few] * (count // 1000)).combine_chunks()


def test_a_table_of_billions_of_rows_is_refused(invoke, folder):
    """Equal values take a few bytes, however many there are."""
    change_table(folder, lambda table: repeat(table, 2_000_000))
    assert (folder / "rows.parquet").stat().st_size < 1_000_000
    code, _, err = invoke("table", NAME, "--results", folder.parent)
    assert code == 2
    assert "values, more than the 40,000,000 of any run" in err


def with_text(table, **texts):
    """Give every row the same texts, which the file holds once."""
    for name, text in texts.items():
        indices = pa.array([0] * len(table), pa.int32())
        column = pa.DictionaryArray.from_arrays(indices, pa.array([text]))
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table.cast(SCHEMA)


ATTACKS = {
    "rows": lambda table: repeat(table, 2_000_000),
    "paths as names": lambda table: with_text(table, dataset="../../x", entry="/tmp/x"),
    "brackets as points": lambda table: with_text(table, point="[" * 200_000),
    "a long text": lambda table: with_text(table, reason="x" * 10**7),
}
BRACKETS = "brackets as provenance"
READ_ALL = """
import sys
from pathlib import Path
from bdl.cli import main
for command in {commands}:
    sys.argv = ["bdl-bench", *command.split(), {name!r}]
    try:
        main()
    except SystemExit as stop:
        assert stop.code in (0, 1, 2), (command, stop.code)
peak = [line for line in Path("/proc/self/status").open() if line.startswith("VmHWM")]
print(int(peak[0].split()[1]) // 1000)
"""
"""Run every reading command, and print the peak of memory in MB: that of this process alone."""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the files of Linux")
@pytest.mark.parametrize("attack", [*ATTACKS, BRACKETS])
def test_every_reading_command_stays_under_a_gigabyte(folder, tmp_path, attack):
    if attack == BRACKETS:
        (folder / "run.json").write_text("[" * 200_000)
    else:
        change_table(folder, ATTACKS[attack])
        (folder / "run.json").unlink()
    outside = {path for path in tmp_path.rglob("*") if folder not in path.parents}
    script = READ_ALL.format(commands=READING, name=NAME)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[-1]) < 1000, "MB"
    assert "a fault of this program" not in done.stderr
    assert {path for path in tmp_path.rglob("*") if folder not in path.parents} == outside


def test_a_long_text_in_many_rows_is_refused(invoke, folder):
    change_table(folder, ATTACKS["a long text"])
    code, _, err = invoke("table", NAME, "--results", folder.parent)
    assert code == 2
    assert "MB of text, more than the 200 of any run" in err


@pytest.mark.data
def test_html_in_results_is_text_in_a_report(invoke, folder):
    def change(spec):
        spec["title"] = MARK
        spec["notes"] = [{"entry": "adam", "text": MARK}]

    change_request(folder, change)
    change_table(folder, lambda table: with_text(table, reason=MARK))
    code, _, err = invoke(
        "report", NAME, "--results", folder.parent, "--output", folder / "r.html"
    )
    assert code == 0, err
    assert MARK not in (folder / "r.html").read_text("utf-8")
