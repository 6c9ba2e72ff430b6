"""What a file may say, and the one line that answers what it may not."""

import re

import pytest
from pydantic import ValidationError

from bdl.errors import InputError
from bdl.spec import Benchmark, Range


def put(content, path, value):
    """Set a dotted path in place."""
    *parents, last = path.split(".")
    for key in parents:
        content = content.setdefault(key, {})
    content[last] = value


def test_fields_defaults_and_canonical_form(load, text):
    benchmark = load(text)
    assert (benchmark.name, benchmark.title, benchmark.profile) == ("small", "A small benchmark", "paper")
    assert (benchmark.seed, benchmark.splits, benchmark.evaluation.samples) == (0, 3, 100)
    assert (benchmark.datasets, benchmark.metrics) == (("diabetes", "yacht"), ("rmse", "nmll"))
    assert benchmark.pairs == tuple((name, entry) for name in ("diabetes", "yacht") for entry in ("searched", "fixed"))
    searched, fixed = benchmark.entries.values()
    assert searched.prior.settings == {"bias_precision": None}
    assert (searched.hyper, searched.search.sampler) == ({}, "random")
    assert tuple(searched.search.space) == searched.hyper_names
    assert searched.hyper_names == ("learning_rate", "prior_precision", "noise_precision")
    assert searched.search.space["learning_rate"] == Range(low=1e-3, high=1e-2, scale="log")
    assert searched.search.space["prior_precision"].scale == "linear"
    assert (fixed.search, fixed.hyper) == (None, {"learning_rate": 0.01, "prior_precision": 1.0})
    again = type(benchmark).model_validate(benchmark.model_dump(mode="json"))
    assert again == benchmark
    assert again.content_hash == benchmark.content_hash
    with pytest.raises(ValidationError, match="frozen"):
        benchmark.entries["fixed"].method.name = "other"


FIXED, SEARCHED, SEARCH = "entries.fixed", "entries.searched", "entries.searched.search"
RATE = f"{SEARCH}.space.learning_rate"
PAPER = {"paper": "a", "tables": ["Table 1"], "task": "t", "methods": {"fixed": "m"}}
CLAIM = {"text": "t", "source": "s", "metric": "nmll", "less": {"entry": "fixed"}, "than": {"entry": "fixed"}}


@pytest.mark.parametrize(
    ("path", "value", "place", "message"),
    [
        *(
            (path, 0, path, "Input should be greater than or equal to 1 (got 0)")
            for path in (
                "splits",
                "evaluation.samples",
                f"{FIXED}.training.epochs",
                f"{FIXED}.training.batch_size",
                f"{SEARCH}.trials",
                f"{SEARCH}.folds",
                f"{SEARCH}.startup",
            )
        ),
        ("seed", -1, "seed", "Input should be greater than or equal to 0 (got -1)"),
        (f"{FIXED}.hyper.prior_precision", -0.5, f"{FIXED}.hyper.prior_precision", "Input should be greater than or e"),
        (f"{RATE}.low", -1, f"{RATE}.low", "Input should be greater than or equal to 0 (got -1)"),
        ("seed", True, "seed", "Input should be a valid integer (got true)"),
        ("splits", 2.0, "splits", "Input should be a valid integer (got 2.0)"),
        ("name", "No Slug", "name", "String should match pattern '^[a-z0-9][a-z0-9_-]*$' (got \"No Slug\")"),
        ("title", "", "title", 'String should have at least 1 character (got "")'),
        ("titel", "x", "", "unknown field 'titel' (did you mean title?); allowed: name, title, "),
        ("profile", "x", "", "profile is not a field of the file: remove it"),
        ("datasets", [], "datasets", "should not be empty"),
        ("datasets", "yacht", "datasets", 'should be a list (got "yacht")'),
        ("datasets", ["yacht", "boston", "yacht"], "datasets", "'yacht' comes twice: remove one"),
        ("metrics", ["nmll", "nmll"], "metrics", "'nmll' comes twice: remove one"),
        ("metrics", ["rsme"], "metrics.0", "unknown metric 'rsme': did you mean rmse"),
        ("entries", {}, "entries", "should not be empty"),
        ("entries", {"A.b": {}}, "entries.A.b", "String should match pattern"),
        (f"{FIXED}.training", None, FIXED, "training is missing: give epochs and batch_size"),
        (f"{FIXED}.hyper", 3, f"{FIXED}.hyper", "should be a mapping (got 3)"),
        ("preparation.rows", {"yacht": 0}, "preparation.rows.yacht", "Input should be greater than or equal to 1"),
        ("preparation.split", "last", "preparation.split", "Input should be 'published', 'first', 'other-first', 'h"),
        ("profiles", None, "profiles", "should be a mapping (got null)"),
        (f"{FIXED}.training", {"epochs": 1}, f"{FIXED}.training.batch_size", "is missing"),
        (f"{FIXED}.training.epoch", 1, f"{FIXED}.training", "unknown field 'epoch' (did you mean epochs?)"),
        (f"{FIXED}.prior.bias_precision", 0, f"{FIXED}.prior.bias_precision", "Input should be greater than 0"),
        (f"{SEARCH}.sampler", "tpe", f"{SEARCH}.sampler", "Input should be 'random', 'bayesian' or 'grid' (got"),
        (f"{SEARCH}.penalty", float("inf"), f"{SEARCH}.penalty", 'Input should be a valid number (got ".inf")'),
        (f"{SEARCH}.metric", "runtime", f"{SEARCH}.metric", "'runtime' cannot steer a search: choose one of"),
        (f"{SEARCH}.space", {}, SEARCH, "space: should not be empty, a random search needs it"),
        (f"{SEARCH}.sampler", "grid", SEARCH, "grid: should not be empty, a grid search needs it"),
        (f"{SEARCH}.grid", {"learning_rate": [0.1]}, SEARCH, "grid: a random search does not use it; remove it"),
        (RATE, {"low": 0.02, "high": 0.01}, RATE, "range reversed: low 0.02 must be below high 0.01"),
        (RATE, {"low": 0.02, "high": 0.02}, RATE, "range empty: low 0.02 must be below high 0.02"),
        (f"{RATE}.low", 0, RATE, "a log range needs low above 0"),
        (f"{RATE}.scale", "ln", f"{RATE}.scale", "Input should be 'linear' or 'log' (got \"ln\")"),
        ("papers", [PAPER | {"methods": {"fxied": "m"}}], "papers.0.methods", "unknown entry 'fxied': did you"),
        ("papers", [PAPER | {"tables": []}], "papers.0.tables", "should not be empty"),
        ("papers", [PAPER | {"metrics": {"jnll": "m"}}], "papers.0.metrics.jnll", "unknown metric 'jnll'"),
        ("papers", [PAPER | {"metrics": {"nmll": ""}}], "papers.0.metrics.nmll", "String should have at least 1"),
        ("baseline", "fxied", "baseline", "unknown entry 'fxied': did you mean fixed?"),
        ("notes", [{"entry": "fxied", "text": "t"}], "notes.0.entry", "unknown entry 'fxied': did you mean"),
        ("notes", [{"statistic": "mode", "text": "t"}], "notes.0.statistic", "Input should be 'mean', 'med"),
        ("notes", [{"verdict": "better", "text": "errata"}], "notes.0.verdict", "Input should be 'print in error'"),
        ("notes", [{"verdict": "print in error", "text": "t"}], "notes.0", "verdict: 'print in error' needs a text"),
        ("claims", [CLAIM | {"than": {"entry": "fxied"}}], "claims.0", "unknown entry 'fxied': did you mean"),
        ("claims", [CLAIM | {"datasets": ["yatch"]}], "claims.0.datasets.0", "unknown dataset 'yatch'"),
        ("claims", [CLAIM | {"metric": "rmes"}], "claims.0", "unknown metric 'rmes': did you mean rmse"),
        ("claims", [CLAIM | {"times": 0}], "claims.0.times", "Input should be greater than 0"),
        ("claims", [CLAIM | {"at": {"dataset.rows": 5}}], "claims.0.at", "unknown axis of the sweep 'dataset.rows'"),
        (
            "claims",
            [CLAIM | {"less": {"entry": "fixed", "at": {"training.epochs": 5}}}],
            "claims.0",
            "at: only one side has 'training.epochs': give its value on the other, or for both",
        ),
        # each hyper-parameter is given once
        (
            f"{SEARCH}.space.noise_precison",
            {"low": 1, "high": 2},
            SEARCHED,
            "unknown hyper-parameter 'noise_precison': did you mean noise_precision",
        ),
        (
            f"{SEARCHED}.hyper",
            {"learning_rate": 0.1},
            SEARCHED,
            "hyper-parameter 'learning_rate' is given twice (hyper, search.space, from_reference): keep one",
        ),
        (f"{FIXED}.hyper", {}, FIXED, "no value for learning_rate, prior_precision: add to hyper or to search.space"),
        (f"{FIXED}.likelihood", {"name": "gaussian"}, FIXED, "no value for noise_precision: add to hyper or to search"),
    ],
)
def test_refusals(load, content, path, value, place, message):
    put(content, path, value)
    with pytest.raises(InputError) as caught:
        load(content)
    assert f"small.yaml: {place}{': ' if place else ''}{message}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bayesian_search_starts_with_at_most_all_its_trials(load, content):
    """Four trials; the five random ones that are the default concern a Bayesian search only."""
    put(content, f"{SEARCH}.sampler", "bayesian")
    message = f"small.yaml: {SEARCH}: startup: 5 evaluations at random are more than the 4 trials; lower startup or rai"
    with pytest.raises(InputError, match=re.escape(message)):
        load(content)
    put(content, f"{SEARCH}.startup", 4)
    assert load(content).entries["searched"].search.startup == 4
    del content["entries"]["searched"]["search"]["trials"], content["entries"]["searched"]["search"]["startup"]
    search = load(content).entries["searched"].search
    assert (search.startup, search.trials, search.penalty) == (5, 30, None)


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_a_penalty_is_finite(load, text, value):
    content = load(text).model_dump(mode="json")
    put(content, f"{SEARCH}.penalty", value)
    with pytest.raises(ValidationError, match="cannot be meant"):
        Benchmark.model_validate(content)


def test_missing_field(load, content):
    del content["splits"]
    with pytest.raises(InputError, match=r"small\.yaml: splits: is missing$"):
        load(content)


def test_several_problems_are_counted(load, content):
    content |= {"seed": -1, "splits": 0, "datasets": []}
    with pytest.raises(InputError, match=r": seed: .* \(got -1\) \(and 2 more\)$"):
        load(content)


def test_select_narrows_in_table_order(load, text):
    """The baseline goes with its entry."""
    benchmark = load(text, overrides=["baseline=fixed"])
    assert benchmark.select() == benchmark
    assert benchmark.select(["yacht", "diabetes"]).datasets == ("diabetes", "yacht")
    assert benchmark.select(["yacht"]).baseline == "fixed"
    small = benchmark.select(["yacht"], ["searched"])
    assert (small.datasets, list(small.entries), small.baseline) == (("yacht",), ["searched"], None)
    assert small.papers[0].methods == {"searched": "theirs"}
    assert [note.text for note in small.notes] == ["about yacht"]
    assert type(small).model_validate(small.model_dump(mode="json")) == small


def test_metrics_of_a_paper(load, content):
    assert load(content).papers[0].metrics == {}
    content["papers"] = [PAPER | {"metrics": {"nmll": "-test_ll"}}, PAPER | {"metrics": {"rmse": "rmse"}}]
    found = load(content).select(["yacht"]).papers
    assert [paper.metrics for paper in found] == [{"nmll": "-test_ll"}, {"rmse": "rmse"}]


def test_entries_on_some_data_sets(load, content):
    content["datasets"].append("boston")
    put(content, f"{FIXED}.datasets", ["boston", "yacht"])
    put(content, "entries.searched.datasets", ["diabetes", "boston"])
    benchmark = load(content)
    assert benchmark.pairs == (
        ("diabetes", "searched"),
        ("yacht", "fixed"),
        ("boston", "searched"),
        ("boston", "fixed"),
    )
    assert benchmark.select() == benchmark
    yacht = benchmark.select(["yacht"])
    assert yacht.pairs == (("yacht", "fixed"),)
    assert yacht.papers[0].methods == {"fixed": "theirs"}
    assert list(yacht.entries) == ["fixed"], "the other entry has no data set left"
    fixed = benchmark.select(entries=["fixed"])
    assert fixed.datasets == ("yacht", "boston"), "no entry runs on diabetes"
    for narrowed in (yacht, fixed):
        assert type(narrowed).model_validate(narrowed.model_dump(mode="json")) == narrowed
    with pytest.raises(InputError, match="searched does not run on yacht; choose another data set"):
        benchmark.select(["yacht"], ["searched"])


def test_no_data_set_without_an_entry(load, content):
    for entry in content["entries"].values():
        entry["datasets"] = ["yacht"]
    with pytest.raises(InputError, match="datasets: no entry runs on 'diabetes': remove it, or name it in an entry's"):
        load(content)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"datasets": ["yatch"]}, "unknown dataset 'yatch': did you mean yacht?"),
        ({"datasets": ["boston"]}, "unknown dataset 'boston'"),
        ({"entries": ["fixd"]}, "unknown method 'fixd': did you mean fixed"),
        ({"entries": [""]}, "unknown method ''"),
    ],
)
def test_select_refuses(load, text, arguments, message):
    with pytest.raises(InputError, match=re.escape(message)):
        load(text).select(**arguments)


def test_a_grid_has_as_many_trials_as_points(load, content):
    grid = {"learning_rate": [0.1, 0.2], "noise_precision": [1, 2, 3]}
    space = content["entries"]["searched"]["search"]["space"]
    left = {name: 1.0 for name in space if name not in grid}
    put(content, "entries.searched.search", {"sampler": "grid", "folds": 2, "metric": "nmll", "grid": grid})
    put(content, "entries.searched.hyper", left)
    del content["profiles"]  # which narrows the space
    search = load(content).entries["searched"].search
    assert (search.trials, search.grid["noise_precision"]) == (6, (1, 2, 3))
    put(content, "entries.searched.search.grid.learning_rate", [])
    with pytest.raises(InputError, match=re.escape("search.grid.learning_rate: should not be empty")):
        load(content)
