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

from bdl import __version__
from bdl.execution.groups import attempt
from bdl.publishing import tracking
from bdl.spec.sections import Limits

TINY = """
name: tiny
title: A tiny benchmark
datasets: [diabetes]
splits: 1
entries:
  fixed:
    model: {name: linear}
    likelihood: {name: gaussian}
    method: {name: vifa, gradients_per_update: 2}
    training: {epochs: 1, batch_size: 10}
    hyper: {learning_rate: 0.01, prior_precision: 1, noise_precision: 0.001}
evaluation: {samples: 5}
metrics: [nmll]
"""
PAPERS = "papers: [{paper: nobody1900, tables: [Table 1], task: uci_nn_predictions, methods: {fixed: vifa_lr}}]\n"


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


def refusal(result: tuple[int, str, str], expected: int = 2) -> str:
    code, out, err = result
    assert (code, out) == (expected, ""), out + err
    assert err.startswith("bdl-bench: ")
    assert err.count("\n") == 1
    return err


def raising(error):
    def raise_it(*args, **kwargs):
        raise error

    return raise_it


def test_a_fault_of_the_program_is_code_3_with_its_traceback_in_a_file(tiny, invoke, monkeypatch):
    monkeypatch.setattr("bdl.spec.load_variant", raising(ZeroDivisionError("two\nlines")))
    error = refusal(invoke("table", tiny), 3)
    assert "a fault of this program: ZeroDivisionError: two lines" in error
    log = Path(re.search(r"the traceback is in (\S+)", error)[1])
    text = log.read_text("utf-8")
    log.unlink()
    assert text.startswith(f"bdl-bench table {tiny}\n")
    assert "Traceback (most recent call last)" in text


def test_an_interrupted_command_is_code_130(tiny, invoke, monkeypatch):
    monkeypatch.setattr("bdl.spec.load_variant", raising(KeyboardInterrupt()))
    assert invoke("table", tiny)[0] == 130


@pytest.mark.parametrize("call", ["bdl.api.running.publish", "bdl.api.running.run_cells"])
def test_a_full_disk_is_told_in_one_line(tiny, invoke, monkeypatch, call):
    monkeypatch.setattr(call, raising(OSError(errno.ENOSPC, "No space left on device", "table.md")))
    code, _, err = invoke("run", tiny, "--no-compile", "--tracking", "none")
    assert code == 2
    assert err == "bdl-bench: no space left on the disk for table.md; free some, and the same command goes on\n"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), ValueError("I/O error: full (os error 28)")])
def test_a_full_disk_fails_no_fit(error):
    class Group:
        members = ((SimpleNamespace(benchmark=SimpleNamespace(limits=Limits())),),)
        run = staticmethod(raising(error))

    with pytest.raises(OSError) as raised:  # noqa: PT011
        attempt(Group(), print)
    assert raised.value.errno == errno.ENOSPC


def test_sys_exit_in_a_method_file_is_told(tiny, invoke):
    Path("leaves.py").write_text("import sys\n\nsys.exit(0)\n", "utf-8")
    tiny.write_text(TINY.replace("{name: vifa, gradients_per_update: 2}", "{name: leaves.py:Method}"), "utf-8")
    error = refusal(invoke("run", tiny))
    assert "leaves.py, line 3, called sys.exit(0)" in error


def test_sys_exit_in_a_fit_fails_the_fit():
    class Group:
        members = ()
        run = staticmethod(raising(SystemExit(0)))

    assert attempt(Group(), print) == []


COMMANDS = [
    (["table", "--splits", ""], "splits ''"),
    (["table", "--results", ""], "--results ''"),
    (["run", "--results", ""], "--results ''"),
    (["run", "--tracking", "foo://bar"], "no tracking URI: 'foo://bar'"),
    (["run", "--tracking", "http://127.0.0.1:9"], "no server answers at http://127.0.0.1:9 (["),
    (["run", "--tracking", "http://[::"], "no server answers at http://[:: ("),
    (["run", "--tracking", "sqlite:////nowhere/at/all.db"], "cannot write a database to /nowhere/at"),
    (["run", "--nonsense"], "No such option: --nonsense; see: bdl-bench run --help"),
    (["run", "--datset", "yacht"], "no such option: --datset; did you mean --dataset"),
    (["run", "--jobs", "none"], "--jobs"),
]


@pytest.mark.parametrize(("words", "reason"), COMMANDS, ids=[" ".join(words) for words, _ in COMMANDS])
def test_what_cannot_be_is_refused_before_anything_is_done(tiny, tmp_path, invoke, words, reason):
    command, *options = words
    assert reason in refusal(invoke(command, tiny, *options))
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--vrsion"], "no such option: --vrsion; did you mean --version?"),
        (["data", "lst"], "Did you mean 'list'?"),
        (["table"], "; see: bdl-bench table --help"),
    ],
)
def test_a_command_line_that_is_wrong_says_where_to_look(invoke, words, reason):
    assert reason in refusal(invoke(*words))


def test_an_unknown_paper_is_refused_before_training(tiny, tmp_path, invoke):
    tiny.write_text(TINY + PAPERS, "utf-8")
    assert "unknown paper 'nobody1900'" in refusal(invoke("run", tiny))
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]


def test_a_file_that_goes_too_deep_is_told(tiny, invoke):
    tiny.write_text("name: " + "[" * 20_000, "utf-8")
    assert "too many levels" in refusal(invoke("run", tiny))


def test_a_database_that_is_none_is_refused_before_the_run(tiny, tmp_path, invoke):
    (tmp_path / "mlflow.db").write_text("no database at all" * 100)
    assert "cannot write the MLflow database" in refusal(invoke("run", tiny, "--tracking", "sqlite:///mlflow.db"))
    assert not (tmp_path / "results").exists()


def spoil(path: Path) -> None:
    """Overwrite the middle of a file."""
    content = bytearray(path.read_bytes())
    content[1024:-1024] = b"x" * (len(content) - 2048)
    path.write_bytes(content)


DAMAGE = {
    "empty rows": ("trials.parquet", lambda path: path.write_bytes(b""), ["table", "figures"]),
    "spoilt rows": ("trials.parquet", spoil, ["table", "figures"]),
    "text for rows": ("trials.parquet", lambda path: path.write_text("rows"), ["table", "figures", "run"]),
    "empty store": ("store.sqlite", lambda path: path.write_bytes(b""), ["log"]),
    "spoilt store": ("store.sqlite", spoil, ["log", "run"]),
    "text for a store": ("store.sqlite", lambda path: path.write_text("rows" * 1000), ["log", "run"]),
}


@pytest.mark.parametrize(("name", "damage", "commands"), DAMAGE.values(), ids=DAMAGE)
def test_damaged_files_are_told_in_one_line(copy, tiny, invoke, name, damage, commands):
    damage(copy / name)
    before = (copy / name).read_bytes()
    for command in commands:
        error = refusal(invoke(command, tiny))
        assert str(Path("results/tiny")) in error or "no fit of tiny is finished" in error
        assert (copy / name).read_bytes() == before or not before


def test_a_database_that_cannot_be_made_is_not_left_half_made(tmp_path, monkeypatch):
    def half(tracking_uri):
        with sqlite3.connect(tracking_uri.removeprefix("sqlite:///")) as db:
            db.execute("CREATE TABLE experiments (id INTEGER)")
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(tracking, "_client", half)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with pytest.raises(tracking.InputError, match="disk is full"), tracking.connection(uri):
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
    """Tables have plain characters in the place of others; what machines read is UTF-8 all the same."""
    published = Path(__file__).parents[1] / "results"
    words = ["table", "uci-regression", "--results", str(published)]
    env = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", BOTH, *words], capture_output=True, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    table, json = done.stdout[: (start := done.stdout.index(b"\n[\n") + 1)], done.stdout[start:]
    assert json == (published / "uci-regression/table.json").read_bytes()
    assert b"Mean +- SE" in table
    assert table.isascii()


@pytest.mark.parametrize(("answer", "there"), [(200, True), (401, True), (404, True), (None, False)])
def test_a_server_is_there_if_it_answers_anything(tmp_path, answer, there):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if answer:
                self.send_response(answer)
                self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.handle_request, daemon=True).start()
        with nullcontext() if there else pytest.raises(tracking.InputError, match="no server answers"):
            tracking.check_uri(f"http://127.0.0.1:{server.server_port}/", tmp_path)


def test_version_and_help(invoke):
    assert invoke("--version") == (0, f"bdl-bench {__version__}\n", "")
    assert invoke("run", "-h")[:2] == invoke("run", "--help")[:2]
    assert "bdl-bench run" in invoke("run", "-h")[1]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("run uci", ["uci-contenders", "uci-gap", "uci-linear-posterior", "uci-linear-selection", "uci-regression"]),
        ("table slang-t", ["slang-toy"]),
        ("describe mc-d", ["mc-dropout"]),
        ("run uci-regression --method vifa", ["vifa-lr", "vifa-nn"]),
        ("figures uci-regression --dataset y", ["yacht"]),
        ("run uci-regression --profile quick --dataset ", ["diabetes"]),
        ("report online-fa --dataset fa_1000_10_", ["fa_1000_10_columns"]),
        ("run noisy-data-efficiency --dataset t", ["tanh"]),
        ("run benchmarks/slang-toy.yaml --method slang", ["slang-1", "slang-5"]),
        ("references show logistic-posterior --dataset au", ["australian"]),
        ("run uci-regresion --method v", []),
        ("run README.md --method v", []),
        ("run --method v", []),
    ],
)
def test_shells_complete_names(words, found, invoke, monkeypatch):
    monkeypatch.setenv("_BDL_BENCH_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"bdl-bench {words}")
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ") + 1))
    monkeypatch.setattr(sys.modules["__main__"], "__package__", None, raising=False)  # else the program is pytest
    code, out, error = invoke()
    assert (code, out.split(), error) == (0, found, "")


def test_brackets_are_what_they_say_and_no_markup(tiny, invoke):
    """Were ``[/x]`` markup, it would end the command; what is to be done next is said with the folder."""
    tiny.write_text(TINY.replace("metrics: [nmll]", "metrics: [rmse]"), "utf-8")
    part = ["--set", "metrics=[nmll]", "--results", "out [/x] #1 :x:"]
    code, out, err = invoke("run", tiny, *part, "--no-compile", "--tracking", "none")
    assert (code, err) == (0, "")
    assert "protocol, in out [/x] #1 :x:" in out
    assert out.partition("bdl-bench table")[2].endswith("--results 'out [/x] #1 :x:'\n")
    code, out, err = invoke("figures", tiny, *part)
    assert (code, err) == (0, "")
    assert all(line.startswith("out [/x] #1 :x:") for line in out.splitlines())
