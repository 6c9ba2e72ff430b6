"""Failed fits of a store, and of published rows."""

from pathlib import Path

import pytest

from bdl.archive import Failure
from bdl.archive.frames import folder, write_frames
from bdl.archive.loading import open_results
from bdl.errors import InputError
from bdl.plan.planning import cells_of
from bdl.spec import load_variant
from bdl.store import Outcome, Row
from bdl.store.store import Store


def failures(asked, results):
    with open_results(asked, results, latest=True) as here:
        return here.failures()


def failed(cell, stage: str, split: int, reason: str, trace: str = "") -> Outcome:
    details = {"traceback": trace} if trace else {}
    return Outcome(Row(*cell.key, stage, split, 0, 0, "failed", reason, {}, {}, 0.0, details))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    asked = load_variant("uci-regression", "quick")
    lr, nn = cells_of(asked.benchmark)[:2]
    with Store(folder(tmp_path, asked) / "store.sqlite") as store:
        for cell in (lr, nn):
            store.claim(cell.key, "0")
        fine = Outcome(Row(*lr.key, "final", 0, 0, 0, "ok", None, {}, {"nmll": 1.0}, 0.0, {}))
        store.append([fine, failed(lr, "final", 2, "non-finite metric"), failed(lr, "final", 1, "non-finite metric")])
        store.append([failed(nn, "final", 0, "ValueError: no", "Traceback ...\nValueError: no")])
        store.append([failed(nn, "search", 0, "non-finite parameters in epoch 1")])
        write_frames([lr, nn], store, store.path.parent)
    return tmp_path


def test_fits_of_a_cell_that_failed_alike_are_told_together(results):
    assert failures(load_variant("uci-regression", "quick"), results) == [
        Failure("diabetes/vifa-lr", "final", (1, 2), 2, "non-finite metric", ""),
        Failure("diabetes/vifa-nn", "search", (0,), 1, "non-finite parameters in epoch 1", ""),
        Failure("diabetes/vifa-nn", "final", (0,), 1, "ValueError: no", "Traceback ...\nValueError: no"),
    ]


def test_published_rows_tell_the_same_without_tracebacks(results):
    asked = load_variant("uci-regression", "quick")
    stored = failures(asked, results)
    (folder(results, asked) / "store.sqlite").unlink()
    assert failures(asked, results) == [own._replace(traceback="") for own in stored]


def test_the_command_shows_tracebacks_when_asked(results, invoke):
    words = ("failures", "uci-regression", "--profile", "quick", "--results", results)
    code, out, _ = invoke(*words)
    assert code == 0
    assert out.splitlines()[0] == "diabetes/vifa-lr, final, 2 fits of splits 1, 2: non-finite metric"
    assert out.splitlines()[-1] == "--traceback shows where in the code"
    assert "Traceback ...\nValueError: no\n" in invoke(*words, "--traceback")[1]


def test_without_results_the_command_says_how_to_make_some(tmp_path):
    with pytest.raises(InputError, match=r"no results in .*; start with: bdl-bench run uci-regression"):
        failures(load_variant("uci-regression"), tmp_path)


def test_a_part_of_the_whole_is_told_where_no_run_was_narrowed_to_it(results):
    part = load_variant("uci-regression", "quick", entries=["vifa-nn"])
    stored = failures(part, results)
    assert [own.cell for own in stored] == ["diabetes/vifa-nn"] * 2
    (folder(results, load_variant("uci-regression", "quick")) / "store.sqlite").unlink()
    assert failures(part, results) == [own._replace(traceback="") for own in stored]
