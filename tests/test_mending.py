"""What goes wrong in a component from outside, or on the disk, costs that part alone, and is mended by a command."""

import os
from hashlib import sha256
from pathlib import Path

import pandas as pd
import pytest
from tiny import EXACT, benchmark_text, refusal

import bdl
from bdl.errors import InputError
from bdl.execution.groups import FinalGroup, SearchGroup
from bdl.records.run_folder import RunFolder
from bdl.registry import Registry, outside_file

pytestmark = pytest.mark.usefixtures("blank_figures")

TINY = """
name: tiny
title: A tiny benchmark
datasets: [diabetes]
splits: 2
entries:
  plain:
    model: {name: linear}
    likelihood: {name: gaussian}
    method: {name: METHOD}
    training: {epochs: 1, batch_size: 10}
    hyper: {learning_rate: 0.01, noise_precision: 0.001}
    search: {sampler: random, trials: 2, folds: 3, metric: nmll, space: {prior_precision: {low: 0.1, high: 1}}}
evaluation: {samples: 5}
metrics: [rmse, METRIC]
"""
SCORE = """from dataclasses import dataclass
from typing import ClassVar
from bdl.metrics import MetricInfo

@dataclass(frozen=True)
class Own:
    info: ClassVar[MetricInfo] = MetricInfo("Own", "fraction", "lower", "predictive", "regression")

    def __call__(self, evaluation):
        return BODY
"""
METHOD = """from dataclasses import dataclass
from bdl.methods.bbb import BayesByBackprop

@dataclass(frozen=True)
class Own(BayesByBackprop):
    def due(self, counters):
        if FAULT:
            raise ValueError("boom")
        return super().due(counters)
"""
DIRECT = """from dataclasses import dataclass
from bdl.methods.conjugate import Conjugate

@dataclass(frozen=True)
class Own(Conjugate):
    def fit(self, problem, x, y, hyper, seed):
        return super().fit(problem, x.nothing, y, hyper, seed)
"""
FIXED = """    method: {name: METHOD}
    hyper: {prior_precision: 1, noise_precision: 0.001}
"""
STEPPING = """from dataclasses import dataclass
from bdl.methods.vifa import Vifa

@dataclass(frozen=True)
class Own(Vifa):
    def step(self, *args, **kwargs):
        return super().stop(*args, **kwargs)
"""
LATE = "1 / 0 if evaluation.samples > 2 else 0.5"
"""Of a score that raises after training alone: before it there are few samples."""
STORED = Path("results/tiny")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(invoke):
    def call(*words):
        return invoke("run", "tiny.yaml", "--no-compile", "--tracking", "none", *words)

    return call


def write(method="bbb", metric="nmll", text=TINY):
    Path("tiny.yaml").write_text(text.replace("METHOD", method).replace("METRIC", metric), "utf-8")


def write_direct(method="conjugate", metric="nmll", more=""):
    head, tail = TINY[: TINY.index("    method:")], TINY[TINY.index("evaluation:") :]
    write(method, metric, head + FIXED + more + tail)


def write_score(body):
    write(metric="'score.py:Own'")
    Path("score.py").write_text(SCORE.replace("BODY", body), "utf-8")


def write_method(fault):
    write(method="method.py:Own")
    Path("method.py").write_text(METHOD.replace("FAULT", fault), "utf-8")


def rows(stage="final"):
    table = RunFolder(STORED).tabulate()
    return table[table.stage == stage].reset_index(drop=True)


def posteriors():
    return {path: path.read_bytes() for path in (STORED / "posteriors").glob("*.safetensors")}


def spoil(path):
    """Change a byte, so that the size stays."""
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


SCORES = {
    "evaluation.predicitons": "AttributeError: 'Evaluation' object has no attribute 'predicitons'",
    "__import__('sys').exit(0)": "SystemExit: 0",
}


@pytest.mark.parametrize("body", SCORES)
def test_a_score_with_a_slip_is_refused_before_anything_is_trained(run, body):
    write_score(body)
    err = refusal(run())
    assert f"metric 'score.py:Own' on diabetes: {SCORES[body]}" in err
    assert "sys" in body or f"({Path('score.py').resolve()}, line 10)" in err
    assert not STORED.exists()


CHECKING = (
    METHOD.replace("FAULT", "False")
    + "\n    def check(self, problem):\n        problem.nothing()\n"
)
SLIPS = {
    "due": (METHOD.replace("FAULT", "mising"), 7, "NameError: name 'mising' is not defined"),
    "update": (STEPPING, 7, "AttributeError: 'super' object has no attribute 'stop'"),
    "fit": (DIRECT, 7, "AttributeError: 'Tensor' object has no attribute 'nothing'"),
    "plan": (CHECKING, 12, "AttributeError: 'Problem' object has no attribute 'nothing'"),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_method_with_a_slip_is_refused_before_anything_is_trained(run, slip):
    text, line, reason = SLIPS[slip]
    write_direct("method.py:Own") if slip == "fit" else write(method="method.py:Own")
    Path("method.py").write_text(text, "utf-8")
    err = refusal(run())
    assert reason in err
    assert f"{Path('method.py').resolve()}, line {line}" in err
    assert not STORED.exists()


def test_a_score_that_works_in_place_leaves_the_others_as_they_are(run):
    """Of tensors and of arrays that share their memory, before and after the other scores."""
    write_score("0.25")
    assert run()[0] == 0
    expected = list(rows().rmse)
    write(metric="'score.py:Own'", text=TINY.replace("[rmse, METRIC]", "[METRIC, rmse]"))
    body = """float(
            (evaluation.predictions.mean.numpy().fill(0) or evaluation.tested.y.zero_()).sum()
            + evaluation.posterior.mean().zero_().sum()
            + evaluation.tested.rows.zero_().sum()
        )"""
    Path("score.py").write_text(SCORE.replace("BODY", body), "utf-8")
    assert run("--fresh")[0] == 0
    assert list(rows().own) == [0, 0]
    assert list(rows().rmse) == expected


def test_a_score_without_a_number_is_a_fault_of_the_score(run):
    write_score("{} if evaluation.samples > 2 else 0.5")
    code, out, _ = run()
    assert code == 1
    assert "2 scores could not be computed (own on splits 0-1: ValueError: it returned" in out


def test_a_score_that_raises_empties_its_column_and_is_computed_when_it_is_mended(
    run, invoke, monkeypatch
):
    write_score(LATE)
    code, out, err = run()
    assert (code, err) == (1, "")
    assert "Everything is in the store" not in out
    last = out.splitlines()[-1]
    assert last.startswith(
        "2 scores could not be computed (own on splits 0-1: ZeroDivisionError: division by zero ("
    )
    assert last.endswith("mend it, and compute them without training by: bdl-bench run tiny.yaml")
    before, kept = rows(), posteriors()
    assert list(before.status) == ["ok", "ok"]
    assert before.rmse.notna().all()
    assert before.own.isna().all()
    assert len(kept) == 2
    assert "not computed: own: ZeroDivisionError" in (STORED / "table.md").read_text("utf-8")
    assert (
        "final, 2 fits of splits 0-1: own: ZeroDivisionError" in invoke("failures", "tiny.yaml")[1]
    )

    code, out, _ = run()
    assert code == 1, "the same command again still says so"
    assert "Nothing is left to train, but 2 of 2 final fits lack scores." in out
    write(text=TINY.replace(", METRIC", ""))
    code, out, _ = run()
    assert code == 0, "it does not ask for the score"
    assert "Everything is in the store already." in out
    assert "not computed: own" not in (STORED / "table.md").read_text("utf-8")
    assert invoke("failures", "tiny.yaml")[1] == "no fit failed\n"
    write(metric="'score.py:Own'")
    Path("score.py").write_text(SCORE.replace("BODY", "0.25"), "utf-8")
    with monkeypatch.context() as patch:
        for group in (SearchGroup, FinalGroup):
            patch.delattr(group, "run")
        code, out, _ = run()
    assert code == 0
    after = rows()
    assert list(after.own) == [0.25, 0.25]
    assert after.reason.isna().all()
    assert list(after.rmse) == list(before.rmse)
    assert posteriors() == kept
    assert "not computed" not in (STORED / "table.md").read_text("utf-8")
    assert "Everything is in the store already." in run()[1]


def test_fits_that_failed_are_made_again_and_their_search_is_kept(run, monkeypatch):
    """Fits of folds make 26 updates, final ones 39, and a rehearsal one."""
    write_method("counters.updates > 30")
    code, out, err = run()
    assert (code, err) == (1, "")
    last = out.splitlines()[-1]
    assert last.startswith(
        "2 fits failed (ValueError: boom); to see where: bdl-bench failures tiny.yaml --traceback; "
    )
    assert last.endswith("--retry-failed, by: bdl-bench run tiny.yaml --retry-failed")
    search = rows("search")
    assert list(search.status) == ["ok"] * 12

    code, out, _ = run()
    assert code == 1
    assert "Nothing is left to do, but 2 of 2 final fits failed." in out
    assert "Everything" not in out
    assert "--retry-failed" in out.splitlines()[-1]

    write_method("False")
    monkeypatch.delattr(SearchGroup, "run")
    code, out, err = run("--retry-failed")
    assert (code, err) == (0, "")
    assert "fits that failed and are made again: 2" in out
    assert (
        "method.py has changed since 12 of the fits in the store were made with it: they are kept;"
        in out
    )
    assert list(rows().status) == ["ok", "ok"]
    same = ["split", "trial", "fold", "status", "hyper_prior_precision", "nmll", "seconds"]
    pd.testing.assert_frame_equal(rows("search")[same], search[same])


@pytest.mark.parametrize("harm", ["missing", "short"])
def test_a_posterior_that_is_lost_is_noticed_and_its_fit_alone_is_made_again(
    run, harm, monkeypatch
):
    write()
    assert run()[0] == 0
    before, kept, search = rows(), posteriors(), rows("search")
    path, content = next(iter(kept.items()))
    path.unlink() if harm == "missing" else path.write_bytes(content[:-1])
    made = []
    original = FinalGroup.run
    monkeypatch.setattr(
        FinalGroup, "run", lambda self, report: made.append(self.members) or original(self, report)
    )
    monkeypatch.delattr(SearchGroup, "run")
    code, out, err = run()
    assert (code, err) == (0, "")
    assert (
        "posteriors missing or damaged: 1; these fits are made again, with the search that is kept"
        in out
    )
    assert [len(members) for members in made] == [1]
    assert posteriors() == kept
    pd.testing.assert_frame_equal(rows("search"), search)
    times = ["seconds", "width", "runtime"]  # of a group of one split
    pd.testing.assert_frame_equal(rows().drop(columns=times), before.drop(columns=times))


def test_a_posterior_of_which_a_byte_changed_is_noticed_when_it_is_read(run):
    """Readers say to run again, which mends it."""
    write()
    assert run()[0] == 0
    kept = posteriors()
    spoil(next(iter(kept)))
    assert run()[0] == 0, "of the size that it had: it is not read"
    write(metric="nmll, joint_nll")
    code, out, err = run()
    assert (code, err) == (0, "")
    assert "posteriors missing or damaged: 1;" in out
    assert posteriors() == kept
    assert rows().joint_nll.notna().all()
    for path in kept:
        spoil(path)
    results = bdl.results("tiny.yaml")
    with pytest.raises(InputError, match="is damaged; run again, which makes this fit alone"):
        results.posterior("diabetes", "plain", 0)
    assert run()[0] == 0
    assert results.posterior("diabetes", "plain", 0).posterior.mean().isfinite().all()


def test_publishing_finds_posteriors_damaged_and_has_their_fits_made_again(run):
    """What travels with the rows is read at the end of a run, whole."""
    write_direct(metric="rel_mean_dist", more="    reference: {name: conjugate}\n")
    code, out, _ = run()
    assert (code, "in the store already" in out) == (0, False)
    kept = posteriors()
    for path in kept:
        spoil(path)
    for drawn in Path("results").rglob("*.png"):  # else nothing is published again
        drawn.unlink()
    code, out, err = run()
    assert (code, err) == (0, ""), out
    assert f"posteriors missing or damaged: {len(kept)};" in out
    assert all(posteriors().get(path) == content for path, content in kept.items())


def test_a_component_is_the_content_of_its_file_whatever_its_time(tmp_path):
    """A cache of bytecode would take a file of the same size and second for what it was."""
    path, registry = tmp_path / "own.py", Registry("thing", {})
    for number in (1, 2):
        path.write_text(f"value = {number}\n", "utf-8")
        os.utime(path, (1_000_000_000, 1_000_000_000))
        assert registry.get(f"{path}:value") == number
    assert outside_file(FinalGroup) is None
    path.write_text("class Own:\n    pass\n", "utf-8")
    own = registry.get(f"{path}:Own")
    assert (
        outside_file(own)
        == ("own.py", sha256(path.read_bytes()).hexdigest())
        == outside_file(own())
    )


UNDEFINED = """
from dataclasses import dataclass
from typing import ClassVar

from bdl.metrics import MetricInfo


@dataclass(frozen=True)
class Own:
    info: ClassVar = MetricInfo("Own", "fraction", "lower", "predictive", "regression")

    def __call__(self, evaluation):
        return float("VALUE")
"""
WITH_OWN = benchmark_text({"exact": EXACT}, name="undefined", metrics=["nmll", "undefined.py:Own"])


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_score_that_is_no_finite_number_leaves_its_own_column_empty(
    tmp_path, monkeypatch, invoke, value
):
    """The fit, its posterior and its other scores are kept; the mended score is computed from them."""
    monkeypatch.chdir(tmp_path)
    Path("undefined.py").write_text(UNDEFINED.replace("VALUE", value))
    Path("undefined.yaml").write_text(WITH_OWN)
    code, out, err = invoke("run", "undefined.yaml", "--tracking", "none")
    assert code == 1
    assert f"is no finite number: {value}" in out + err
    rows = RunFolder(Path("results/undefined")).tabulate()
    assert set(rows.status) == {"ok"}
    assert rows.nmll.notna().all()
    assert rows.own.isna().all()
    assert len(list(Path("results/undefined/posteriors").iterdir())) == 2
    Path("undefined.py").write_text(UNDEFINED.replace("VALUE", "0.5"))
    assert invoke("run", "undefined.yaml", "--tracking", "none")[0] == 0
    mended = RunFolder(Path("results/undefined")).tabulate()
    assert (mended.own == 0.5).all()
    pd.testing.assert_series_equal(mended.nmll, rows.nmll)
