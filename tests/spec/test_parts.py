"""What decides a fit and what decides a score change with everything that changes numbers, and with nothing else."""

import json
from hashlib import sha256 as digest

import pytest

from bdl.errors import InputError
from bdl.spec import load_benchmark, sha256, to_canonical_json

CELL = ("yacht", "searched")


def fit(benchmark, pair=CELL):
    return sha256(benchmark.fit_part(*pair))


def score(benchmark, pair=CELL):
    return sha256(benchmark.score_part(*pair))


def test_canonical_text_and_its_hash():
    assert (
        to_canonical_json({"b": [1, None], "a": {"d": True, "c": 0.5}})
        == '{"a":{"c":0.5,"d":true},"b":[1,null]}'
    )
    assert sha256({"b": 1, "a": 2}) == digest(b'{"a":2,"b":1}').hexdigest()
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_canonical_json(float("nan"))


def test_known_answer(load, text):
    benchmark = load(text)
    assert benchmark.fit_part("yacht", "fixed") == {
        "benchmark": "small",
        "seed": 0,
        "dataset": ["yacht", "yacht", {}],
        "entry": [
            "fixed",
            {
                "model": {"name": "linear"},
                "likelihood": {"name": "bernoulli"},
                "method": {"name": "vifa"},
                "training": {"epochs": 5, "batch_size": 10},
                "hyper": {"learning_rate": 0.01, "prior_precision": 1.0},
            },
        ],
        "preparation": {},
        "record": None,
        "evaluation": None,
    }
    assert benchmark.score_part("yacht", "fixed") == {"evaluation": {}, "reference": None}
    json.dumps(benchmark.fit_part(*CELL))


def test_a_data_set_goes_in_with_its_settings():
    benchmark = load_benchmark("online-fa")
    part = benchmark.fit_part("fa_100_10_columns", "online-em")
    settings = {"dim": 100, "top": 10.0, "scaling": "columns"}
    assert part["dataset"] == ["fa_100_10_columns", "fa", settings]
    assert part["record"] == {"unit": "observations", "log": True, "first": 100}
    with pytest.raises(InputError, match="unknown dataset 'fa_100_11': did you mean fa_100_10"):
        benchmark.fit_part("fa_100_11", "online-em")


FITS = [
    "seed=1",
    "name=other",
    "evaluation.samples=99",
    "record={unit: epochs, every: 1}",
    "by_dataset.yacht.training.epochs=6",
    "preparation.rows=100",
    "entries.searched.training.epochs=6",
    "entries.searched.training.batch_size=9",
    "entries.searched.training.dtype=float64",
    "entries.searched.training.schedule.name=decay",
    "entries.searched.record={unit: epochs, every: 1}",
    "entries.searched.prior.bias_precision=1",
    "entries.searched.model.hidden=[49]",
    "entries.searched.method.latent_dim=3",
    "entries.searched.method.lr_factors=[1, 1, 2]",
    "entries.searched.search.trials=5",
    "entries.searched.search.folds=4",
    "entries.searched.search.metric=rmse",
    "entries.searched.search.space.prior_precision.high=9",
    "entries.searched.search.space.prior_precision.scale=log",
]
NOTHING = [
    "title=Other",
    "baseline=fixed",
    "metrics=[nmll]",
    "papers=[]",
    "papers=[{paper: p, tables: [T], task: t, methods: {fixed: m}, metrics: {rmse: error}}]",
    "notes=[]",
    "seed=0",
    "entries.searched.model.hidden=[50]",
    "entries.searched.method.max_grad_norm=10",
    "entries.searched.search.startup=1",
    "entries.searched.search.penalty=5",
    "entries.searched.search.refit=true",
    "datasets=[yacht, diabetes]",
    "entries.searched.datasets=[yacht, diabetes]",
    "record={unit: observations, every: 7}",
    "by_dataset.yacht.training.epochs=5",
]
OTHER_CELLS = [
    "splits=2",
    "datasets=[yacht]",
    "entries.fixed.training.epochs=6",
    "entries.fixed.datasets=[diabetes]",
    "preparation.rows.diabetes=9",
    "by_dataset.diabetes.training.epochs=9",
]


@pytest.mark.parametrize("change", [*FITS, *NOTHING, *OTHER_CELLS])
def test_what_a_change_changes(load, text, change):
    before, after = load(text), load(text, overrides=[change])
    assert (fit(before) != fit(after)) == (change in FITS)
    assert (score(before) != score(after)) == (change == "evaluation.samples=99")
    assert (before.content_hash == after.content_hash) == (change in NOTHING)


def test_evaluation_decides_a_fit_only_where_there_is_a_search(load, text):
    before, after = load(text), load(text, overrides=["evaluation.samples=99"])
    fixed = ("yacht", "fixed")
    assert fit(before, fixed) == fit(after, fixed)
    assert score(before, fixed) != score(after, fixed)


def test_settings_that_only_some_searches_heed_change_a_fit_there(load, text):
    bayesian = ["entries.searched.search.sampler=bayesian", "entries.searched.search.startup=2"]
    more = [["entries.searched.search.startup=1"], ["entries.searched.search.penalty=5"]]
    one_fold = ["entries.searched.search.folds=1"]
    changes = [[], bayesian, *([*bayesian, *own] for own in more)]
    changes += [one_fold, [*one_fold, "entries.searched.search.refit=true"]]
    assert len({fit(load(text, overrides=change)) for change in changes}) == 6


@pytest.mark.parametrize(
    ("name", "change", "pair", "refits"),
    [
        ("logistic-posterior", "entries.vifa.reference.draws=9", ("a1a", "vifa"), False),
        ("uci-linear-posterior", "entries.vifa.reference.bias=penalised", ("yacht", "vifa"), True),
    ],
)
def test_a_reference_decides_a_fit_only_where_it_estimates(name, change, pair, refits):
    """The draws of `nuts` are the truth of a score.

    `bayesian-ridge` gives the precisions of the fit.
    """
    before, after = load_benchmark(name), load_benchmark(name, overrides=[change])
    assert (fit(before, pair) != fit(after, pair)) == refits
    assert score(before, pair) != score(after, pair)


def test_rows_and_data_sets_in_the_hashes(load, text):
    changes = (
        [],
        ["preparation.rows.yacht=9"],
        ["preparation.rows=9"],
        ["preparation.rows.yacht=8"],
    )
    before, few, all_few, fewer = (load(text, overrides=change) for change in changes)
    assert len({fit(before), fit(few), fit(fewer)}) == 3
    assert fit(few) == fit(all_few), "however it is written"
    limited = load(text, overrides=["entries.fixed.datasets=[diabetes]"])
    kept = [pair for pair in before.pairs if pair != ("yacht", "fixed")]
    cells = sorted(
        sha256(["{}", before.fit_part(*pair), before.score_part(*pair)]) for pair in kept
    )
    assert limited.content_hash == sha256({"splits": 3, "cells": cells}), "one cell less"


def test_what_the_sampler_does_not_heed_is_left_out(load, text):
    settings = load(text).entries["searched"].dump_on("yacht")
    assert settings["search"].keys() == {"sampler", "trials", "folds", "metric", "space"}
    assert load(text).entries["fixed"].dump_on("yacht")["search"] is None


def test_order_of_the_space_counts_and_that_of_settings_and_entries_does_not(load, content):
    before, entries = load(content), content["entries"]
    content["entries"] = {
        name: dict(reversed(entries[name].items())) for name in reversed(entries)
    }
    after = load(content)
    assert list(after.entries) == ["fixed", "searched"]
    assert after.content_hash == before.content_hash
    search = entries["searched"]["search"]
    search["space"] = dict(reversed(search["space"].items()))
    assert fit(load(content)) != fit(before)


def test_cells_differ(load, text):
    benchmark = load(text)
    assert len({fit(benchmark, pair) for pair in benchmark.pairs}) == 4
    twin = benchmark.model_copy(
        update={"entries": {**benchmark.entries, "twin": benchmark.entries["fixed"]}}
    )
    assert fit(twin, ("yacht", "twin")) != fit(twin, ("yacht", "fixed"))


def test_points_differ(load, text):
    """Each point counts, and those of an entry without the axis as well."""
    swept = load(text, overrides=["sweep.model.hidden=[[50], [7]]"])
    here, there = (swept.at(point) for point in swept.points)
    assert fit(here) == fit(load(text)), "the value of the file"
    assert fit(here) != fit(there)
    assert fit(here, ("yacht", "fixed")) == fit(there, ("yacht", "fixed"))
    one = load(text, overrides=["sweep.model.hidden=[[50]]"])
    assert len({found.content_hash for found in (swept, one, load(text))}) == 3
