"""The hashes change with everything that changes numbers, and with nothing else."""

import json
from hashlib import sha256

import pytest

CELL = ("yacht", "searched")


def test_known_answer(load, text):
    """The canonical JSON, written out."""
    canonical = {
        "benchmark": "small",
        "seed": 0,
        "dataset": "yacht",
        "entry": [
            "fixed",
            {
                "model": {"name": "linear", "bias": True},
                "likelihood": {"name": "bernoulli"},
                "prior": {"bias_precision": None},
                "method": {
                    "name": "vifa",
                    "latent_dim": 1,
                    "gradients_per_update": 4,
                    "max_grad_norm": 10.0,
                    "optimizer": "adam",
                    "lr_factors": [1.0, 1.0, 1.0],
                },
                "training": {"epochs": 5, "batch_size": 10},
                "hyper": {"learning_rate": 0.01, "prior_precision": 1.0},
                "reference": None,
                "from_reference": [],
                "by_dataset": {},
                "search": None,
            },
        ],
        "preparation": {"split": "published", "standardise": "both"},
        "evaluation": {"samples": 100},
    }
    expected = sha256(json.dumps(canonical, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    assert load(text).cell_hash("yacht", "fixed") == expected


@pytest.mark.parametrize(
    "change",
    [
        "seed=1",
        "name=other",
        "evaluation.samples=99",
        "entries.searched.training.epochs=6",
        "entries.searched.training.batch_size=9",
        "entries.searched.prior.bias_precision=1",
        "entries.searched.model.hidden=[49]",
        "entries.searched.method.latent_dim=3",
        "entries.searched.method.lr_factors=[1, 1, 2]",
        "entries.searched.search.trials=5",
        "entries.searched.search.folds=4",
        "entries.searched.search.metric=rmse",
        "entries.searched.search.space.prior_precision.high=9",
        "entries.searched.search.space.prior_precision.scale=log",
    ],
)
def test_what_changes_a_cell(load, text, change):
    before, after = load(text), load(text, overrides=[change])
    assert before.cell_hash(*CELL) != after.cell_hash(*CELL)
    assert before.content_hash != after.content_hash


BAYESIAN = ["entries.searched.search.sampler=bayesian", "entries.searched.search.startup=2"]


def test_sampler_start_and_penalty_of_a_bayesian_search_change_a_cell(load, text):
    one = "entries.searched.search.startup=1"
    penalty = "entries.searched.search.penalty=5"
    changes = [[], BAYESIAN, [*BAYESIAN, one], [*BAYESIAN, penalty]]
    assert len({load(text, overrides=change).cell_hash(*CELL) for change in changes}) == 4


@pytest.mark.parametrize(
    "change",
    [
        "title=Other",
        "baseline=fixed",
        "metrics=[nmll]",
        "papers=[]",
        "papers=[{paper: p, tables: [T], task: t, methods: {fixed: m}, metrics: {rmse: error}}]",
        "notes=[]",
        "seed=0",
        "entries.searched.model.hidden=[50]",
        "entries.searched.method.max_grad_norm=10",
        "entries.searched.search.sampler=random",
        "entries.searched.search.startup=1",
        "entries.searched.search.penalty=5",
        "datasets=[yacht, diabetes]",
    ],
)
def test_what_changes_nothing(load, text, change):
    before, after = load(text), load(text, overrides=[change])
    assert before.cell_hash(*CELL) == after.cell_hash(*CELL)
    assert before.content_hash == after.content_hash


@pytest.mark.parametrize("change", ["splits=2", "datasets=[yacht]", "entries.fixed.training.epochs=6"])
def test_what_changes_the_benchmark_but_not_the_cell(load, text, change):
    before, after = load(text), load(text, overrides=[change])
    assert before.cell_hash(*CELL) == after.cell_hash(*CELL)
    assert before.content_hash != after.content_hash


LIMITED = "entries.fixed.datasets=[diabetes]"


@pytest.mark.parametrize("change", ["preparation.rows.diabetes=9", "entries.searched.datasets=[yacht, diabetes]"])
def test_what_concerns_other_data_sets_does_not_change_a_cell(load, text, change):
    before, after = load(text), load(text, overrides=[change])
    assert before.cell_hash(*CELL) == after.cell_hash(*CELL)
    assert (before.content_hash == after.content_hash) == ("datasets" in change), "all cells, and the same"


def test_rows_and_data_sets_in_the_hashes(load, text):
    before, few, limited = (
        load(text),
        load(text, overrides=["preparation.rows.yacht=9"]),
        load(text, overrides=[LIMITED]),
    )
    assert before.cell_hash(*CELL) != few.cell_hash(*CELL)
    assert few.cell_hash(*CELL) != load(text, overrides=["preparation.rows.yacht=8"]).cell_hash(*CELL)
    assert limited.cell_hash("diabetes", "fixed") == before.cell_hash("diabetes", "fixed")
    assert limited.content_hash != before.content_hash, "one cell less"
    kept = sorted(before.cell_hash(*pair) for pair in before.pairs if pair != ("yacht", "fixed"))
    canonical = json.dumps({"splits": 3, "cells": kept}, sort_keys=True, separators=(",", ":"))
    assert limited.content_hash == sha256(canonical.encode()).hexdigest()


def test_a_random_search_is_hashed_as_before_there_were_others(load, text):
    settings = load(text).entries["searched"].dump_on("yacht")
    assert settings["search"].keys() == {"sampler", "trials", "folds", "metric", "space"}
    assert load(text).entries["fixed"].dump_on("yacht")["search"] is None
    assert "penalty" in load(text, overrides=BAYESIAN).entries["searched"].dump_on("yacht")["search"]


def test_order_of_the_space_counts(load, content):
    before = load(content)
    space = content["entries"]["searched"]["search"]["space"]
    content["entries"]["searched"]["search"]["space"] = dict(reversed(space.items()))
    assert load(content).cell_hash(*CELL) != before.cell_hash(*CELL)


def test_order_of_settings_and_entries_does_not_count(load, content):
    before = load(content)
    entries = content["entries"]
    content["entries"] = {name: dict(reversed(entries[name].items())) for name in reversed(entries)}
    after = load(content)
    assert list(after.entries) == ["fixed", "searched"]
    assert after.content_hash == before.content_hash


def test_cells_differ(load, text):
    benchmark = load(text)
    cells = {benchmark.cell_hash(*pair) for pair in benchmark.pairs}
    assert len(cells) == 4
    twin = benchmark.model_copy(update={"entries": {**benchmark.entries, "twin": benchmark.entries["fixed"]}})
    assert twin.cell_hash("yacht", "twin") != twin.cell_hash("yacht", "fixed")
