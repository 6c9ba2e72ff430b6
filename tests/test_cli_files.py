"""Listings for programs, what a run prints and keeps, and files to start from."""

import json
import re
from pathlib import Path

import pytest
import yaml
from test_cli import TINY

from bdl.cli.listing import KINDS
from bdl.methods import METHODS

pytestmark = pytest.mark.usefixtures("blank_figures")

QUIET = ("--no-compile", "--tracking", "none")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(TINY, "utf-8")
    return tmp_path


def test_one_kind_is_listed_a_name_a_line(invoke):
    assert invoke("list", "methods") == (0, "".join(f"{name}\n" for name in METHODS.names()), "")
    code, out, err = invoke("list", "method")
    assert (code, out) == (2, "")
    assert "unknown kind 'method': did you mean methods" in err


def test_lists_are_json_for_programs(invoke):
    found = json.loads(invoke("list", "--json")[1])
    assert tuple(found) == KINDS
    assert found["methods"] == METHODS.names() == json.loads(invoke("list", "methods", "--json")[1])
    assert "uci-regression" in found["benchmarks"]
    data = json.loads(invoke("data", "list", "--json")[1])
    assert [own["name"] for own in data] == found["datasets"]
    assert data[found["datasets"].index("diabetes")]["files"] == "needs no file"
    (one, *_) = json.loads(invoke("references", "list", "logistic-posterior", "--json")[1])
    assert one.keys() == {"benchmark", "place", "state"}


def test_failures_are_json_for_programs(folder, invoke):
    diverging = "entries.fixed.hyper.learning_rate=1e38"
    assert invoke("run", "tiny.yaml", "--method", "fixed", "--set", diverging, *QUIET)[0] == 1
    (failure,) = json.loads(invoke("failures", "tiny.yaml", "--method", "fixed", "--set", diverging, "--json")[1])
    assert (failure["cell"], failure["splits"]) == ("diabetes/fixed", [0, 1])
    assert failure["reason"].startswith("non-finite parameters")


def test_a_quiet_run_prints_errors_alone(folder, invoke):
    assert invoke("run", "tiny.yaml", "--method", "fixed", "--quiet", *QUIET) == (0, "", "")
    words = "run", "tiny.yaml", "--method", "fixed", "-q", "--set", "entries.fixed.hyper.learning_rate=1e38", *QUIET
    code, out, err = invoke(*words)
    assert (code, out) == (1, "")
    assert err.startswith("2 fits failed (non-finite parameters in epoch 1); to see where:")


def test_a_log_has_all_that_is_printed_and_more_with_times(folder, invoke):
    code, out, _ = invoke("run", "tiny.yaml", "--method", "fix*", "--log", "run.log", *QUIET)
    kept = Path("run.log").read_text("utf-8")
    assert code == 0
    for line in ("  diabetes fixed      final fits, 2 splits: 2 trials", "tiny: RMSE", "kept apart from the protocol"):
        assert line in out
        assert line in kept
    assert "planned in" in kept
    assert "planned in" not in out
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d planned in \d", kept)
    code, out, _ = invoke("run", "tiny.yaml", "--method", "fix*", "--log", "run.log", "--quiet", *QUIET)
    assert (code, out) == (0, "")
    assert Path("run.log").read_text("utf-8").startswith(kept), "lines are added"
    assert "Everything is in the store" in Path("run.log").read_text("utf-8")[len(kept) :]


def test_a_verbose_run_tells_times(folder, invoke):
    out = invoke("run", "tiny.yaml", "--method", "fixed", "-v", *QUIET)[1]
    assert "planned in" in out
    assert "published in" in out
    assert "leave one out" in invoke("run", "tiny.yaml", "-v", "-q")[2]


def test_a_log_that_cannot_be_written(folder, invoke):
    code, _, err = invoke("run", "tiny.yaml", "--log", "no/run.log")
    assert code == 2
    assert "cannot write no/run.log: No such file or directory; give another --log" in err


def test_patterns_select_methods(folder, invoke):
    code, out, _ = invoke("run", "tiny.yaml", "--method", "f*", "--quiet", *QUIET)
    assert (code, out) == (0, "")
    (place,) = Path("results/tiny/variants").iterdir()
    assert place.name.startswith("fixed-"), "the same folder as by its name"
    assert "fixed" in invoke("table", "tiny.yaml", "--method", "fixed")[1]
    assert "unknown method 'g*': known: fixed, lr" in invoke("run", "tiny.yaml", "--method", "g*")[2]


def test_what_init_writes_runs_as_it_is(folder, invoke):
    for kind, name in (("method", "method.py"), ("score", "score.py"), ("benchmark", "benchmark.yaml")):
        code, out, _ = invoke("init", kind)
        assert code == 0
        assert out.startswith(f"{name}: ")
    assert invoke("run", "benchmark.yaml", "--profile", "quick", *QUIET)[0] == 0
    own = "entries.vifa.method={name: method.py:MyMethod}", "metrics=[nmll, {name: score.py:MyScore, scale: 2}]"
    words = [word for change in own for word in ("--set", change)]
    assert invoke("run", "benchmark.yaml", "--profile", "quick", *words, *QUIET)[0] == 0
    told = invoke("table", "benchmark.yaml", "--profile", "quick", *words, "--format", "json")[1]
    scores = {cell["metric"]: cell["ours"] for cell in json.loads(told) if cell["method"] == "vifa"}
    assert scores["myscore_2"] > 0
    assert scores["nmll"] < 10


def test_init_names_the_file_and_overwrites_none(folder, invoke):
    Path("mine").mkdir()
    assert invoke("init", "method", "mine/swarm.py")[1].startswith("mine/swarm.py: name it")
    assert "method: {name: mine/swarm.py:MyMethod" in Path("mine/swarm.py").read_text("utf-8")
    before = Path("mine/swarm.py").read_text("utf-8")
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
