"""What a file may say, and parts of it."""

import re

import pytest
from pydantic import ValidationError

from bdl.errors import InputError
from bdl.spec import Benchmark, Range


def test_fields_defaults_and_canonical_form(load, text):
    benchmark = load(text)
    assert (benchmark.name, benchmark.title, benchmark.profile) == (
        "small",
        "A small benchmark",
        "paper",
    )
    assert (benchmark.seed, benchmark.splits, benchmark.evaluation.samples) == (0, 3, 100)
    assert (benchmark.datasets, benchmark.metrics) == (("diabetes", "yacht"), ("rmse", "nmll"))
    assert benchmark.pairs == tuple(
        (name, entry) for name in ("diabetes", "yacht") for entry in ("searched", "fixed")
    )
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


FIXED, SEARCH = "entries.fixed", "entries.searched.search"
PAPER = {"paper": "a", "tables": ["Table 1"], "task": "t", "methods": {"fixed": "m"}}


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_a_penalty_is_finite(load, text, value):
    content = load(text).model_dump(mode="json")
    content["entries"]["searched"]["search"]["penalty"] = value
    with pytest.raises(ValidationError, match="cannot be meant"):
        Benchmark.model_validate(content)


def test_select_narrows_in_table_order(load, text):
    """The baseline goes with its entry."""
    benchmark = load(text, overrides=["baseline=fixed"])
    assert benchmark.select() == benchmark
    assert benchmark.select(["yacht", "diabetes"]).datasets == ("diabetes", "yacht")
    assert benchmark.select(["yacht"]).baseline == "fixed"
    small = benchmark.select(["yacht"], ["searched"])
    assert (small.datasets, list(small.entries), small.baseline) == (
        ("yacht",),
        ["searched"],
        None,
    )
    assert small.papers[0].methods == {"searched": "theirs"}
    assert [note.text for note in small.notes] == ["about yacht"]
    assert type(small).model_validate(small.model_dump(mode="json")) == small


def test_entries_on_some_data_sets(load, content, put):
    content["datasets"].append("boston")
    put(f"{FIXED}.datasets", ["boston", "yacht"])
    put("entries.searched.datasets", ["diabetes", "boston"])
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
    with pytest.raises(
        InputError, match="searched does not run on yacht; choose another data set"
    ):
        benchmark.select(["yacht"], ["searched"])


def test_no_data_set_without_an_entry(load, content):
    for entry in content["entries"].values():
        entry["datasets"] = ["yacht"]
    with pytest.raises(
        InputError,
        match="datasets: no entry runs on 'diabetes': remove it, or name it in an entry's",
    ):
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


def test_a_grid_has_as_many_trials_as_points(load, content, put):
    grid = {"learning_rate": [0.1, 0.2], "noise_precision": [1, 2, 3]}
    space = content["entries"]["searched"]["search"]["space"]
    left = {name: 1.0 for name in space if name not in grid}
    put("entries.searched.search", {"sampler": "grid", "folds": 2, "metric": "nmll", "grid": grid})
    put("entries.searched.hyper", left)
    del content["profiles"]  # which narrows the space
    search = load(content).entries["searched"].search
    assert (search.trials, search.grid["noise_precision"]) == (6, (1, 2, 3))
    put("entries.searched.search.grid.learning_rate", [])
    with pytest.raises(
        InputError, match=re.escape("search.grid.learning_rate: should not be empty")
    ):
        load(content)
