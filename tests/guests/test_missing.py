"""Runs without the package that an entry needs: its published fits are imported, or it is left out, with a line."""

import shutil

import pytest

from bdl.methods import guest as guests
from bdl.records.run_folder import RunFolder

from .conftest import BENCHMARK, CONJUGATE, GUESTS, line

MISSING = "lacking is left out: Known needs not_here: pip install 'bdl-bench[guests]'"
KNOWN = '''

@dataclass(frozen=True)
class Known(Weights):
    """A guest whose package may be missing."""

    needs = {"not_here": "bdl-bench[guests]"}

    @property
    def packages(self):
        return ""
'''


@pytest.fixture
def run(tmp_path, monkeypatch, invoke, blank_figures):
    """Run a benchmark of a fit that needs nothing and of one that needs a package, which is there or not."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.py").write_text(GUESTS + KNOWN)
    entries = (
        line(CONJUGATE, name="ours"),
        line(f"name: '{tmp_path}/theirs.py:Known'", name="lacking"),
    )
    (tmp_path / "guests.yaml").write_text(BENCHMARK.replace("ENTRIES", ", ".join(entries)))

    def call(*words, there=False):
        monkeypatch.setattr(
            guests, "find_spec", lambda name: (there or name != "not_here") or None
        )
        return invoke(
            "run", "guests.yaml", "--set", "evaluation.samples=5", "--tracking", "none", *words
        )

    return call


def finals(tmp_path):
    (path,) = (tmp_path / "results").rglob("run.json")
    rows = RunFolder(path.parent).tabulate()
    return [(row.entry, row.split) for row in rows[rows.stage == "final"].itertuples()]


def test_an_entry_without_its_package_is_left_out(run, tmp_path):
    code, out, err = run()
    assert (code, err) == (0, "")
    assert out.count(MISSING) == 1
    assert finals(tmp_path) == [("ours", 0), ("ours", 1)]


@pytest.mark.slow  # whole runs
def test_its_published_fits_are_imported_and_nothing_is_lost(run, tmp_path):
    assert run(there=True)[0] == 0
    for path in tmp_path.rglob("store"):
        shutil.rmtree(path)
    code, out, _ = run("--dry-run")
    assert code == 0
    assert "2 cells, fits: 0 of the search and 2 final; done already and left out: 0 and 2" in out
    code, out, _ = run()
    assert code == 0
    assert "final fits imported from published rows: 2" in out
    assert "left out: Known" not in out
    assert finals(tmp_path) == [("ours", 0), ("ours", 1), ("lacking", 0), ("lacking", 1)]


@pytest.mark.parametrize("words", [["--method", "lacking"], ["--method", "lacking", "--dry-run"]])
def test_what_is_asked_for_by_name_is_refused(run, words):
    code, _, err = run(*words)
    assert (code, err) == (
        2,
        "bdl-bench: entries.lacking: Known needs not_here: pip install 'bdl-bench[guests]'\n",
    )
