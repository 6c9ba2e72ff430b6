"""`run --dry-run`, and sizes that no machine can do: one line and code 2 before anything starts."""

import re
from pathlib import Path

import pytest
from tiny import TINY, contents


@pytest.fixture
def run(tiny, invoke):
    return lambda *words: invoke("run", "tiny.yaml", "--no-compile", "--tracking", "none", *words)


FIXED = "entries.fixed."
ABSURD = {
    "splits=1000000000": ["1,000,000,000 splits", "2.0 TB of memory", "available"],
    FIXED + "model={name: mlp, hidden: [1000000000]}": [
        "12,000,000,001 parameters",
        "TB of memory",
    ],
    FIXED + "training.epochs=1000000000000000": ["epochs", "less than or equal to 1000000000"],
    FIXED + "training.epochs=1e15": ["epochs", "integer"],
    FIXED + f"training.epochs=1{'0' * 400}": ["is too large: integers go to"],
    "evaluation.samples=1000000000000000": ["samples", "less than or equal to 1000000000"],
    FIXED + "method={name: bbb, samples: 1000000000}": ["parameters, need about", "GB of memory"],
    "splits=10000 " + FIXED + "training.epochs=1000000000": [
        "years of this machine",
        "diabetes/fixed",
        "epochs",
    ],
    "splits=1000000000 --splits=0-99999999": ["splits '0-99999999'", "100,000,000"],
    "splits=1000000000 --splits=1": ["1,000,000,000", "1,000,000 at most"],
    "--jobs=0": ["--jobs 0: give 1, a larger number, or auto"],
    "--jobs=100000": ["--jobs 100000", "TB of memory", "choose fewer"],
}


@pytest.mark.parametrize("changes", ABSURD, ids=lambda changes: changes[:60])
def test_what_no_machine_can_do_is_refused_before_it_starts(run, tmp_path, monkeypatch, changes):
    monkeypatch.setattr("bdl.runtime.available_memory", lambda: 16 * 10**9)
    words = [
        change if change.startswith("-") else f"--set={change}"
        for change in re.split(r"(?<![:,]) ", changes)
    ]
    before = contents(tmp_path)
    for dry in ([], ["--dry-run"]):
        code, out, err = run(*words, *dry)
        assert (code, out, err.count("\n")) == (2, "", 1), out + err
        assert all(fragment in err for fragment in ABSURD[changes]), err
    assert contents(tmp_path) == before


def test_a_dry_run_tells_what_is_left_and_writes_nothing(run, tmp_path):
    """What a run takes over from others is left out.

    A short run says nothing of this before it starts.
    """
    before = contents(tmp_path)
    code, out, err = run("--dry-run")
    assert (code, err) == (0, "")
    assert "1 cell, fits: 0 of the search and 2 final\n" in out
    assert "less than a minute" in out
    assert "this rests on what was measured of timed updates (100% of the fits)" in out
    assert "memory: about " in out
    assert "disk: about " in out
    assert contents(tmp_path) == before
    code, out, _ = run("--splits", "0-0")
    assert (code, "memory: about" in out) == (0, False)
    before = contents(tmp_path)
    out = run("--dry-run")[1]
    assert "fits: 0 of the search and 1 final; done already and left out: 0 and 1" in out
    assert "measured of the same cells in other or published runs (100% of the fits)" in out
    assert "there is nothing left to train" in run("--dry-run", "--splits", "0-0")[1]
    assert "fits: 0 of the search and 2 final\n" in run("--dry-run", "--fresh")[1]
    assert contents(tmp_path) == before


def test_a_dry_run_without_the_data_says_what_to_fetch(run, tmp_path, monkeypatch):
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path / "nowhere"))
    monkeypatch.delenv("BDL_DATA_MIRROR", raising=False)
    before = contents(tmp_path)
    code, out, _ = run("--dry-run", "--set", "datasets=[energy]")
    assert code == 0
    assert out.splitlines() == [
        "1 cell, fits: 0 of the search and 2 final",
        "not on this machine, and needed to estimate how long it takes: energy (43 of 43 files)",
        "download it with: bdl-bench data fetch energy (run without --dry-run does so by itself)",
    ]
    assert contents(tmp_path) == before


def test_a_dry_run_without_the_data_counts_what_is_published(invoke, tmp_path, monkeypatch):
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path / "nowhere"))
    monkeypatch.delenv("BDL_DATA_MIRROR", raising=False)
    words = ["run", "uci-regression", "--published", "--dry-run", "--dataset", "energy"]
    results = Path(__file__).parents[1] / "results"
    _, out, _ = invoke(*words, "--results", str(results))
    assert out.splitlines()[:2] == [
        "9 cells, fits: 24,000 of the search and 180 final",
        "published: 180 of the final fits; they are imported, search included, if they were made "
        "with the same data",
    ]


def test_published_rows_are_not_made_anew_where_there_are_none(run, tmp_path):
    code, _, err = run("--published")
    assert code == 2
    assert "--published: no published rows in" in err
    assert "in a clone of the repository" in err
    assert not (tmp_path / "results").exists()


def test_the_time_of_what_has_no_updates_is_unknown_until_it_was_run(run, tiny):
    text = TINY.replace("{name: vifa, gradients_per_update: 2}", "{name: conjugate}")
    for part in ("    training: {epochs: 1, batch_size: 10}\n", "learning_rate: 0.01, "):
        text = text.replace(part, "")
    tiny.write_text(text, "utf-8")
    assert "time: unknown; there are no earlier fits" in run("--dry-run")[1]
    assert run("--splits", "0-0")[0] == 0
    assert "time: less than a minute here" in run("--dry-run")[1]


def test_a_time_is_of_what_is_known(run, tiny):
    text = TINY.replace("evaluation:", "  exact: *exact\nevaluation:")
    exact = """  other: &exact
    model: {name: linear}
    likelihood: {name: gaussian}
    method: {name: conjugate}
    hyper: {prior_precision: 1, noise_precision: 0.01}
"""
    tiny.write_text(text.replace("  exact: *exact", exact + "  exact: *exact"), "utf-8")
    line = next(line for line in run("--dry-run")[1].splitlines() if line.startswith("time: "))
    assert "for 33% of the fits; that of the others is unknown; this rests on" in line


def test_a_long_run_says_how_to_narrow_it(run):
    """Four billion updates: weeks, and no fit is started by asking."""
    _, out, _ = run("--dry-run", "--set", "entries.fixed.training.epochs=200000000")
    assert "days here" in out
    assert "shorter: bdl-bench run tiny.yaml --profile quick, or" in out
    assert (
        "or bdl-bench run tiny.yaml --splits 1 --set entries.fixed.training.epochs=200000000"
        in out
    )


def test_a_dry_run_knows_data_sets_by_what_the_file_calls_them(run):
    code, out, err = run("--dry-run", "--set", "datasets=[{name: teacher_unit, label: toy}]")
    assert (code, err) == (0, "")
    assert "fits: 0 of the search and 2 final" in out


def test_an_executor_that_is_none_is_refused_before_a_run_is_planned(tiny, invoke):
    code, _, err = invoke("run", tiny, "--dry-run", "--executor", "foo")
    assert (code, "--executor foo: give dask:ADDRESS or slurm:FILE" in err) == (2, True)
