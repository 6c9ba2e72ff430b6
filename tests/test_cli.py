"""The life of runs at the command line: what they store, publish and show, and nothing heavy for help."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
import yaml
from rich.console import Console
from tiny import contents

from bdl.cli import terminal
from bdl.cli.listing import KINDS
from bdl.data import DATASETS
from bdl.methods import METHODS
from bdl.plan.task import _load_prepared
from bdl.records.run_folder import RunFolder

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
FIXED = "--method", "fixed"
DIVERGING = (*FIXED, "--set", "entries.fixed.hyper.learning_rate=1e38")
NONE = "--no-compile", "--tracking", "none"


@pytest.fixture
def run(tiny, invoke):
    return lambda *words: invoke("run", tiny, *words, *NONE)


def latest() -> Path:
    """Folder that was published to last: that of the protocol, or that of a variant."""
    return max(Path("results").rglob("run.json"), key=lambda path: path.stat().st_mtime_ns).parent


def raw() -> pd.DataFrame:
    return RunFolder(latest()).tabulate()


def test_a_run_its_repetition_its_table_and_a_new_start(tiny, run, invoke):
    """The life of a store: run, nothing left to do, another spec refused, started afresh."""
    claim = "claims: [{text: A claim, source: ours, metric: rmse, less: {entry: lr}, than: {entry: fixed}}]\n"
    tiny.write_text(TINY + claim, "utf-8")
    code, _, err = run()
    assert (code, err) == (0, "")
    rows, folder = raw(), Path("results/tiny")
    counts = {("fixed", "final"): 2, ("lr", "final"): 2, ("lr", "search"): 8}
    assert rows.groupby(["entry", "stage"]).size().to_dict() == counts
    assert set(rows.status) == {"ok"}
    names = {path.name for path in folder.iterdir()}
    assert {"store", "rows.parquet", "run.json", "table.md", "table.json"} <= names
    pd.testing.assert_frame_equal(pd.read_parquet(folder / "trials.parquet"), rows)
    shown = invoke("table", tiny, "--format", "markdown")[1]
    assert (folder / "table.md").read_text("utf-8") == shown
    assert "A claim" in shown

    code, out, _ = run()
    assert code == 0
    assert "Everything is in the store already" in out
    pd.testing.assert_frame_equal(raw(), rows)

    before = contents(folder)
    tiny.write_text(TINY.replace("epochs: 1", "epochs: 2", 1), "utf-8")
    code, out, err = run()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "diabetes/lr of another spec" in err
    assert err.endswith(
        f"start anew, with a copy of the store, by: bdl-bench run {tiny} --changed\n"
    )
    assert contents(folder) == before
    assert "diabetes" in invoke("table", tiny, "--format", "csv")[1]

    code, out, _ = run("--changed")
    assert code == 0
    assert "Starting 1 of 2 cells anew" in out
    (copy,) = folder.glob("store-*.parquet")
    assert copy.read_bytes() == before[folder / "store/rows.parquet"]
    again = raw()
    finals = again[again.stage == "final"].set_index("entry")
    assert finals.loc["lr", "updates"].tolist() == [
        39,
        39,
    ]  # 2 epochs of 39 minibatches, two an update
    kept = rows[rows.entry == "fixed"]
    assert (
        finals.loc["fixed", ["nmll", "seconds"]].to_numpy().tolist()
        == kept[["nmll", "seconds"]].to_numpy().tolist()
    )

    assert "Starting 2 of 2 cells anew" in run("--fresh")[1]
    fresh = raw().query("entry == 'fixed'")
    assert fresh.nmll.tolist() == kept.nmll.tolist()
    assert fresh.seconds.tolist() != kept.seconds.tolist()


@pytest.mark.slow  # a whole run, twice
def test_a_run_with_nothing_to_do_publishes_nothing_anew(tiny, invoke):
    """Neither figures nor their mirror.

    What is gone is made again, and so is what another note changes.
    """
    call = "run", tiny, *FIXED, "--no-compile"
    assert invoke(*call)[0] == 0
    folder = latest()
    kept = [folder / "run.json", folder / "table.md", *(folder / "figures").iterdir()]

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


def test_trials_that_diverge_are_failed_rows_and_code_1(tiny, run, invoke):
    """One entry diverges wherever its search evaluations, one with its fixed setting.

    A third goes on.
    """
    healthy = TINY[TINY.index("  fixed:") : TINY.index("evaluation:")].replace(
        "fixed:", "healthy:"
    )
    broken = TINY.replace("low: 0.01, high: 0.02", "low: 1.0e+37, high: 1.0e+38")
    broken = broken.replace("learning_rate: 0.01,", "learning_rate: 1.0e+38,")
    tiny.write_text(broken.replace("evaluation:", f"{healthy}evaluation:"), "utf-8")
    code, out, err = run()
    assert (code, err) == (1, "")
    assert "4 fits failed (all 2 search settings failed, and 1 other reason); to see where:" in out

    rows = raw()
    final = rows[rows.stage == "final"].set_index("entry")
    assert final.status.to_dict() == {"lr": "failed", "fixed": "failed", "healthy": "ok"}
    assert set(final.loc["lr", "reason"]) == {"all 2 search settings failed"}
    assert set(final.loc["fixed", "reason"]) == {"non-finite parameters in epoch 1"}
    assert final.loc["healthy", "reason"].isna().all()
    assert final.loc[["lr", "fixed"], ["nmll", "rmse", "runtime"]].isna().all(axis=None)
    search = rows[rows.stage == "search"]
    assert len(search) == 8
    assert set(search.reason) == {"non-finite parameters in epoch 1"}

    lines = invoke("table", tiny, "--format", "markdown")[1].splitlines()
    told = {
        name: [("2 (2)" in line, "failed" in line) for line in lines if name in line]
        for name in final.index
    }
    assert {(name, *own) for name, found in told.items() for own in found} == {
        ("lr", True, True),
        ("fixed", True, True),
        ("healthy", False, False),
    }
    assert run()[0] == 1  # the same command again still says so


@pytest.mark.slow  # a whole run
def test_a_sweep_from_the_command_line_to_the_figures(tiny, run, invoke):
    """Three widths of a hidden layer: a column of the rows and of the tables, and the axis of the figures."""
    tiny.write_text(TINY.replace("{name: linear}", "{name: mlp, hidden: [2]}"), "utf-8")
    code, out, err = run("--set", "sweep={model.hidden: [[2], [4], [8]]}", *FIXED)
    assert (code, err) == (0, "")
    assert "model.hidden" in out
    rows, folder = raw(), latest()
    assert rows.groupby("model.hidden").split.apply(list).to_dict() == {
        f"[{n}]": [0, 1] for n in (2, 4, 8)
    }
    assert rows.nmll.nunique() == 6
    table = (folder / "table.md").read_text("utf-8").splitlines()
    cells = [[cell.strip() for cell in line.split("|")] for line in table if line.startswith("|")]
    assert [line[1:4] for line in cells if line[1] == "Dataset"] == [
        ["Dataset", "model.hidden", "Method"]
    ] * 3
    assert [line[1:4] for line in cells if line[1] == "diabetes"][:3] == [
        ["diabetes", n, "fixed"] for n in "248"
    ]
    assert len(list((folder / "posteriors").iterdir())) == 6

    part = "--set", "sweep={model.hidden: [[4], [2], [8], [3]]}", *FIXED
    assert run(*part)[0] == 0, "values are added, in any order"
    again = raw()
    assert latest() != folder
    assert again["model.hidden"].tolist() == [
        "[4]",
        "[4]",
        "[2]",
        "[2]",
        "[8]",
        "[8]",
        "[3]",
        "[3]",
    ]
    for value, group in rows.groupby("model.hidden"):
        assert again[again["model.hidden"] == value].nmll.tolist() == group.nmll.tolist()
    published = invoke("table", tiny, *part, "--format", "csv")[1]
    assert pd.read_csv(StringIO(published)).point.nunique() == 4
    shutil.rmtree(latest() / "figures")
    assert invoke("figures", tiny, *part)[0] == 0
    assert (latest() / "figures/tiny-nmll.png").exists()


def test_scores_in_the_course_of_fits(tiny, run):
    """Beside the rows, as a curve, and what is recorded is no other fit.

    What is no longer recorded does not stay.
    """
    plain = TINY.replace("epochs: 1", "epochs: 3")
    tiny.write_text(plain, "utf-8")
    assert run(*FIXED)[0] == 0
    before, curve = raw(), latest() / "figures/tiny-nmll-curve.png"
    assert RunFolder(latest()).tabulate_curve_points().empty
    tiny.write_text(f"{plain}record: {{unit: epochs, every: 1}}\n", "utf-8")
    assert run(*FIXED, "--fresh")[0] == 0
    rows, points = raw(), RunFolder(latest()).tabulate_curve_points()
    assert rows.nmll.tolist() == before.nmll.tolist()
    assert list(points.columns) == ["dataset", "entry", "split", "axis", "at", "metric", "value"]
    assert set(points.metric) == {"nmll", "rmse"}
    nmll = points[points.metric == "nmll"].pivot(index="split", columns="at", values="value")
    assert list(nmll.columns) == [1, 2, 3]
    assert nmll[3].tolist() == rows.nmll.tolist()
    assert (nmll[1] > nmll[3]).all()
    assert curve.exists()
    tiny.write_text(plain, "utf-8")
    assert run(*FIXED, "--fresh")[0] == 0
    assert RunFolder(latest()).tabulate_curve_points().empty
    assert not curve.exists()


def test_a_baseline_adds_paired_figures(tiny, run, invoke):
    assert run("--set", "baseline=fixed")[0] == 0
    figures = latest() / "figures"
    written = {path.name for path in figures.iterdir()}
    assert {name for name in written if "paired" in name} == {
        f"tiny-{own}-paired.png" for own in ("nmll", "rmse")
    }
    shutil.rmtree(figures)
    code, out, _ = invoke("figures", tiny, "--set", "baseline=fixed")
    assert code == 0
    again = {path.name for path in figures.iterdir()}
    assert {Path(line).name for line in out.splitlines()} == again
    assert {name for name in again if name.endswith(".png")} == written


def wait_for_the_end_of_group(number: int, seconds: float = 10) -> None:
    """Processes that Python has for itself end a moment after the others."""
    deadline = time.monotonic() + seconds
    with suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(number, 0)
            time.sleep(0.05)
        pytest.fail("a process of the group is left")


@pytest.mark.slow  # a process of its own, with two more
def test_ctrl_c_ends_the_workers_and_the_same_command_goes_on(tiny, run):
    """As a terminal interrupts: the signal goes to all processes of the group."""
    many = "--set", "splits=20", "--set", "entries.lr.search.trials=40", "--jobs", "2"
    command = [sys.executable, "-u", "-m", "bdl", "run", str(tiny), *many, *NONE]
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
    (folder,) = Path("results/tiny/variants").iterdir()
    assert not (folder / "rows.parquet").exists()
    done = len(RunFolder(folder / "store").select())
    assert done > 0
    code, out, _ = run(*many[:4], "--dry-run")
    assert code == 0
    search, final = map(
        int, re.search(r"done already and left out: ([\d,]+) and (\d+)", out).groups()
    )
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


def test_streams_add_learning_curves(tiny, run, invoke):
    tiny.write_text(STREAMS, "utf-8")
    assert run()[0] == 0
    code, out, _ = invoke("figures", tiny)
    assert code == 0
    curves = {name for name in map(os.path.basename, out.splitlines()) if "curve" in name}
    assert curves == {f"streams-rel_cov_dist-curve.{end}" for end in ("png", "pdf")}


def test_how_much_a_run_prints_and_what_a_log_keeps(run, invoke, tiny):
    """A log has all that is printed, and times; lines are added to it."""
    code, out, _ = run("--method", "fix*", "--log", "run.log")
    kept = Path("run.log").read_text("utf-8")
    assert code == 0
    (place,) = Path("results/tiny/variants").iterdir()
    assert place.name.startswith("fixed-"), "the same folder as by its name"
    for line in (
        "  diabetes fixed      final fits, 2 splits: 2 trials",
        "tiny: RMSE",
        "kept apart from the protocol",
    ):
        assert line in out
        assert line in kept
    assert "planned in" not in out
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d planned in \d", kept)
    assert run(*FIXED, "--log", "run.log", "--quiet") == (0, "", "")
    assert Path("run.log").read_text("utf-8").startswith(kept)
    assert "Everything is in the store" in Path("run.log").read_text("utf-8")[len(kept) :]
    code, out, err = run(*DIVERGING, "-q")
    assert (code, out) == (1, "")
    assert err.startswith("2 fits failed (non-finite parameters in epoch 1); to see where:")
    (failure,) = json.loads(invoke("failures", tiny, *DIVERGING, "--json")[1])
    assert (failure["cell"], failure["splits"]) == ("diabetes/fixed", [0, 1])
    assert failure["reason"].startswith("non-finite parameters")
    assert "planned in" in run(*FIXED, "-v")[1]


def test_what_init_writes_runs_as_it_is(tiny, invoke):
    for kind, name in (
        ("method", "method.py"),
        ("guest", "guest.py"),
        ("score", "score.py"),
        ("benchmark", "benchmark.yaml"),
    ):
        code, out, _ = invoke("init", kind)
        assert code == 0
        assert out.startswith(f"{name}: ")
    assert invoke("run", "benchmark.yaml", "--profile", "quick", *NONE)[0] == 0
    own = (
        "entries.vifa.method={name: method.py:MyMethod}",
        "entries.mine={method: {name: guest.py:MyGuest, neighbours: 10}}",
        "metrics=[nmll, {name: score.py:MyScore, scale: 2}]",
    )
    words = [word for change in own for word in ("--set", change)]
    assert invoke("run", "benchmark.yaml", "--profile", "quick", *words, *NONE)[0] == 0
    told = invoke("table", "benchmark.yaml", "--profile", "quick", *words, "--format", "json")[1]
    for method in ("vifa", "mine"):
        scores = {
            cell["metric"]: cell["ours"] for cell in json.loads(told) if cell["method"] == method
        }
        assert scores["myscore_2"] > 0
        assert scores["nmll"] < 10


def test_init_names_the_file_and_overwrites_none(tiny, invoke):
    Path("mine").mkdir()
    assert invoke("init", "method", "mine/swarm.py")[1].startswith("mine/swarm.py: name it")
    before = Path("mine/swarm.py").read_text("utf-8")
    assert "method: {name: mine/swarm.py:MyMethod" in before
    for words, told in [
        (("method", "mine/swarm.py"), "mine/swarm.py is there already; give another path"),
        (("score", "score.txt"), "a score is in a file that ends in .py; call it score.py"),
        (("benchmark", "no/b.yaml"), "cannot write no/b.yaml: No such file or directory"),
    ]:
        code, out, err = invoke("init", *words)
        assert (code, out) == (2, "")
        assert told in err
    assert Path("mine/swarm.py").read_text("utf-8") == before
    assert invoke("init", "benchmark", "b.yaml")[0] == 0
    assert yaml.safe_load(Path("b.yaml").read_text("utf-8"))["name"] == "my-benchmark"


@pytest.mark.data
def test_lists_are_names_for_people_and_json_for_programs(invoke):
    assert invoke("list", "methods") == (0, "".join(f"{name}\n" for name in METHODS.names()), "")
    assert "unknown kind 'method': did you mean methods" in invoke("list", "method")[2]
    found = json.loads(invoke("list", "--json")[1])
    assert tuple(found) == KINDS
    assert (
        found["methods"] == METHODS.names() == json.loads(invoke("list", "methods", "--json")[1])
    )
    assert "uci-regression" in found["benchmarks"]
    data = json.loads(invoke("data", "list", "--json")[1])
    assert [own["name"] for own in data] == found["datasets"]
    assert data[found["datasets"].index("diabetes")]["files"] == "needs no file"
    code, out, err = invoke("references", "list", "logistic-posterior", "--json")
    assert code == 0, err
    (one, *_) = json.loads(out)
    assert one.keys() == {"benchmark", "place", "state"}


@pytest.fixture
def offline(tmp_path, monkeypatch) -> Path:
    """An empty data directory, an empty mirror, a network that refuses every connection, and no data in memory."""
    _load_prepared.cache_clear()
    (tmp_path / "mirror").mkdir()
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("BDL_DATA_MIRROR", str(tmp_path / "mirror"))
    for scheme in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(scheme, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    return tmp_path / "cache"


def test_data_that_are_missing_or_corrupt_stop_a_run_and_are_told(tiny, offline, run, invoke):
    tiny.write_text(TINY.replace("[diabetes]", "[boston]"), "utf-8")
    code, out, err = run()
    assert (code, out, err.count("\n")) == (2, "", 1)
    for words in ("cannot get data file", "BDL_DATA_MIRROR", "bdl-bench data fetch boston"):
        assert words in err
    assert not [path for path in offline.rglob("*") if path.is_file()]
    code, out, _ = invoke("data", "verify", "boston")
    assert code == 1
    assert "missing" in out
    assert "bdl-bench data fetch" in out
    path = offline / DATASETS.get("boston").files[0].path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("1 2 3\n")
    code, out, err = run()
    assert (code, out, err.count("\n")) == (2, "", 1)
    for words in ("corrupt data file", path.name, "bdl-bench data fetch boston"):
        assert words in err
    assert path.read_text() == "1 2 3\n", "it is left alone"
    assert not Path("results").exists()
    assert invoke("data", "verify", "diabetes")[0] == 0


def test_data_list_has_a_line_for_each(offline, invoke):
    lines = invoke("data", "list")[1].splitlines()
    assert [line.split()[0] for line in lines] == DATASETS.names()
    told = {line.split()[0]: " ".join(line.split()[1:]) for line in lines}
    assert (
        told["mnist"]
        == "0 of 4 files which digit is written, 0 to 9; 70000 rows, 784 inputs, 1 published split"
    )
    assert told["synthetic"].startswith("needs no file Ten draws of a linear regression")
    assert told["aptos2019"].startswith("your download, missing Whether a photograph")


def test_a_download_of_ones_own_is_not_fetched_but_told(
    offline, tmp_path, monkeypatch, invoke, kaggle_folder
):
    monkeypatch.delenv("BDL_APTOS_DIR", raising=False)
    for command in ("fetch", "verify"):
        code, out, _ = invoke("data", command, "aptos2019")
        assert code == 0
        assert "there is no folder" in out
        assert "set BDL_APTOS_DIR to" in out
    monkeypatch.setenv("BDL_APTOS_DIR", str(kaggle_folder(tmp_path / "eyes", [0, 1, 2, 3, 4])))
    assert (
        "your download, read and checked by each run" in invoke("data", "verify", "aptos2019")[1]
    )


LOADED = """
import sys
from bdl.cli import main
for command, heavy in {commands!r}.items():
    sys.argv = ["bdl-bench", *command.split()]
    try:
        main()
    except SystemExit as stop:
        print("LOADED", stop.code, sorted(set(heavy.split()) & set(sys.modules)))
"""


def test_help_and_what_only_shows_import_no_more_than_they_need():
    """A benchmark that is shown was checked before: no component is imported, nor PyTorch with it.

    That holds for guests, references of networks, sweeps, and profiles.
    """
    shown = "torch mlflow sklearn scipy.optimize scipy.stats matplotlib"
    helping = "torch pandas mlflow sklearn scipy matplotlib optuna pooch pydantic"
    commands = {
        "--help": helping,
        "list": shown,
        "describe uci-regression": shown,
        "cite uci-regression": shown,
        "table uci-regression": shown,
        "table uci-regression --metric rmse --format json": shown,
        "table network-posterior --format json": shown,
        "table noisy-wine --format json": shown,
        "table blindness-detection --profile cpu --format json": shown,
        "failures uci-regression": shown,
    }
    code = LOADED.format(commands=commands)
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    parts = found.split("LOADED 0 []\n")
    assert parts.pop() == ""
    outputs = dict(zip(commands, parts, strict=True))
    assert all(command in outputs["--help"] for command in ("run", "report", "compare"))
    assert "vifa-nn" in outputs["describe uci-regression"]
    assert "vifa-nn" in outputs["table uci-regression"]
    published = Path(__file__).parents[1] / "results"
    for name in ("network-posterior", "noisy-wine"):
        table = (published / name / "table.json").read_text("utf-8")
        assert outputs[f"table {name} --format json"] == table


def test_the_command_is_installed():
    command = shutil.which("bdl-bench", path=str(Path(sys.executable).parent))
    assert command is not None
    found = subprocess.run([command, "nothing"], capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (2, "", 1)
    assert found.stderr.startswith("bdl-bench: No such command 'nothing'")


@pytest.mark.parametrize(
    ("command", "absent"),
    [
        pytest.param("list", {"torch", "pandas", "scipy", "mlflow", "sklearn"}, id="list"),
        pytest.param(
            "describe uci-regression", {"torch", "pandas", "mlflow", "sklearn"}, id="describe"
        ),
        pytest.param(
            "table uci-regression", {"torch", "mlflow", "sklearn", "pymc", "jax"}, id="table"
        ),
    ],
)
def test_commands_that_read_import_no_package_that_they_do_not_need(command, absent):
    code = (
        "import sys\nfrom bdl import cli\n"
        f"sys.argv = ['bdl-bench', *{command.split()!r}]\n"
        "try: cli.main()\nexcept SystemExit as end: assert not end.code\n"
        f"print(sorted({absent!r} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.split("\n")[-2] == "[]"


@pytest.mark.parametrize(
    ("line", "column", "expected"),
    [
        ("short", None, ["short"]),
        (
            "  a line that is too long for it",
            None,
            ["  a line that", "    is too long", "    for it"],
        ),
        ("name  a line that is too", 6, ["name  a line", "      that is", "      too"]),
        ("name      a line that", 10, ["name      a", "  line that"]),
        ("in /a/path/that/is/longer.txt", None, ["in /a/path/that/is/longer.txt"]),
        (
            "\u6570\u636e\u6570\u636e \u6570\u636e\u6570\u636e",
            None,
            ["\u6570\u636e\u6570\u636e", "  \u6570\u636e\u6570\u636e"],
        ),
    ],
)
def test_a_long_line_goes_on_below_on_a_terminal(monkeypatch, line, column, expected):
    """Of sixteen columns; in a file it stays whole."""
    for is_terminal in (True, False):
        console = Console(file=StringIO(), force_terminal=is_terminal, width=16, markup=False)
        monkeypatch.setattr(terminal, "make_console", lambda console=console: console)
        terminal.print_lines([line], column)
        assert console.file.getvalue().splitlines() == (expected if is_terminal else [line])
