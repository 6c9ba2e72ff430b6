"""The command line: bad input in one line with code 2, failed trials with code 1, and nothing heavy for help."""

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
import torch
from filelock import FileLock

from bdl.data import DATASETS
from bdl.errors import InputError
from bdl.plan import _load
from bdl.spec import load_variant
from bdl.store.artefacts import Damaged, mended

pytestmark = pytest.mark.usefixtures("blank_figures")

TINY = """
name: tiny
title: A tiny benchmark
datasets: [diabetes]
splits: 2
entries:
  lr:
    model: {name: linear}
    likelihood: {name: gaussian}
    method: {name: vifa, gradients_per_update: 2}
    training: {epochs: 1, batch_size: 10}
    search:
      trials: 2
      folds: 2
      metric: nmll
      space:
        learning_rate: {low: 0.01, high: 0.02, scale: log}
        prior_precision: {low: 0.1, high: 1, scale: log}
        noise_precision: {low: 0.0001, high: 0.001, scale: log}
  fixed:
    model: {name: linear}
    likelihood: {name: gaussian}
    method: {name: vifa, gradients_per_update: 2}
    training: {epochs: 1, batch_size: 10}
    hyper: {learning_rate: 0.01, prior_precision: 1, noise_precision: 0.001}
evaluation: {samples: 5}
metrics: [nmll, rmse, runtime]
"""


@pytest.fixture
def run(invoke):
    return lambda *words: invoke("run", *words, "--no-compile", "--tracking", "none")


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")
    }


def assert_refused(result: tuple[int, str, str], *fragments: str) -> None:
    """Code 2, nothing on stdout, and on stderr one line with what the reader needs."""
    code, out, err = result
    assert code == 2, out + err
    assert out == ""
    assert err.startswith("bdl-bench: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    for fragment in fragments:
        assert fragment in err


OVERRIDES = [
    ("metrics=[nmll, rsme]", ["'rsme'", "did you mean rmse"]),
    ("entries.lr.method.latent_dim=12", ["latent_dim 12", "11 parameters", "lower it"]),
    ("entries.lr.training.batch_size=300", ["entries.lr.training", "199 rows of diabetes", "lower batch_size"]),
    ("entries.lr.search.folds=399", ["entries.lr.search.folds", "398 training rows", "at most 398"]),
    ("entries.lr.search.space.learning_rate.low=0.5", ["space.learning_rate", "reversed", "0.5", "0.02"]),
    ("seed=[1", ["--set seed=[1"]),
]


@pytest.mark.parametrize(("change", "fragments"), OVERRIDES, ids=[change for change, _ in OVERRIDES])
def test_an_override_that_cannot_be_is_refused(tiny, tmp_path, run, change, fragments):
    before = contents(tmp_path)
    assert_refused(run(tiny, "--set", change), *fragments)
    assert contents(tmp_path) == before


OPTIONS = [
    (["--dataset", "diabetis"], ["unknown dataset 'diabetis'", "did you mean diabetes"]),
    (["--method", "fixd"], ["unknown method 'fixd'", "did you mean fixed"]),
    (["--profile", "papr"], ["unknown profile 'papr'", "did you mean paper"]),
    (["--splits", "0"], ["splits '0'", "from 1 up"]),
    (["--splits", "3"], ["splits '3'", "there are 2 splits"]),
    (["--device", "tpu"], ["--device tpu", "cpu"]),
]


@pytest.mark.parametrize(("options", "fragments"), OPTIONS, ids=[" ".join(options) for options, _ in OPTIONS])
def test_an_option_that_cannot_be_is_refused(tiny, tmp_path, run, options, fragments):
    before = contents(tmp_path)
    assert_refused(run(tiny, *options), *fragments)
    assert contents(tmp_path) == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_without_a_device_is_refused(tiny, tmp_path, run):
    before = contents(tmp_path)
    assert_refused(run(tiny, "--device", "cuda"), "no CUDA device", "use --device cpu")
    assert contents(tmp_path) == before


FILES = [
    ("name: tiny\n  title: [", ["tiny.yaml, line 2"]),
    ("- a list", ["tiny.yaml", "mapping"]),
    (TINY.replace("[diabetes]", "[nowhere.py:data]"), ["nowhere.py", "no such file"]),
]


@pytest.mark.parametrize(("text", "fragments"), FILES, ids=range(len(FILES)))
def test_a_file_that_cannot_be_is_refused(tiny, tmp_path, run, text, fragments):
    tiny.write_text(text, "utf-8")
    before = contents(tmp_path)
    assert_refused(run(tiny), *fragments)
    assert contents(tmp_path) == before


def test_an_unknown_benchmark_is_refused_with_the_nearest(tiny, run, invoke):
    for result in (run("uci-regresion"), invoke("table", "uci-regresion"), invoke("log", "uci-regresion")):
        assert_refused(result, "unknown benchmark 'uci-regresion'", "did you mean uci-regression")
    assert_refused(run("no/such/file.yaml"), "cannot read benchmark no/such/file.yaml", "No such file")


@pytest.mark.parametrize("command", ["table", "figures", "log"])
def test_what_needs_results_says_how_to_get_them(tiny, tmp_path, invoke, command):
    before = contents(tmp_path)
    assert_refused(invoke(command, tiny), "no results in results/tiny", f"bdl-bench run {tiny}")
    assert contents(tmp_path) == before


@pytest.fixture
def offline(tmp_path, monkeypatch) -> Path:
    """An empty data directory, an empty mirror, a network that refuses every connection, and no data in memory."""
    _load.cache_clear()
    (tmp_path / "mirror").mkdir()
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("BDL_DATA_MIRROR", str(tmp_path / "mirror"))
    for scheme in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(scheme, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    return tmp_path / "cache"


def test_missing_data_without_a_network(tiny, tmp_path, offline, run):
    tiny.write_text(TINY.replace("[diabetes]", "[yacht]"), "utf-8")
    assert_refused(run(tiny), "cannot get data file", "BDL_DATA_MIRROR", "bdl-bench data fetch yacht")
    assert not (tmp_path / "results").exists()
    assert not [path for path in offline.rglob("*") if path.is_file()]


def test_corrupt_data_are_refused_and_left_alone(tiny, tmp_path, offline, run):
    tiny.write_text(TINY.replace("[diabetes]", "[yacht]"), "utf-8")
    path = offline / DATASETS.get("yacht").files[0].path
    path.parent.mkdir(parents=True)
    path.write_text("1 2 3\n")
    before = contents(tmp_path)
    assert_refused(run(tiny), "corrupt data file", path.name, "bdl-bench data fetch yacht")
    assert contents(tmp_path) == before


@pytest.mark.parametrize("place", ["results", "results/tiny"])
def test_a_file_in_the_way_of_the_results(tiny, tmp_path, run, place):
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("a file")
    before = contents(tmp_path)
    assert_refused(run(tiny), "cannot write to results/tiny", "choose another --results")
    assert contents(tmp_path) == before


def test_a_store_that_is_something_else(tiny, tmp_path, run):
    path = tmp_path / "results/tiny/store.sqlite"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database at all" * 100)
    assert_refused(run(tiny), "store.sqlite", "move it away")
    assert path.read_bytes() == b"no database at all" * 100


def test_two_runs_at_once(tiny, tmp_path, run):
    folder = tmp_path / "results/tiny"
    folder.mkdir(parents=True)
    with FileLock(folder / "store.lock"):
        assert_refused(run(tiny), "another run of tiny", "--results")
    assert [path.name for path in folder.iterdir() if path.name != "store.lock"] == []


def latest(tmp_path: Path) -> Path:
    """Folder that was published to last: that of the protocol, or that of a variant."""
    return max((tmp_path / "results").rglob("trials.parquet"), key=lambda path: path.stat().st_mtime_ns).parent


def raw(tmp_path: Path) -> pd.DataFrame:
    return pd.read_parquet(latest(tmp_path) / "trials.parquet")


def test_the_table_that_a_run_writes_is_the_one_that_is_shown_claims_included(tiny, run, invoke, tmp_path):
    claim = "claims: [{text: A claim, source: ours, metric: rmse, less: {entry: lr}, than: {entry: fixed}}]"
    tiny.write_text(f"{TINY}{claim}\n", "utf-8")
    assert run(tiny)[0] == 0
    code, shown, _ = invoke("table", tiny, "--format", "markdown")
    assert code == 0
    assert "A claim" in shown
    assert (latest(tmp_path) / "table.md").read_text("utf-8") == shown


def test_a_run_its_repetition_its_table_and_a_new_start(tiny, tmp_path, run, invoke):
    """The life of a store: run, nothing left to do, another spec refused, started afresh."""
    code, _, err = run(tiny)
    assert (code, err) == (0, "")
    rows = raw(tmp_path)
    assert rows.groupby(["entry", "stage"]).size().to_dict() == {
        ("fixed", "final"): 2,
        ("lr", "final"): 2,
        ("lr", "search"): 8,
    }
    assert set(rows.status) == {"ok"}
    folder = tmp_path / "results/tiny"
    assert {"store.sqlite", "trials.parquet", "provenance.json", "table.md", "table.json"} <= {
        path.name for path in folder.iterdir()
    }

    code, out, _ = run(tiny)
    assert code == 0
    assert "Everything is in the store already" in out
    pd.testing.assert_frame_equal(raw(tmp_path), rows)

    before = contents(folder)
    tiny.write_text(TINY.replace("epochs: 1", "epochs: 2", 1), "utf-8")
    again = f"bdl-bench run {tiny} --changed"
    assert_refused(run(tiny), "diabetes/lr of another spec", f"start anew, with a copy of the store, by: {again}\n")
    assert contents(folder) == before
    assert_refused(invoke("table", tiny, "--format", "xml"), "xml", "markdown")
    code, out, _ = invoke("table", tiny, "--format", "csv")
    assert code == 0
    assert "diabetes" in out

    code, out, _ = run(tiny, "--changed")
    assert code == 0
    assert "Starting 1 of 2 cells anew" in out
    (copy,) = folder.glob("store.sqlite.*")
    assert copy.read_bytes() == before["store.sqlite"]
    again = raw(tmp_path)
    finals = again[again.stage == "final"].set_index("entry")
    assert finals.loc["lr", "updates"].tolist() == [39, 39]  # 2 epochs of 39 minibatches, two an update
    kept = rows[rows.entry == "fixed"]
    assert finals.loc["fixed", ["nmll", "seconds"]].to_numpy().tolist() == kept[["nmll", "seconds"]].to_numpy().tolist()

    assert "Starting 2 of 2 cells anew" in run(tiny, "--fresh")[1]
    fresh = raw(tmp_path).query("entry == 'fixed'")
    assert fresh.nmll.tolist() == kept.nmll.tolist()
    assert fresh.seconds.tolist() != kept.seconds.tolist()


@pytest.mark.slow  # a whole run, twice
def test_a_run_with_nothing_to_do_publishes_nothing_anew(tiny, tmp_path, run, invoke):
    """Neither figures nor their mirror; what is gone is made again, and so is what another note changes."""
    call = "run", tiny, "--method", "fixed", "--no-compile"
    assert invoke(*call)[0] == 0
    folder = latest(tmp_path)
    kept = [folder / "provenance.json", folder / "table.md", *(folder / "figures").iterdir()]

    def stamps():
        return [path.stat().st_mtime_ns for path in kept]

    before = stamps()
    assert invoke(*call)[0] == 0
    assert stamps() == before
    kept[-1].unlink()
    assert invoke(*call)[0] == 0
    assert all(own > earlier for own, earlier in zip(stamps(), before, strict=True))
    before = stamps()
    tiny.write_text(TINY + "notes: [{entry: fixed, text: Another.}]\n", "utf-8")
    assert invoke(*call)[0] == 0
    assert "Another." in (folder / "table.md").read_text("utf-8")
    assert stamps()[0] > before[0]


def test_splits_can_be_added_later(tiny, tmp_path, run):
    assert run(tiny, "--splits", "1-1", "--method", "fixed")[0] == 0
    first = raw(tmp_path)
    assert first.split.tolist() == [1]
    assert run(tiny, "--method", "fixed")[0] == 0
    both = raw(tmp_path)
    assert both.split.tolist() == [0, 1]
    assert both.nmll[1] == first.nmll[0]


def test_trials_that_diverge_are_failed_rows_and_code_1(tiny, tmp_path, run, invoke):
    """One entry diverges wherever its search evaluations, one with its fixed setting; a third goes on."""
    healthy = TINY[TINY.index("  fixed:") : TINY.index("evaluation:")].replace("fixed:", "healthy:")
    broken = TINY.replace("low: 0.01, high: 0.02", "low: 1.0e+37, high: 1.0e+38")
    broken = broken.replace("learning_rate: 0.01,", "learning_rate: 1.0e+38,")
    tiny.write_text(broken.replace("evaluation:", f"{healthy}evaluation:"), "utf-8")
    code, out, err = run(tiny)
    assert (code, err) == (1, "")
    assert "4 fits failed (all 2 search settings failed, and 1 other reason); to see where:" in out

    rows = raw(tmp_path)
    final = rows[rows.stage == "final"].set_index("entry")
    assert final.status.to_dict() == {"lr": "failed", "fixed": "failed", "healthy": "ok"}
    assert set(final.loc["lr", "reason"]) == {"all 2 search settings failed"}
    assert set(final.loc["fixed", "reason"]) == {"non-finite parameters in epoch 1"}
    assert final.loc["healthy", "reason"].isna().all()
    assert final.loc[["lr", "fixed"], ["nmll", "rmse", "runtime"]].isna().all(axis=None)
    search = rows[rows.stage == "search"]
    assert len(search) == 8
    assert set(search.reason) == {"non-finite parameters in epoch 1"}

    code, out, _ = invoke("table", tiny, "--format", "markdown")
    assert code == 0
    lines = {name: [line for line in out.splitlines() if name in line] for name in ("lr", "fixed", "healthy")}
    for name in ("lr", "fixed"):
        assert lines[name]
        assert all("2 (2)" in line and "failed" in line for line in lines[name])
    assert not any("2 (2)" in line or "failed" in line for line in lines["healthy"])
    assert run(tiny)[0] == 1  # the same command again still says so


def test_an_interrupted_run_says_how_to_go_on(tiny, tmp_path, run, invoke, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("bdl.api.running.run_cells", interrupt)
        code, _, err = run(tiny)
    assert code == 130
    assert err == "interrupted; the same command goes on from here\n"
    assert_refused(invoke("log", tiny), "no fit of tiny is finished", f"bdl-bench run {tiny}")
    assert_refused(invoke("table", tiny), "no results", f"bdl-bench run {tiny}")
    assert run(tiny, "--method", "fixed")[0] == 0


def test_a_published_table_needs_no_store(tiny, tmp_path, run, invoke):
    part = "--method", "fixed"
    assert run(tiny, *part)[0] == 0
    rows = latest(tmp_path) / "trials.parquet"
    _, published, _ = invoke("table", tiny, *part, "--format", "markdown")
    rows.rename(rows.with_suffix(".away"))
    assert invoke("table", tiny, *part, "--format", "markdown")[:2] == (0, published), "from the store"
    rows.with_suffix(".away").rename(rows)
    for name in ("store.sqlite", "store.lock"):
        rows.with_name(name).unlink()
    assert invoke("table", tiny, *part, "--format", "markdown")[:2] == (0, published)


def test_a_baseline_adds_paired_figures(tiny, tmp_path, run, invoke):
    assert run(tiny, "--set", "baseline=fixed")[0] == 0
    figures = latest(tmp_path) / "figures"
    written = {path.name for path in figures.iterdir()}
    paired = {f"tiny-{metric}-paired.png" for metric in ("nmll", "rmse")}
    assert {name for name in written if "paired" in name} == paired
    shutil.rmtree(figures)
    code, out, _ = invoke("figures", tiny, "--set", "baseline=fixed")
    assert code == 0
    again = {path.name for path in figures.iterdir()}
    assert {Path(line).name for line in out.splitlines()} == again
    assert {name for name in again if name.endswith(".png")} == written
    assert_refused(invoke("figures", tiny, "--set", "baseline=fixd"), "baseline: unknown entry 'fixd': did you mean")


@pytest.mark.slow  # a whole run
def test_a_sweep_from_the_command_line_to_the_figures(tiny, tmp_path, run, invoke):
    """Three widths of a hidden layer: a column of the rows and of the tables, and the axis of the figures."""
    tiny.write_text(TINY.replace("{name: linear}", "{name: mlp, hidden: [2]}"), "utf-8")
    sweep = "--set", "sweep={model.hidden: [[2], [4], [8]]}"
    code, out, err = run(tiny, *sweep, "--method", "fixed")
    assert (code, err) == (0, "")
    assert "model.hidden" in out
    rows = raw(tmp_path)
    assert list(rows.columns)[:4] == ["dataset", "entry", "model.hidden", "stage"]
    assert rows.groupby("model.hidden").split.apply(list).to_dict() == {f"[{n}]": [0, 1] for n in (2, 4, 8)}
    assert rows.nmll.nunique() == 6
    assert set(rows.status) == {"ok"}

    folder = latest(tmp_path)
    assert {"tiny-nmll.png", "tiny-rmse.png"} <= {path.name for path in (folder / "figures").iterdir()}
    table = (folder / "table.md").read_text("utf-8").splitlines()
    cells = [[cell.strip() for cell in line.split("|")] for line in table if line.startswith("|")]
    assert [line[1:4] for line in cells if line[1] == "Dataset"] == [["Dataset", "model.hidden", "Method"]] * 3
    assert [line[1:4] for line in cells if line[1] == "diabetes"][:3] == [["diabetes", n, "fixed"] for n in "248"]

    ours = [path.name for path in (folder / "posteriors").iterdir()]
    assert len(ours) == 6
    assert "Everything is in the store already" in run(tiny, *sweep, "--method", "fixed")[1]
    more = "--set", "sweep={model.hidden: [[4], [2], [8], [3]]}"
    assert run(tiny, *more, "--method", "fixed")[0] == 0, "values are added, in any order"
    again = raw(tmp_path)
    assert again["model.hidden"].tolist() == ["[4]", "[4]", "[2]", "[2]", "[8]", "[8]", "[3]", "[3]"]
    for value, group in rows.groupby("model.hidden"):
        assert again[again["model.hidden"] == value].nmll.tolist() == group.nmll.tolist()

    assert latest(tmp_path) != folder
    part = *more, "--method", "fixed"
    (latest(tmp_path) / "store.sqlite").unlink()
    code, published, _ = invoke("table", tiny, *part, "--format", "csv")
    assert code == 0
    assert pd.read_csv(StringIO(published)).point.nunique() == 4
    shutil.rmtree(latest(tmp_path) / "figures")
    assert invoke("figures", tiny, *part)[0] == 0
    assert (latest(tmp_path) / "figures/tiny-nmll.png").exists()


def test_a_sweep_that_cannot_be_is_refused(tiny, run):
    assert_refused(run(tiny, "--set", "sweep={model.hiden: [[2]]}"), "model.hiden")
    assert_refused(run(tiny, "--set", "sweep={training.epochs: [1, 0]}"), "training.epochs", "greater than or equal")


def test_scores_in_the_course_of_fits(tiny, tmp_path, run, invoke):
    """Beside the rows, as a curve, and what is recorded is no other fit."""
    assert run(tiny, "--method", "fixed", "--set", "entries.fixed.training.epochs=3")[0] == 0
    plain = raw(tmp_path)
    assert not (latest(tmp_path) / "points.parquet").exists()
    changes = "--set", "entries.fixed.training.epochs=3", "--set", "record={unit: epochs, every: 1}"
    assert run(tiny, "--method", "fixed", *changes)[0] == 0
    rows = raw(tmp_path)
    assert rows.nmll.tolist() == plain.nmll.tolist()
    points = pd.read_parquet(latest(tmp_path) / "points.parquet")
    assert list(points.columns) == ["dataset", "entry", "split", "axis", "at", "metric", "value"]
    assert set(points.metric) == {"nmll", "rmse"}
    nmll = points[points.metric == "nmll"].pivot(index="split", columns="at", values="value")
    assert list(nmll.columns) == [1, 2, 3]
    assert nmll[3].tolist() == rows.nmll.tolist()
    assert (nmll[1] > nmll[3]).all()
    drawn = {path.name for path in (latest(tmp_path) / "figures").iterdir()}
    assert {"tiny-nmll-curve.png", "tiny-rmse-curve.png"} <= drawn
    tiny.write_text(TINY.replace("metrics:", "record: {unit: epochs, every: 1}\nmetrics:"), "utf-8")
    assert run(tiny)[0] == 0
    drawn = latest(tmp_path) / "figures/tiny-nmll-curve.png"
    assert drawn.exists()
    tiny.write_text(TINY, "utf-8")
    assert run(tiny, "--fresh")[0] == 0
    assert not (latest(tmp_path) / "points.parquet").exists(), "nothing was recorded"
    assert not drawn.exists()


def test_a_score_that_is_added_needs_no_training(tiny, tmp_path, run):
    assert run(tiny)[0] == 0
    before = raw(tmp_path)
    code, out, _ = run(tiny, "--set", "metrics=[nmll, rmse, joint_nll, runtime]")
    assert code == 0
    assert "Everything is in the store already" in out
    after = raw(tmp_path)
    assert after[after.stage == "final"].joint_nll.notna().all()
    pd.testing.assert_frame_equal(after[list(before.columns)], before)
    assert "joint_nll" in (latest(tmp_path) / "table.json").read_text("utf-8")


def test_a_damaged_posterior_names_the_command_that_makes_it_again(tiny, tmp_path):
    asked = load_variant(str(tiny), overrides=["seed=1"])
    again = f"bdl-bench run {tiny} --set seed=1 --results '{tmp_path}/else where'"
    told = f"x is damaged; this makes its fit again, and no other: {again}"
    with pytest.raises(InputError, match=f"^{re.escape(told)}$"), mended(asked, tmp_path / "else where"):
        raise Damaged("x is damaged")


def wait_for_the_end_of_group(number: int, seconds: float = 10) -> None:
    """Processes that Python has for itself end a moment after the others."""
    deadline = time.monotonic() + seconds
    with suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(number, 0)
            time.sleep(0.05)
        pytest.fail("a process of the group is left")


@pytest.mark.slow  # a process of its own, with two more
def test_ctrl_c_ends_the_workers_and_the_same_command_goes_on(tiny, tmp_path, run):
    """As a terminal interrupts: the signal goes to all processes of the group."""
    many = "--set", "splits=20", "--set", "entries.lr.search.trials=40", "--jobs", "2"
    command = [sys.executable, "-u", "-m", "bdl", "run", str(tiny), *many, "--no-compile", "--tracking", "none"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, start_new_session=True, **pipes)
    try:
        while "search" not in (line := process.stdout.readline()):
            assert line, process.stderr.read()
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=60)
        assert process.returncode == 130
        assert error == "interrupted; the same command goes on from here\n"
        wait_for_the_end_of_group(process.pid)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    (folder,) = (tmp_path / "results/tiny/variants").iterdir()
    assert "trials.parquet" not in {path.name for path in folder.iterdir()}
    with sqlite3.connect(folder / "store.sqlite") as db:
        (done,) = db.execute("SELECT COUNT(*) FROM fits").fetchone()
    assert done > 0
    code, out, _ = run(tiny, *many[:4], "--dry-run")
    assert code == 0
    search, final = map(int, re.search(r"done already and left out: ([\d,]+) and (\d+)", out).groups())
    assert search + final == done


STREAMS = """
name: streams
title: A short stream
datasets: [{name: fa, dim: 100, top: 10}]
splits: 2
preparation: {rows: {fa_100_10: 200}}
entries:
  em: {method: {name: online-em, latent_dim: 2, warmup: 50}}
metrics: [rel_cov_dist, runtime]
"""


def test_streams_add_learning_curves(tmp_path, monkeypatch, run, invoke):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "streams.yaml"
    path.write_text(STREAMS, "utf-8")
    assert run(path)[0] == 0
    code, out, _ = invoke("figures", path)
    assert code == 0
    drawn = {Path(line).name for line in out.splitlines()}
    assert {name for name in drawn if "curve" in name} == {
        f"streams-rel_cov_dist-curve.{end}" for end in ("png", "pdf")
    }


def test_data_fetch_and_verify_tell_what_is_wrong(offline, invoke):
    assert_refused(invoke("data", "fetch", "yacth"), "unknown dataset 'yacth'", "did you mean yacht")
    code, out, _ = invoke("data", "verify", "yacht")
    assert code == 1
    assert "missing" in out
    assert "bdl-bench data fetch" in out
    code, out, _ = invoke("data", "verify", "diabetes")
    assert code == 0


def test_data_list_has_a_line_for_each(offline, invoke):
    code, out, _ = invoke("data", "list")
    lines = out.splitlines()
    assert code == 0
    assert [line.split()[0] for line in lines] == DATASETS.names()
    told = {line.split()[0]: " ".join(line.split()[1:]) for line in lines}
    assert told["mnist"] == "0 of 4 files which digit is written, 0 to 9; 70000 rows, 784 inputs, 1 published split"
    assert told["synthetic"].startswith("needs no file Ten draws of a linear regression")
    assert told["aptos2019"].startswith("your download, missing Whether a photograph")
    assert told["csv"].startswith("your file A file of text")
    (place,) = {line.index("which digit") for line in lines if line.startswith("mnist ")}
    assert all(line[place - 1] == " " and line[place] != " " for line in lines), "columns are aligned"


@pytest.mark.parametrize("command", ["fetch", "verify"])
def test_a_download_of_ones_own_is_not_fetched_but_told(offline, tmp_path, monkeypatch, invoke, kaggle_folder, command):
    monkeypatch.delenv("BDL_APTOS_DIR", raising=False)
    code, out, _ = invoke("data", command, "aptos2019")
    assert code == 0
    assert "there is no folder" in out
    assert "set BDL_APTOS_DIR to" in out
    monkeypatch.setenv("BDL_APTOS_DIR", str(kaggle_folder(tmp_path / "eyes", [0, 1, 2, 3, 4])))
    assert "your download, read and checked by each run" in invoke("data", command, "aptos2019")[1]


LOADED = """
import sys
from bdl.cli import main
sys.argv, heavy = ["bdl-bench", *{command!r}.split()], {heavy!r}.split()
try:
    main()
except SystemExit as stop:
    print("LOADED", stop.code, sorted(set(heavy) & set(sys.modules)))
"""


def loaded(command, heavy):
    """Run a command in a process of its own; return what it prints, last which heavy packages it has imported."""
    code = LOADED.format(command=command, heavy=heavy)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_help_says_what_jobs_takes(invoke):
    code, out, _ = invoke("run", "--help")
    assert code == 0
    assert "<int|auto>" in out


def test_help_imports_nothing_heavy():
    found = loaded("--help", "torch pandas mlflow sklearn scipy matplotlib optuna pooch pydantic")
    assert found.splitlines()[-1] == "LOADED 0 []"
    assert all(command in found for command in ("run", "submit", "verify"))


@pytest.mark.parametrize("command", ["table", "describe"])
def test_what_only_shows_imports_no_more_than_it_needs(command):
    """Specs are checked by the components that they name, which import torch; nothing is fitted, drawn or mirrored."""
    found = loaded(f"{command} uci-regression", "mlflow sklearn scipy.optimize scipy.stats matplotlib torch._dynamo")
    assert found.splitlines()[-1] == "LOADED 0 []"
    assert "vifa-nn" in found


def test_the_command_is_installed():
    command = shutil.which("bdl-bench", path=str(Path(sys.executable).parent))
    assert command is not None
    found = subprocess.run([command, "run", "nowhere"], capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("bdl-bench: unknown benchmark 'nowhere'")
    assert found.stderr.count("\n") == 1
