"""What is different on one data set: of an entry, and of all entries that have it."""

import pickle
import re

import pytest

from bdl.errors import InputError
from bdl.methods.vifa import Vifa
from bdl.spec import Benchmark, Range, load_benchmark

YACHT = "entries.searched.by_dataset.yacht"


@pytest.fixture
def on_yacht(load, content):
    """Load with changes on yacht to `searched`, or to another entry, and to all entries.

    Give it and these entries.
    """

    def change(own=None, shared=None, entry="searched", **kwargs):
        if own is not None:
            content["entries"][entry]["by_dataset"] = {"yacht": own}
        if shared is not None:
            content["by_dataset"] = {"yacht": shared}
        benchmark = load(content, **kwargs)
        return benchmark, *(found.on("yacht") for found in benchmark.entries.values())

    return change


def test_anything_of_an_entry_may_differ(on_yacht):
    """Each change is deep: what it does not name is the entry's."""
    benchmark, yacht, _ = on_yacht(
        {
            "model": {"hidden": [7]},
            "prior": {"bias_precision": 2},
            "method": {"optimizer": "sgd"},
            "training": {"epochs": 9},
            "search": {
                "sampler": "bayesian",
                "startup": 2,
                "trials": 6,
                "metric": "rmse",
                "space": {"prior_precision": {"scale": "log"}, "learning_rate": {"high": 0.5}},
            },
        }
    )
    entry = benchmark.entries["searched"]
    assert entry.on("diabetes") is entry
    assert yacht.model.settings["hidden"] == [7]
    assert yacht.likelihood == entry.likelihood
    assert yacht.prior.build().bias_precision == 2.0
    assert yacht.method.build() == Vifa(latent_dim=2, optimizer="sgd")
    assert (yacht.training.epochs, yacht.training.batch_size) == (9, 10)
    search = yacht.search
    assert (search.sampler, search.startup, search.trials, search.folds) == ("bayesian", 2, 6, 3)
    assert list(search.space.items()) == [
        ("learning_rate", Range(low=0.001, high=0.5, scale="log")),
        ("prior_precision", Range(low=0.1, high=10, scale="log")),
        ("noise_precision", Range(low=0.01, high=1, scale="log")),
    ]
    assert entry.dump_on("yacht")["search"]["startup"] == 2
    assert "startup" not in entry.dump_on("diabetes")["search"], "not heeded there"


def test_a_component_of_another_name_has_nothing_of_the_old_one_and_null_replaces(on_yacht):
    hyper = {"learning_rate": 0.1, "prior_precision": 1, "noise_precision": 2}
    changes = {
        "model": {"name": "linear"},
        "method": {"name": "vifa", "optimizer": "sgd"},
        "search": None,
    }
    _, yacht, _ = on_yacht(changes | {"hyper": hyper})
    assert yacht.model.settings == {"bias": True}
    assert yacht.method.build() == Vifa(latent_dim=2, optimizer="sgd"), "the same name: merged"
    assert (yacht.search, yacht.hyper) == (None, hyper)


def test_hyper_parameters_are_replaced_one_by_one(on_yacht):
    _, _, yacht = on_yacht({"hyper": {"prior_precision": 3}}, entry="fixed")
    assert yacht.hyper == {"learning_rate": 0.01, "prior_precision": 3.0}


def test_parts_are_those_of_the_merged_entry(on_yacht, load, text):
    before, (changed, *_) = (
        load(text),
        on_yacht({"training": {"epochs": 9}, "search": {"trials": 7}}),
    )
    overrides = ["entries.searched.training.epochs=9", "entries.searched.search.trials=7"]
    everywhere = load(text, overrides=overrides)
    assert changed.fit_part("yacht", "searched") == everywhere.fit_part("yacht", "searched")
    assert changed.fit_part("yacht", "searched") != before.fit_part("yacht", "searched")
    assert changed.fit_part("diabetes", "searched") == before.fit_part("diabetes", "searched")


def test_canonical_form_pickle_and_selection(on_yacht):
    benchmark, *_ = on_yacht(
        {"search": {"space": {"noise_precision": {"low": 0.5}}}}, {"model": {"hidden": [7]}}
    )
    for again in (
        Benchmark.model_validate(benchmark.model_dump(mode="json")),
        pickle.loads(pickle.dumps(benchmark)),
    ):
        assert again == benchmark
        assert again.entries["searched"].on("yacht").search.space["noise_precision"].low == 0.5
        assert again.entries["searched"].on("yacht").model.build().hidden == (7,)
    cell = ("yacht", "searched")
    assert benchmark.select(["yacht"]).fit_part(*cell) == benchmark.fit_part(*cell)
    assert benchmark.select(entries=["fixed"]).entries["fixed"].on("yacht").training.epochs == 5


def test_only_entries_that_have_the_leaf_are_changed(on_yacht):
    """A name says whom it concerns."""
    space = {"noise_precision": {"low": 0.5}}
    changes = {"model": {"hidden": [7]}, "training": {"epochs": 9}, "search": {"space": space}}
    benchmark, searched, fixed = on_yacht(shared=changes | {"likelihood": {"name": "bernoulli"}})
    assert searched.model.build().hidden == (7,)
    assert (
        searched.search.space["noise_precision"].low,
        searched.search.space["noise_precision"].high,
    ) == (0.5, 1)
    assert (searched.likelihood.name, fixed.likelihood.name) == ("gaussian", "bernoulli")
    assert fixed.model == benchmark.entries["fixed"].model
    assert (searched.training.epochs, fixed.training.epochs) == (9, 9)
    assert all(entry.on("diabetes") is entry for entry in benchmark.entries.values())


def test_an_entry_has_the_last_word_and_together_they_are_checked(on_yacht):
    """The entry's own range is right beside that of all, and wrong without it."""
    own = {"search": {"space": {"noise_precision": {"low": 3}}}, "training": {"epochs": 2}}
    shared = {
        "search": {"space": {"noise_precision": {"high": 9}}},
        "training": {"epochs": 9, "batch_size": 8},
    }
    _, searched, fixed = on_yacht(own, shared)
    assert (searched.training.epochs, searched.training.batch_size, fixed.training.epochs) == (
        2,
        8,
        9,
    )
    found = searched.search.space["noise_precision"]
    assert (found.low, found.high) == (3, 9)
    with pytest.raises(
        InputError,
        match=r"entries.searched.by_dataset.yacht.search.space.noise_precision: range rev",
    ):
        on_yacht(own, {})


def test_profiles_and_overrides_add_to_the_changes(on_yacht, content):
    content["profiles"]["quick"]["by_dataset"] = {"yacht": {"training": {"batch_size": 4}}}
    content["profiles"]["quick"]["entries"]["searched"]["by_dataset"] = {
        "yacht": {"search": {"trials": 3}}
    }
    overrides = ["by_dataset.yacht.model.hidden=[2]", "by_dataset.diabetes.training.epochs=1"]
    benchmark, searched, fixed = on_yacht(
        {"search": {"folds": 2}}, {"training": {"epochs": 9}}, profile="quick", overrides=overrides
    )
    assert (searched.search.trials, searched.search.folds) == (3, 2)
    assert (
        searched.training.epochs,
        searched.training.batch_size,
        searched.model.build().hidden,
    ) == (9, 4, (2,))
    assert (fixed.training.epochs, fixed.training.batch_size) == (9, 4)
    assert benchmark.entries["fixed"].on("diabetes").training.epochs == 1


@pytest.mark.parametrize(
    ("overrides", "read", "value"),
    [
        (
            ["search.space.noise_precision.high=9"],
            lambda e: e.search.space["noise_precision"].high,
            9,
        ),
        (
            ["search.trials=6", "search.folds=2"],
            lambda e: (e.search.trials, e.search.folds),
            (6, 2),
        ),
        (
            ["method={optimizer: sgd}"],
            lambda e: e.method.build(),
            Vifa(latent_dim=2, optimizer="sgd"),
        ),
        (["model.name=linear"], lambda e: e.model.settings, {"bias": True}),
    ],
)
def test_overrides(load, text, overrides, read, value):
    entry = load(text, overrides=[f"{YACHT}.{change}" for change in overrides]).entries["searched"]
    assert read(entry.on("yacht")) == value
    assert read(entry.on("diabetes")) != value


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            f"{YACHT}.search.space.noise={{low: 1, high: 2}}",
            f"{YACHT}: unknown hyper-parameter 'noise': did you mean n",
        ),
        (f"{YACHT}.datasets=[yacht]", f"{YACHT}: unknown field 'datasets'"),
        (
            f"{YACHT}.search.space.noise_precision.low=2",
            f"{YACHT}.search.space.noise_precision: range reversed: low 2",
        ),
        (
            "by_dataset.yacht.training.epoch=1",
            "by_dataset.yacht: no entry has 'training.epoch': correct it",
        ),
    ],
)
def test_overrides_refused(load, text, override, message):
    with pytest.raises(InputError, match=f"--set {re.escape(override)}: {re.escape(message)}"):
        load(text, overrides=[override])


def test_a_distance_needs_the_reference_on_every_data_set():
    changes = (
        "reference=null",
        "from_reference=[]",
        "hyper={prior_precision: 1, noise_precision: 1}",
    )
    overrides = [f"entries.vifa-corrected.by_dataset.yacht.{change}" for change in changes]
    message = (
        r"entries\.vifa-corrected\.by_dataset\.yacht\.reference is missing: distances need one"
    )
    with pytest.raises(InputError, match=message):
        load_benchmark("uci-linear-posterior", overrides=overrides)
