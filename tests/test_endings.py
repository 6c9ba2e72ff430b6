"""How commands end: with the exit code that is documented, and at most one line on stderr."""

import errno
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest
import torch
from filelock import FileLock
from tiny import TINY, raising, refusal

from bdl import __version__
from bdl.errors import InputError
from bdl.execution.groups import run_group
from bdl.publishing import tracking
from bdl.records.unusable_fits import DamagedPosterior, with_rerun_hint
from bdl.spec import load_request
from bdl.spec.sections import Limits

PAPERS = "papers: [{paper: nobody1900, tables: [Table 1], task: uci_nn_predictions, methods: {fixed: vifa_lr}}]\n"
EXPORTING = "table --tracking sqlite:///runs.db"


@pytest.fixture(scope="module")
def results(tmp_path_factory, ran) -> Path:
    """Results of a run, for copies to be damaged."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "tiny.yaml").write_text(TINY, "utf-8")
    ran(folder, "run", "tiny.yaml", "--no-compile", "--tracking", "none")
    return folder / "results"


@pytest.fixture
def copy(results, tiny, tmp_path) -> Path:
    return Path(shutil.copytree(results, tmp_path / "results")) / "tiny"


def test_a_fault_of_the_program_is_code_3_with_its_traceback_in_a_file(tiny, invoke, monkeypatch):
    monkeypatch.setattr("bdl.spec.load_request", raising(ZeroDivisionError("two\nlines")))
    error = refusal(invoke("table", tiny), 3)
    assert "a fault of this program: ZeroDivisionError: two lines" in error
    log = Path(re.search(r"the traceback is in (\S+)", error)[1])
    text = log.read_text("utf-8")
    log.unlink()
    assert text.startswith(f"bdl-bench table {tiny}\n")
    assert "Traceback (most recent call last)" in text


def test_an_interrupted_run_is_code_130_and_says_how_to_go_on(tiny, invoke, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("bdl.api.running.run_tasks", raising(KeyboardInterrupt()))
        code, _, err = invoke("run", tiny, "--no-compile", "--tracking", "none")
        fresh = invoke("run", tiny, "--no-compile", "--tracking", "none", "--fresh")
    assert (code, err) == (130, "interrupted; the same command goes on from here\n")
    assert fresh[2] == "interrupted; the same command without --fresh goes on from here\n"
    assert f"bdl-bench run {tiny}" in refusal(invoke(*EXPORTING.split(), tiny))
    assert f"bdl-bench run {tiny}" in refusal(invoke("table", tiny))
    monkeypatch.setattr("bdl.spec.load_request", raising(KeyboardInterrupt()))
    assert invoke("table", tiny)[0] == 130


@pytest.mark.parametrize("call", ["bdl.api.running.publish", "bdl.api.running.run_tasks"])
def test_a_full_disk_is_told_in_one_line(tiny, invoke, monkeypatch, call):
    monkeypatch.setattr(
        call, raising(OSError(errno.ENOSPC, "No space left on device", "table.md"))
    )
    code, _, err = invoke("run", tiny, "--no-compile", "--tracking", "none")
    assert code == 2
    assert (
        err
        == "bdl-bench: no space left on the disk for table.md; free some, and the same command goes on\n"
    )


class DyingGroup:
    """A group of one final fit, which raises an error."""

    task = SimpleNamespace(benchmark=SimpleNamespace(limits=Limits()), key=("line", "fit", "{}"))
    members = ((task, 0),)
    work = 7

    def __init__(self, error):
        self.run = raising(error)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full"), ValueError("I/O error: full (os error 28)")]
)
def test_a_full_disk_fails_no_fit(error):
    with pytest.raises(OSError) as raised:  # noqa: PT011
        run_group(DyingGroup(error), print)
    assert raised.value.errno == errno.ENOSPC


def test_sys_exit_in_a_method_file_is_told_and_in_a_fit_fails_the_fit(tiny, invoke):
    Path("leaves.py").write_text("import sys\n\nsys.exit(0)\n", "utf-8")
    tiny.write_text(
        TINY.replace("{name: vifa, gradients_per_update: 2}", "{name: leaves.py:Method}"), "utf-8"
    )
    assert "leaves.py, line 3, called sys.exit(0)" in refusal(invoke("run", tiny))
    reports: list[int] = []
    (result,) = run_group(DyingGroup(SystemExit(0)), reports.append)
    assert (result.row.status, result.row.reason) == ("failed", "SystemExit: 0")
    assert reports == [DyingGroup.work]
    assert result.row.seconds > 0


COMMANDS = [
    ("table --splits=", ["splits ''"]),
    ("table --results=", ["--results ''"]),
    ("run --results=", ["--results ''"]),
    ("run --tracking foo://bar", ["no tracking URI: 'foo://bar'"]),
    ("run --tracking http://127.0.0.1:9", ["no server answers at http://127.0.0.1:9 (["]),
    ("run --tracking http://[::", ["no server answers at http://[:: ("]),
    ("run --tracking sqlite:////nowhere/at/all.db", ["cannot write a database to /nowhere/at"]),
    ("run --nonsense", ["No such option: --nonsense; see: bdl-bench run --help"]),
    ("run --datset yacht", ["no such option: --datset; did you mean --dataset"]),
    ("run --jobs none", ["--jobs none: give 1, a larger number, or auto"]),
    ("run --dataset diabetis", ["unknown dataset 'diabetis'", "did you mean diabetes"]),
    ("run --method g*", ["unknown method 'g*': known: fixed"]),
    ("run --profile papr", ["unknown profile 'papr'", "did you mean paper"]),
    ("run --splits 3", ["splits '3'", "there are 2 splits"]),
    ("run --device tpu", ["--device tpu", "cpu"]),
    ("run -v -q", ["--quiet --verbose: leave one out"]),
    ("run --dry-run --retry-failed", ["--dry-run --retry-failed: leave one out"]),
    (
        "run --log no/run.log",
        ["cannot write no/run.log: No such file or directory; give another --log"],
    ),
    ("run --set metrics=[nmll,rsme]", ["'rsme'", "did you mean rmse"]),
    (
        "run --set entries.fixed.training.batch_size=500",
        ["entries.fixed.training", "diabetes", "lower batch_size"],
    ),
    ("run --set seed=[1", ["--set seed=[1"]),
    ("table", ["no results in results/tiny", "bdl-bench run"]),
    ("figures", ["no results in results/tiny", "bdl-bench run"]),
    (EXPORTING, ["no results in results/tiny", "bdl-bench run"]),
]
if not torch.cuda.is_available():
    COMMANDS.append(("run --device cuda", ["no CUDA device", "use --device cpu"]))


@pytest.mark.parametrize(("words", "reasons"), COMMANDS, ids=[words for words, _ in COMMANDS])
def test_what_cannot_be_is_refused_before_anything_is_done(tiny, tmp_path, invoke, words, reasons):
    command, *options = words.split()
    error = refusal(invoke(command, tiny, *options))
    assert all(reason in error for reason in reasons), error
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--vrsion", "no such option: --vrsion; did you mean --version?"),
        ("data lst", "Did you mean 'list'?"),
        ("data fetch yacth", "unknown dataset 'yacth': did you mean yacht"),
        ("table", "; see: bdl-bench table --help"),
        ("run uci-regresion", "unknown benchmark 'uci-regresion': did you mean uci-regression"),
        ("table no/such/file.yaml", "cannot read benchmark no/such/file.yaml: No such file"),
    ],
)
def test_a_command_line_that_is_wrong_says_where_to_look(invoke, words, reason):
    assert reason in refusal(invoke(*words.split()))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(TINY + PAPERS, "unknown paper 'nobody1900'", id="paper"),
        pytest.param("name: " + "[" * 20_000, "too many levels", id="deep"),
        pytest.param("name: tiny\n  title: [", "tiny.yaml, line 2", id="YAML"),
        pytest.param(
            TINY.replace("[diabetes]", "[nowhere.py:data]"), "nowhere.py", id="component"
        ),
    ],
)
def test_a_file_that_cannot_be_is_refused_before_training(tiny, tmp_path, invoke, text, reason):
    tiny.write_text(text, "utf-8")
    assert reason in refusal(invoke("run", tiny))
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]


def test_what_is_in_the_way_of_results_is_told(tiny, tmp_path, invoke):
    (tmp_path / "mlflow.db").write_text("no database at all" * 100)
    assert "cannot write the MLflow database" in refusal(
        invoke("run", tiny, "--tracking", "sqlite:///mlflow.db")
    )
    (tmp_path / "results").write_text("a file")
    error = refusal(invoke("run", tiny, "--tracking", "none"))
    assert "cannot write to results/tiny" in error
    assert "choose another --results" in error
    (tmp_path / "other/tiny").mkdir(parents=True)
    with FileLock(tmp_path / "other/tiny/store.lock"):
        assert "another run of tiny" in refusal(
            invoke("run", tiny, "--tracking", "none", "--results", "other")
        )
    assert [
        path.name for path in (tmp_path / "other/tiny").iterdir() if path.name != "store.lock"
    ] == []


def test_a_damaged_posterior_names_the_command_that_makes_it_again(tiny, tmp_path):
    asked = load_request(str(tiny), overrides=["seed=1"])
    again = f"bdl-bench run {tiny} --set seed=1 --results '{tmp_path}/else where'"
    told = f"x is damaged; this makes its fit again, and no other: {again}"
    with (
        pytest.raises(InputError, match=f"^{re.escape(told)}$"),
        with_rerun_hint(asked, tmp_path / "else where"),
    ):
        raise DamagedPosterior("x is damaged")


def spoil(path: Path) -> None:
    """Overwrite the middle of a file."""
    content = bytearray(path.read_bytes())
    content[1024:-1024] = b"x" * (len(content) - 2048)
    path.write_bytes(content)


DAMAGE = {
    "empty rows": ("rows.parquet", lambda path: path.write_bytes(b""), ["table", "figures"]),
    "spoilt rows": ("rows.parquet", spoil, ["table"]),
    "text for rows": ("rows.parquet", lambda path: path.write_text("rows"), ["table", "run"]),
    "empty store": ("store/rows.parquet", lambda path: path.write_bytes(b""), [EXPORTING]),
    "spoilt store": ("store/rows.parquet", spoil, [EXPORTING, "run"]),
    "text for a store": (
        "store/rows.parquet",
        lambda path: path.write_text("rows" * 1000),
        ["run"],
    ),
}


@pytest.mark.parametrize(("name", "damage", "commands"), DAMAGE.values(), ids=DAMAGE)
def test_damaged_files_are_told_in_one_line(copy, tiny, invoke, name, damage, commands):
    damage(copy / name)
    before = (copy / name).read_bytes()
    for command in commands:
        words = command.split()
        error = refusal(invoke(words[0], tiny, *words[1:]))
        assert str(Path("results/tiny")) in error or "no fit of tiny is finished" in error
        assert (copy / name).read_bytes() == before or not before


def test_a_database_that_cannot_be_made_is_not_left_half_made(tmp_path, monkeypatch):
    def half(tracking_uri):
        with sqlite3.connect(tracking_uri.removeprefix("sqlite:///")) as db:
            db.execute("CREATE TABLE experiments (id INTEGER)")
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(tracking, "_make_client", half)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with pytest.raises(tracking.InputError, match="disk is full"), tracking.connect(uri):
        pass
    left = [path for path in tmp_path.iterdir() if path.stat().st_size and path.is_file()]
    assert left == []


def started(*words: str, **more) -> subprocess.Popen:
    command = [sys.executable, "-m", "bdl", *words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **more)


def test_a_reader_that_leaves_ends_nothing():
    process = started("list", stdout=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("words", [("list",), ("--version",)])
def test_output_that_cannot_be_written_is_told(words):
    with Path("/dev/full").open("w") as full:
        process = started(*words, stdout=full)
        _, error = process.communicate()
    assert process.returncode == 2
    assert error.startswith("bdl-bench: no space left")
    assert error.count("\n") == 1


def test_without_standard_output_there_is_none():
    words = f"exec '{sys.executable}' -m bdl list >&-"
    done = subprocess.run(["sh", "-c", words], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


BOTH = """
import sys
from bdl.cli import main
words = sys.argv[1:]
for format in ("rich", "json"):
    sys.argv = ["bdl-bench", *words, "--format", format]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code
"""


def test_a_locale_that_knows_ascii_alone():
    """Tables have ? in the place of other characters; what machines read is UTF-8 all the same."""
    published = Path(__file__).parents[1] / "results"
    words = ["table", "uci-regression", "--results", str(published)]
    env = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", BOTH, *words], capture_output=True, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    table, json = done.stdout[: (start := done.stdout.index(b"\n[\n") + 1)], done.stdout[start:]
    assert json == (published / "uci-regression/table.json").read_bytes()
    assert b" ? lower is better" in table
    assert table.isascii()


@pytest.mark.parametrize("answer", [200, 404, None])
def test_a_server_is_there_if_it_answers_anything(tmp_path, answer):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if answer:
                self.send_response(answer)
                self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.handle_request, daemon=True).start()
        with nullcontext() if answer else pytest.raises(InputError, match="no server answers"):
            tracking.check_uri(f"http://127.0.0.1:{server.server_port}/", tmp_path)


def test_version_and_help(invoke):
    assert invoke("--version") == (0, f"bdl-bench {__version__}\n", "")
    code, out, _ = invoke("run", "-h")
    assert code == 0
    assert "bdl-bench run" in out
    assert "<int|auto>" in out


COMPLETIONS = {
    "run uci": [
        "uci-contenders",
        "uci-gap",
        "uci-linear-posterior",
        "uci-linear-selection",
        "uci-regression",
    ],
    "describe mc-d": ["mc-dropout"],
    "list met": ["methods", "metrics"],
}


@pytest.mark.parametrize("words", COMPLETIONS)
def test_shells_complete_names(words, invoke, monkeypatch):
    monkeypatch.setenv("_BDL_BENCH_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"bdl-bench {words}")
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ") + 1))
    code, out, error = invoke()
    assert (code, out.split(), error) == (0, COMPLETIONS[words], "")


def test_brackets_are_what_they_say_and_no_markup(tiny, invoke):
    """Were ``[/x]`` markup, it would end the command.

    What is to be done next is said with the folder.
    """
    tiny.write_text(TINY.replace("metrics: [nmll]", "metrics: [rmse]"), "utf-8")
    part = ["--set", "metrics=[nmll]", "--results", "out [/x] #1 :x:"]
    code, out, err = invoke("run", tiny, *part, "--no-compile", "--tracking", "none")
    assert (code, err) == (0, "")
    assert "protocol, in out [/x] #1 :x:" in out
    assert out.partition("bdl-bench table")[2].endswith("--results 'out [/x] #1 :x:'\n")
    code, out, err = invoke("figures", tiny, *part)
    assert (code, err) == (0, "")
    assert all(line.startswith("out [/x] #1 :x:") for line in out.splitlines())


NO_ACCOUNT = """
import pwd, sys

def missing(number):
    raise KeyError(number)

pwd.getpwuid = missing
sys.argv = ["bdl-bench", "run", "tiny.yaml", "--no-compile"]
from bdl.cli import main
main()
"""


@pytest.mark.slow  # a process that imports torch, matplotlib and MLflow
def test_a_run_needs_neither_an_account_nor_a_home(tiny, tmp_path):
    """As in a container under a foreign user number."""
    names = ("PATH", "BDL_DATA_DIR", "BDL_DATA_MIRROR", "OMP_NUM_THREADS")
    environment = {name: os.environ[name] for name in names if name in os.environ}
    environment["TMPDIR"] = str(tmp_path)
    found = subprocess.run(
        [sys.executable, "-c", NO_ACCOUNT],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    assert (tmp_path / "results/tiny/run.json").exists()
    assert list((tmp_path / "results/tiny/figures").glob("*.png"))
