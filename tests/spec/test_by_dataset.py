"""An entry that is different on one data set."""

import pickle
import re

import pytest

from bdl.errors import InputError
from bdl.methods.vifa import Vifa
from bdl.spec import Benchmark, Range, load_benchmark

YACHT = "entries.searched.by_dataset.yacht"


@pytest.fixture
def on_yacht(load, content):
    """Load with changes on yacht to `searched`, or to another entry."""

    def change(changes, entry="searched", **kwargs):
        content["entries"][entry]["by_dataset"] = {"yacht": changes}
        return load(content, **kwargs)

    return change


def test_anything_of_an_entry_may_differ(on_yacht):
    """Each change is deep: what it does not name is the entry's."""
    benchmark = on_yacht(
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
    yacht = entry.on("yacht")
    assert yacht is entry.on("yacht"), "checked once"
    assert yacht.model.settings["hidden"] == [7]
    assert yacht.likelihood == entry.likelihood
    assert yacht.prior.build().bias_precision == 2.0
    assert yacht.method.build() == Vifa(latent_dim=2, optimizer="sgd")
    assert (yacht.training.epochs, yacht.training.batch_size) == (9, 10)
    search = yacht.search
    assert (search.sampler, search.startup, search.trials, search.folds) == ("bayesian", 2, 6, 3)
    assert search.metric == "rmse"
    assert list(search.space.items()) == [
        ("learning_rate", Range(low=0.001, high=0.5, scale="log")),
        ("prior_precision", Range(low=0.1, high=10, scale="log")),
        ("noise_precision", Range(low=0.01, high=1, scale="log")),
    ]


def test_a_component_of_another_name_has_nothing_of_the_old_one(on_yacht):
    changes = {"model": {"name": "linear"}, "method": {"name": "vifa", "optimizer": "sgd"}}
    yacht = on_yacht(changes).entries["searched"].on("yacht")
    assert yacht.model.settings == {"bias": True}
    assert yacht.method.build() == Vifa(latent_dim=2, optimizer="sgd"), "the same name: merged"


def test_null_and_values_replace(on_yacht):
    hyper = {"learning_rate": 0.1, "prior_precision": 1, "noise_precision": 2}
    yacht = on_yacht({"search": None, "hyper": hyper}).entries["searched"].on("yacht")
    assert (yacht.search, yacht.hyper) == (None, hyper)


def test_hyper_parameters_are_replaced_one_by_one(on_yacht):
    yacht = on_yacht({"hyper": {"prior_precision": 3}}, "fixed").entries["fixed"].on("yacht")
    assert yacht.hyper == {"learning_rate": 0.01, "prior_precision": 3.0}


def test_parts_are_those_of_the_merged_entry(on_yacht, load, text):
    before, changed = load(text), on_yacht({"training": {"epochs": 9}, "search": {"trials": 7}})
    overrides = ["entries.searched.training.epochs=9", "entries.searched.search.trials=7"]
    everywhere = load(text, overrides=overrides)
    assert changed.fit_part("yacht", "searched") == everywhere.fit_part("yacht", "searched")
    assert changed.fit_part("yacht", "searched") != before.fit_part("yacht", "searched")
    assert changed.fit_part("diabetes", "searched") == before.fit_part("diabetes", "searched")


def test_what_the_sampler_does_not_heed_on_the_data_set_is_not_hashed(on_yacht):
    changes = {"search": {"sampler": "bayesian", "startup": 2}}
    search = on_yacht(changes).entries["searched"].dump_on("yacht")["search"]
    assert search["startup"] == 2
    assert "startup" not in on_yacht(changes).entries["searched"].dump_on("diabetes")["search"]


def test_canonical_form_pickle_and_selection(on_yacht):
    benchmark = on_yacht({"search": {"space": {"noise_precision": {"low": 0.5}}}})
    for again in (Benchmark.model_validate(benchmark.model_dump(mode="json")), pickle.loads(pickle.dumps(benchmark))):
        assert again == benchmark
        assert again.entries["searched"].on("yacht").search.space["noise_precision"].low == 0.5
    cell = ("yacht", "searched")
    assert benchmark.select(["yacht"]).fit_part(*cell) == benchmark.fit_part(*cell)


@pytest.mark.parametrize(
    ("changes", "place", "message"),
    [
        ({"serch": {}}, "", "unknown field 'serch' (did you mean search?); allowed: model, likelihood, prior"),
        ({"datasets": ["yacht"]}, "", "unknown field 'datasets'"),
        ({"by_dataset": {}}, "", "unknown field 'by_dataset'"),
        (3, "", "should be a mapping (got 3)"),
        ({"training": {"epoch": 3}}, ".training", "unknown field 'epoch' (did you mean epochs?)"),
        ({"training": None}, "", "training is missing"),
        ({"method": {"latent_dim": 0}}, ".method.latent_dim", "Input should be greater than or equal to 1 (got 0)"),
        ({"method": {"rank": 1}}, ".method", "unknown setting of method 'vifa' 'rank'"),
        ({"search": {"space": {"noise_precision": {"low": 2}}}}, ".search.space.noise_precision", "range reversed"),
        ({"search": {"space": {"noise": {"low": 1, "high": 2}}}}, "", "unknown hyper-parameter 'noise'"),
        ({"search": {"sampler": "bayesian"}}, ".search", "startup: 5 evaluations at random are more than the 4"),
        ({"search": None}, "", "no value for learning_rate, prior_precision, noise_precision"),
        ({"hyper": {"noise_precision": -1}}, ".hyper.noise_precision", "Input should be greater than or equal to 0"),
        ({"hyper": {"noise_precision": 1}}, "", "hyper-parameter 'noise_precision' is given twice"),
        ({"method": {"latent_dim": 0}, "training": {"epochs": 0}}, ".method.latent_dim", "(got 0) (and 1 more)"),
    ],
)
def test_refusals(on_yacht, changes, place, message):
    with pytest.raises(InputError) as caught:
        on_yacht(changes)
    assert f"small.yaml: {YACHT}{place}: " in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_data_set(load, content):
    content["entries"]["searched"]["by_dataset"] = {"yatch": {}}
    with pytest.raises(InputError, match=r"searched\.by_dataset\.yatch: unknown dataset 'yatch': did you mean yacht"):
        load(content)


def test_a_distance_needs_the_reference_on_every_data_set():
    override = "entries.vifa-corrected.by_dataset.yacht.reference=null"
    estimated = "entries.vifa-corrected.by_dataset.yacht.from_reference=[]"
    hyper = "entries.vifa-corrected.by_dataset.yacht.hyper={prior_precision: 1, noise_precision: 1}"
    message = r"entries\.vifa-corrected\.by_dataset\.yacht\.reference is missing: distances need one"
    with pytest.raises(InputError, match=message):
        load_benchmark("uci-linear-posterior", overrides=[override, estimated, hyper])


@pytest.mark.parametrize(
    ("overrides", "read", "value"),
    [
        (["search.space.noise_precision.high=9"], lambda e: e.search.space["noise_precision"].high, 9),
        (["search.trials=6", "search.folds=2"], lambda e: (e.search.trials, e.search.folds), (6, 2)),
        (["method={optimizer: sgd}"], lambda e: e.method.build(), Vifa(latent_dim=2, optimizer="sgd")),
        (["model.name=linear"], lambda e: e.model.settings, {"bias": True}),
        (["training.epochs=1"], lambda e: e.training.epochs, 1),
    ],
)
def test_overrides(load, text, overrides, read, value):
    entry = load(text, overrides=[f"{YACHT}.{change}" for change in overrides]).entries["searched"]
    assert read(entry.on("yacht")) == value
    assert read(entry.on("diabetes")) != value


def test_a_profile_adds_to_the_changes(on_yacht, content):
    content["profiles"]["quick"]["entries"]["searched"]["by_dataset"] = {"yacht": {"search": {"trials": 3}}}
    yacht = on_yacht({"search": {"folds": 2}}, profile="quick").entries["searched"].on("yacht")
    assert (yacht.search.trials, yacht.search.folds, yacht.training.epochs) == (3, 2, 2)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (f"{YACHT}.search.space.noise.low=1", f"{YACHT}.search.space: unknown field 'noise' (did you mean noise_pre"),
        (f"{YACHT}.datasets=[yacht]", f"{YACHT}: unknown field 'datasets'"),
        ("entries.searched.by_dataset.boston={}", "entries.searched.by_dataset: unknown field 'boston'; allowed: dia"),
        (f"{YACHT}.search.space.noise_precision.low=2", f"{YACHT}.search.space.noise_precision: range reversed: low 2"),
    ],
)
def test_overrides_refused(load, text, override, message):
    with pytest.raises(InputError, match=f"--set {re.escape(override)}: {re.escape(message)}"):
        load(text, overrides=[override])
