"""`bdl-bench compare`: two folders, or the entries of one."""

import json
import math
import re
from pathlib import Path

import pytest
from run_folders import write_frame
from scipy.special import stdtrit

from bdl.publishing.run_comparison import ComparisonText, compare_runs, load_run
from bdl.records.run_folder import RunFolder
from bdl.spec import load_benchmark

from .conftest import SPEC

RESULTS = Path(__file__).parents[2] / "results"
ONE = {"one": [3.0, 3.1, 3.2, 3.3], "two": [2.0, 2.2, 2.1, 2.3]}
OTHER = {"one": [3.0, 3.1, 3.2, 3.3], "two": [1.0, 1.1, 1.2, 1.4]}


@pytest.fixture
def folders(published, tmp_path):
    """Write two folders of results."""

    def make(*runs):
        for name, scores in zip("ab", runs, strict=True):
            (tmp_path / name).mkdir()
            published(tmp_path / name, scores)
        return [str(tmp_path / name / "results" / "small") for name in "ab"]

    return make


@pytest.fixture
def both(folders):
    """Two folders that differ in the scores of one entry."""
    return folders(ONE, OTHER)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("nowhere neither", "give a folder of a run or of published rows"),
        ("{a} {b} --format xml", "unknown format 'xml'"),
        ("{a} {b} --baseline one", "--baseline and --figures are for one run"),
        ("{a} {b} --set seed=1", "--profile, --set and --splits are for one run"),
        ("{a} {b} --method tow", "unknown method 'tow': did you mean two"),
        (
            "{a}/../../small.yaml --results {a}/.. --baseline on",
            "unknown method 'on': did you mean one or two?",
        ),
    ],
)
def test_bad_input(invoke, both, words, told):
    code, _, err = invoke(
        "compare", *(word.format(a=both[0], b=both[1]) for word in words.split())
    )
    assert code == 2
    assert told in err


def test_two_folders(invoke, both):
    """Differences of the second entry are -1, -1.1, -0.9, -0.9; those of the first are none."""
    code, out, _ = invoke("compare", *both, "--format", "json")
    assert code == 0
    told = json.loads(out)
    verdicts = {(each["method"], each["metric"]): each["verdict"] for each in told["scores"]}
    assert verdicts == {
        ("one", "nmll"): "same",
        ("two", "nmll"): "better",
        ("one", "rmse"): "same",
        ("two", "rmse"): "better",
    }
    assert told["scores"][1]["mean"] == pytest.approx(-0.975)
    assert (told["hyper"], told["spec"]) == ([], None)
    _, text, _ = invoke("compare", *both, "--format", "markdown")
    assert "scores of both: 4, 2 the same to six digits and 2 not" in text
    assert re.search(r"\| diabetes \| two \| -0.975 \| -1.13 to -0.823 \| better \| 4 \|", text)
    assert "| one |" not in text, "what is the same is counted"
    assert "specs are not compared" in text
    part = json.loads(
        invoke("compare", *both, "--dataset", "dia*", "--method", "t?o", "--format", "json")[1]
    )
    assert [(each["method"], each["metric"]) for each in part["scores"]] == [
        ("two", "nmll"),
        ("two", "rmse"),
    ]


@pytest.mark.parametrize(("relative", "verdict"), [(1e-7, "same"), (1e-5, "worse")])
def test_what_rounding_changes_is_the_same(invoke, folders, relative, verdict):
    made = folders(
        *({"one": [factor * score for score in ONE["one"]]} for factor in (1.0, 1 + relative))
    )
    told = json.loads(invoke("compare", *made, "--format", "json")[1])
    assert {each["verdict"] for each in told["scores"]} == {verdict}


def test_notes_are_not_printed_as_they_are_stored(both):
    first, second = (
        load_benchmark(str(Path(folder).parents[1] / "small.yaml"), "paper", changes)
        for folder, changes in zip(
            both, ([], ["notes=[{text: Other.}]", "datasets=[synthetic]"]), strict=True
        )
    )
    lines = compare_runs(
        *(
            load_run(folder, Path())._replace(benchmark=own)
            for folder, own in zip(both, (first, second), strict=True)
        )
    ).lines
    assert lines[2:] == [
        "datasets: [diabetes] -> [synthetic]",
        "different without an effect on numbers: notes",
    ]


def test_cells_of_one_run_alone_and_nothing_in_common(invoke, both):
    second = Path(both[1])
    rows = RunFolder(second).tabulate()
    write_frame(second, rows.assign(entry=rows.entry.replace("two", "three")))
    _, text, _ = invoke("compare", *both, "--format", "markdown")
    assert "only in the first: diabetes/two\n" in text
    assert "only in the second: diabetes/three\n" in text
    write_frame(second, rows.drop(columns=["nmll", "rmse"]))
    code, _, err = invoke("compare", *both)
    assert code == 2
    assert "there is nothing to pair" in err


def test_a_part_of_one_run_has_its_baseline(invoke, published, tmp_path):
    path = published(
        tmp_path, ONE | {"three": ONE["two"]}, SPEC.replace("  two:", "  three: *entry\n  two:")
    )
    words = (
        str(path),
        "--results",
        str(tmp_path / "results"),
        "--method",
        "th*",
        "--format",
        "json",
    )
    told = json.loads(invoke("compare", *words)[1])
    assert (told["baseline"], {each["method"] for each in told["paired"]}) == ("one", {"three"})
    assert invoke("compare", *words, "--set", "seed=1")[0] == 2, "there is no such run"


def test_entries_of_one_run(invoke, published, tmp_path):
    """Splits of diabetes share rows, 44 to 398 for training: half 0.0816497 / sqrt(4) sqrt(1 + 4 44 / 398) 3.18245."""
    small = str(published(tmp_path, ONE)), "--results", str(tmp_path / "results")
    code, out, _ = invoke("compare", *small, "--format", "json")
    assert code == 0
    compared = json.loads(out)
    assert compared["standings"] == []  # of one data set
    pair = next(each for each in compared["paired"] if each["metric"] == "nmll")
    assert pair["mean"] == pytest.approx(-1.0)
    assert pair["high"] + 1 == pytest.approx(
        0.0816497 / 2 * (1 + 4 * 44 / 398) ** 0.5 * 3.18245, rel=1e-5
    )
    assert pair["verdict"] == "better"
    _, text, _ = invoke("compare", *small)
    assert re.search(r"NMLL\s+two\s+1\s+0\s+0", text)
    _, turned, _ = invoke("compare", *small, "--baseline", "two")
    assert re.search(r"NMLL\s+one\s+0\s+0\s+1", turned)


def test_intervals_without_the_data_are_those_with_it(invoke, monkeypatch, tmp_path):
    """The provenance has the overlaps of training rows, without which intervals would be too short."""
    root = Path(__file__).parents[2] / "results"
    words = ("compare", "uci-regression", "--format", "json", "--results", str(root))
    monkeypatch.delenv("BDL_DATA_MIRROR", raising=False)
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path / "nothing"))
    code, out, _ = invoke(*words)
    assert code == 0
    pairs = json.loads(out)["paired"]
    yacht = next(
        row
        for row in pairs
        if (row["dataset"], row["method"], row["metric"]) == ("yacht", "vifa-nn", "nmll")
    )
    rows = RunFolder(root / "uci-regression").tabulate()
    final = rows[(rows.stage == "final") & (rows.dataset == "yacht")].set_index(["entry", "split"])
    differences = (final.nmll["vifa-nn"] - final.nmll["swag-nn"]).dropna()
    overlap = 31 / 277  # test rows over training rows
    spread = differences.std() * (1 / len(differences) + overlap) ** 0.5
    reach = stdtrit(len(differences) - 1, 0.975) * spread
    assert yacht["high"] - yacht["low"] == pytest.approx(2 * reach, rel=1e-9)


def test_methods_of_a_run_have_their_standing(invoke, tmp_path):
    """As in tables, also where there are printed values."""
    words = ("compare", "uci-regression", "--results", str(RESULTS))
    code, out, _ = invoke(*words, "--format", "json", "--figures", str(tmp_path))
    assert code == 0
    standing = json.loads(out)["standings"][0]
    assert (standing["metric"], len(standing["datasets"])) == ("nmll", 4)
    values = [rank["value"] for rank in standing["ranks"]]
    assert values == sorted(values)
    assert all(rank["low"] <= rank["value"] <= rank["high"] for rank in standing["ranks"])
    assert (tmp_path / "uci-regression-nmll-standing.png").exists()
    assert "critical difference" in invoke(*words, "--format", "markdown")[1]


def test_what_is_not_a_number_is_null_in_json():
    """Of one split a rank has no interval."""
    text = ComparisonText([], [], {"ranks": [{"low": math.nan, "value": 2.0}]}).render("json")
    assert json.loads(text) == {"ranks": [{"low": None, "value": 2.0}]}
