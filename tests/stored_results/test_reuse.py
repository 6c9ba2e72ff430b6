"""Published rows as the beginning of a store: fits of the same identity are not made again."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from run_folders import rewrite

import bdl
from bdl.errors import InputError
from bdl.execution.scheduler import check_stored_fits
from bdl.plan.planning import list_tasks
from bdl.publishing import provenance
from bdl.records.run_folder import ORIGIN_FIELDS, RunFolder
from bdl.spec import load_request
from bdl.stored_results.loading import load_timings
from bdl.stored_results.reuse import (
    copy_fits,
    find_published_fits,
    list_reusable_splits,
    open_published_fits,
)

pytestmark = pytest.mark.usefixtures("blank_figures")

SPEC = """
name: small
title: Small
datasets: [diabetes]
splits: 3
entries:
  searched:
    model: {name: linear}
    likelihood: {name: gaussian}
    method: {name: vifa, gradients_per_update: 2}
    training: {epochs: 2, batch_size: 50}
    search:
      trials: 2
      folds: 2
      metric: rmse
      space:
        learning_rate: {low: 0.01, high: 0.02, scale: log}
        prior_precision: {low: 0.1, high: 1, scale: log}
        noise_precision: {low: 0.0001, high: 0.001, scale: log}
  fixed: &fixed
    model: {name: linear}
    likelihood: {name: gaussian}
    method: {name: vifa, gradients_per_update: 2}
    training: {epochs: 2, batch_size: 50}
    hyper: {learning_rate: 0.01, prior_precision: 1, noise_precision: 0.001}
sweep:
  training.epochs: [2, 3]
record: {every: 1, unit: epochs}
evaluation: {samples: 5}
metrics: [nmll, rmse, runtime]
"""
PLACE = Path("results/small")
FINALS = 2 * 2 * 3  # entries, values of the sweep, splits
IMPORTED = "final fits imported from published rows: {}, {} of them without posteriors"


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    """A folder with a benchmark that was run."""
    folder = tmp_path_factory.mktemp("original")
    (folder / "small.yaml").write_text(SPEC, "utf-8")
    rows = bdl.benchmark(folder / "small.yaml").run(compile=False, results=folder / "results").rows
    assert set(rows.status) == {"ok"}
    return folder


@pytest.fixture
def file(original, tmp_path, monkeypatch) -> Path:
    """The benchmark in a clone, which has all but store and posteriors."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(
        original,
        tmp_path,
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("store*", "posteriors*"),
    )
    return tmp_path / "small.yaml"


@pytest.fixture
def run(file, invoke):
    return lambda *words: invoke("run", file, "--no-compile", "--tracking", "none", *words)


def published():
    return [open_published_fits(PLACE)]


def cells(file):
    return list_tasks(load_request(str(file), "paper").benchmark)


def left(file):
    """How many final fits would be imported."""
    with RunFolder(None) as store:
        return sum(map(len, list_reusable_splits(cells(file), store, published()).values()))


def test_imported_fits_are_those_of_the_store(file, original):
    """All of it, but the posteriors."""
    with RunFolder(None) as store, RunFolder(original / PLACE / "store") as own:
        for cell in cells(file):
            store.claim(cell.key, str(own.find_fit_hash(cell.key)))
        assert copy_fits(cells(file), store, published()) == FINALS
        for cell in cells(file):
            assert store.load_curve_points(cell.key) == own.load_curve_points(cell.key) != []
            for stage in ("search", "final"):
                found, wanted = store.load_rows(stage, cell.key), own.load_rows(stage, cell.key)
                for row in found:
                    assert ("origin" in row.details) == (stage == "final")
                    row.details.pop("origin", None)
                assert found == wanted
                assert [row.score_hashes for row in found] == [row.score_hashes for row in wanted]
                assert all(row.artefact is None for row in found)


def test_a_clone_imports_published_fits_if_told_so(run):
    rows, figures = (
        RunFolder(PLACE).tabulate(),
        sorted(PLACE.joinpath("figures").iterdir()),
    )
    code, out, _ = run("--published")
    assert code == 0
    assert IMPORTED.format(FINALS, FINALS) in out
    assert "Everything is in the store already" in out
    pd.testing.assert_frame_equal(RunFolder(PLACE).tabulate(), rows)
    assert sorted(PLACE.joinpath("figures").iterdir()) == figures
    code, out, _ = run("--published")
    assert (code, "imported" in out) == (0, False)


def test_a_clone_makes_every_fit_itself_if_not(run):
    """A run that has begun so cannot be told to import what nobody has published."""
    assert "imported" not in run()[1]
    assert list(PLACE.joinpath("posteriors").iterdir())
    for name in ("rows.parquet", "run.json", "trials.parquet"):
        (PLACE / name).unlink()
    code, _, err = run("--published", "--dry-run")
    assert (code, "--published: no published rows in results/small" in err) == (2, True)


def test_what_is_missing_is_made(file, run):
    """An entry that is added; fits that failed are results like others."""

    def failed(rows):
        return rows.assign(
            status=rows.status.mask((rows.entry == "fixed") & (rows.split == 1), "failed")
        )

    rows = RunFolder(PLACE).tabulate()
    rewrite(PLACE, failed)
    file.write_text(SPEC.replace("sweep:", "  own: *fixed\nsweep:"), "utf-8")
    assert "fits: 0 of the search and 6 final" in run("--published", "--dry-run")[1]
    code, out, _ = run("--published")
    assert code == 1, "two have failed"
    assert IMPORTED.format(FINALS, FINALS - 2) in out
    again = RunFolder(PLACE).tabulate()
    assert again[again.stage == "final"].groupby("entry").size().to_dict() == {
        "fixed": 6,
        "own": 6,
        "searched": 6,
    }
    both = again[again.status == "ok"].merge(
        rows, on=["entry", "stage", "split", "trial", "fold", "training.epochs"]
    )
    assert both.rmse_x.tolist() == both.rmse_y.tolist()
    failed_fits = find_published_fits(load_request(str(file)), PLACE.parent, with_failed=False)
    tasks = [task for task in cells(file) if task.entry == "fixed"]
    assert {split for task in tasks for split in failed_fits[0].list_splits(task)} == {0, 2}
    code, out, _ = run("--published", "--retry-failed")
    assert (code, "fits that failed and are made again: 2" in out) == (0, True)
    assert "imported" not in out, "the failed fits that are published as well"


@pytest.mark.parametrize(
    ("changed", "number"),
    [
        (("batch_size: 50", "batch_size: 40"), 6),  # of one entry
        (("samples: 5", "samples: 6"), 0),
        (("metrics: [nmll,", "metrics: [nll,"), 0),
    ],
)
def test_other_fits_and_other_scores_are_not_imported(file, changed, number):
    file.write_text(SPEC.replace(*changed, 1), "utf-8")
    assert left(file) == number


def test_scores_that_need_posteriors_are_refused_rather_than_left_as_they_were(file, run):
    assert run("--published")[0] == 0
    before = (PLACE / "rows.parquet").read_bytes()
    file.write_text(SPEC.replace("nmll, rmse", "nmll, mse_at_mean, rmse"), "utf-8")
    for words in ((), ("--dry-run",), ("--published",)):
        code, _, err = run(*words)
        assert code == 2
        assert (
            "as published, without posteriors: new or changed scores (mse_at_mean) need the posteriors"
            in err
        )
        assert err.endswith("--changed\n")
    assert (PLACE / "rows.parquet").read_bytes() == before
    code, out, _ = run("--changed")
    assert code == 0
    assert "Starting 4 of 4 cells anew" in out
    rows = RunFolder(PLACE).tabulate()
    assert rows[rows.stage == "final"].mse_at_mean.notna().all()


def test_fits_without_the_curves_that_are_recorded_are_left(file):
    rewrite(PLACE, has_curve=lambda row: row.entry == "fixed" or row.split > 0)
    assert left(file) == FINALS - 2
    rewrite(PLACE, has_curve=lambda row: False)
    assert left(file) == 0


def test_a_score_that_is_not_finite_is_imported_as_one(file):
    rewrite(PLACE, lambda rows: rows.assign(rmse=rows.rmse.mask(rows.stage == "final")))
    with RunFolder(None) as store:
        assert copy_fits(cells(file), store, published()) == FINALS
        rows = [row for cell in cells(file) for row in store.load_rows("final", cell.key)]
        assert {row.metrics["rmse"] for row in rows} == {None}
        check_stored_fits(cells(file), store)


def test_where_fits_were_made_is_kept_however_often_they_are_imported(file, original):
    made, known = (
        load_request(str(file), "paper"),
        json.loads((PLACE / "run.json").read_text("utf-8")),
    )
    known |= {
        "machine": {"processor": "Abacus"},
        "git_commit": "c0ffee",
        "written": "1985-10-26",
        "work_minutes": 42.0,
    }
    provenance.write_provenance(known, PLACE)
    labels = {cell.label: [0, 1, 2] for cell in cells(file)}
    for _ in range(2):
        with RunFolder(None) as store:
            for cell in cells(file):
                store.claim(cell.key, known["fit_hashes"][cell.label])
            copy_fits(cells(file), store, published())
            again = provenance.describe_provenance(made, cells(file), store, 0.0)
        (found,) = again["taken_from"]
        assert {name: found[name] for name in ORIGIN_FIELDS} == {
            name: known[name] for name in ORIGIN_FIELDS
        }
        assert (found["cells"], found["work_minutes"] > 0, again["work_minutes"]) == (
            labels,
            True,
            0,
        )
        assert again["machine"]["processor"] != "Abacus"
        assert again["machine"]["device"] == "none"
        store.record_request(json.dumps(made.dump()))
        store.publish(PLACE, [cell.key for cell in cells(file)])
        provenance.write_provenance(again, PLACE)
    with RunFolder(original / PLACE / "store") as own:
        here = provenance.describe_provenance(made, cells(file), own, 0.0)
    assert (here["taken_from"], here["work_minutes"]) == ([], found["work_minutes"])
    assert here["machine"]["device"] == "cpu"


def test_imported_fits_are_not_timings_of_this_machine_and_have_no_posterior(file, original):
    asked = load_request(str(file), "paper")
    with RunFolder(PLACE / "store") as store:
        store.record_request(json.dumps(asked.dump()))
        for cell in cells(file):
            store.claim(cell.key, cell.fit_hash)
        copy_fits(cells(file), store, published())
    imported, own = load_timings(asked, Path("results")), load_timings(asked, original / "results")
    assert {one.basis for one in imported} == {"the same cells in other or published runs"}
    assert {one.basis for one in own} == {"the same cells"}
    assert sorted(one._replace(basis="the same cells") for one in imported) == sorted(own)
    told = f"split 0 has no posterior: it was imported from published rows; .*: bdl-bench run {file} --fresh$"
    with pytest.raises(InputError, match=told):
        bdl.benchmark(file).results().posterior("diabetes", "fixed", at={"training.epochs": 2})


def test_other_folders_are_imported_as_far_as_they_can_be_read(file, run):
    other = PLACE / "variants/other"
    shutil.copytree(PLACE, other, ignore=shutil.ignore_patterns("variants"))
    for text in ("{", "[]", '{"fit_hashes": []}'):
        (other / "run.json").write_text(text, "utf-8")
        fits = find_published_fits(load_request(str(file)), PLACE.parent)
        assert sum(source.has_rows for source in fits) == 1
    content = (PLACE / "rows.parquet").read_bytes()
    rewrite(PLACE, change_hashes=lambda row: {})
    assert left(file) == 0, "published without hashes"
    (PLACE / "rows.parquet").write_bytes(content)
    (PLACE / "run.json").write_text("{", "utf-8")
    code, out, err = run("--published")
    assert (code, out) == (2, "")
    assert err.startswith("bdl-bench: cannot read results/small/run.json")
    for name in ("rows.parquet", "run.json", "trials.parquet"):
        (PLACE / name).unlink()
    assert run("--published", "--dry-run")[0] == 2, "what is left cannot be read"


def test_what_published_rows_lack_is_told(file, run):
    """A new score needs posteriors, which a clone lacks; another spec needs all anew."""
    told = "published final fits that are made anew here: "
    assert told not in run("--published", "--dry-run")[1]
    new_score = run("--published", "--dry-run", "--set", "metrics=[nmll, rmse, crps]")[1]
    assert f"{told}{FINALS} lack scores, curves or posteriors\n" in new_score
    half = run("--published", "--dry-run", "--set", "entries.fixed.hyper.learning_rate=0.02")[1]
    assert f"{told}{FINALS // 2} are of another spec, data or code\n" in half
    one = run("--published", "--splits", "1", "--method", "fixed", "--set", "evaluation.samples=6")
    assert (one[0], f"{told}2 lack scores, curves or posteriors" in one[1]) == (0, True)


def test_a_run_begins_with_what_is_published_or_anew(file, run):
    code, _, err = run("--published", "--fresh", "--dry-run")
    assert (code, err.count("\n")) == (2, 1)
    with pytest.raises(InputError, match="--fresh --published: start anew"):
        bdl.benchmark(file).run(fresh=True, published=True)
