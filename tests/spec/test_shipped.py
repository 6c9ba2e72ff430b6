"""The benchmark files that come with the package, their schema and their description."""

import json
import re
from math import log
from pathlib import Path

import pytest
import yaml

from bdl.data import load_dataset, prepare_dataset
from bdl.reports.papers import paper_values
from bdl.spec import build_json_schema, list_benchmarks, list_profiles, load_benchmark

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "spec.md"


@pytest.mark.parametrize("profile", ["paper", "quick"])
@pytest.mark.parametrize("name", [name for name, _ in list_benchmarks()])
def test_loads_and_finds_its_paper_values(name, profile):
    benchmark = load_benchmark(name, profile)
    assert benchmark.profile == profile
    compared = {key[1] for key in paper_values(benchmark.papers)}
    assert (
        compared
        == {entry for paper in benchmark.papers for entry in paper.methods}
        <= set(benchmark.entries)
    )


@pytest.mark.parametrize("name", [name for name, _ in list_benchmarks()])
def test_what_was_checked_before_reads_the_same(name):
    """Faster, by what is declared of components rather than by their import; defaults stay defaults."""
    for profile in list_profiles(name):
        read, checked = load_benchmark(name, profile, checked=True), load_benchmark(name, profile)
        for defaults in (False, True):
            contents = [one.model_dump_json(exclude_defaults=defaults) for one in (read, checked)]
            assert contents[0] == contents[1]


@pytest.mark.parametrize("name", [name for name, _ in list_benchmarks()])
def test_claims_have_a_passage(name):
    """Paper, section or figure, and after a colon the content of the passage; or `ours`."""
    papers = "SLANG 2018|VIFA 2023|Brownlie 2022|Mata 2018"
    place = "(abstract, )?(section|appendix|captions? of|Figure|Table)s? [^:]+"
    for claim in load_benchmark(name).claims:
        assert claim.source == "ours" or re.fullmatch(
            rf"({papers}), {place}: .{{10,}}", claim.source
        ), claim.source


def test_uci_regression_follows_the_paper():
    """Settings of Tables 1 and 11 of the VIFA paper (2023)."""
    benchmark = load_benchmark("uci-regression")
    assert benchmark.datasets == ("energy", "boston", "concrete", "yacht")
    assert (benchmark.splits, benchmark.evaluation.samples) == (20, 100)
    rates = {"vifa-lr": (0.001, 0.01), "vifa-nn": (0.01, 0.02)}
    assert [*benchmark.papers[0].methods] == list(rates)
    for name in rates:
        entry = benchmark.entries[name]
        method, search = entry.method.build(), entry.search
        assert (method.latent_dim, method.gradients_per_update, method.max_grad_norm) == (1, 4, 10)
        assert (method.optimizer, method.lr_factors) == ("adam", (1, 1, 1))
        assert (entry.training.epochs, entry.training.batch_size) == (120, 10)
        assert (search.trials, search.folds, search.metric) == (30, 5, "nmll")
        assert entry.prior.settings == {"bias_precision": None}
        ranges = [(key, found.low, found.high, found.scale) for key, found in search.space.items()]
        assert ranges == [
            ("learning_rate", *rates[name], "log"),
            ("prior_precision", 0.01, 10, "log"),
            ("noise_precision", 0.01, 1, "log"),
        ]
    assert benchmark.entries["vifa-lr"].model.build().dim(8, 1) == 9
    assert benchmark.entries["vifa-nn"].model.build().dim(8, 1) == 501
    value = paper_values(benchmark.papers)["energy", "vifa-lr", "nmll", "mean"]
    assert (float(value.value), float(value.stderr)) == (2.57, 0.02)


def test_uci_gap_has_the_entries_of_uci_regression_and_all_gap_splits():
    """Nothing but the upper end of the noise precision differs.

    The three others search as often and as far.
    """
    benchmark, known = load_benchmark("uci-gap"), load_benchmark("uci-regression")
    inputs = {"boston": 13, "concrete": 8, "energy": 8, "wine": 11, "yacht": 6}
    assert benchmark.preparation.split == "gap"
    assert {str(name): len(benchmark.splits_of(name)) for name in benchmark.datasets} == inputs
    searched = [name for name, entry in known.entries.items() if entry.search]
    assert [*benchmark.entries] == [*searched, "bbb", "dropout", "ensemble"]
    for name, entry in benchmark.entries.items():
        own, search = entry.model_dump(), entry.search
        assert (search.trials, search.folds) == (30, 5)
        bounds = {key: (space.low, space.high) for key, space in search.space.items()}
        assert bounds["prior_precision"] == (0.01, 10)
        assert bounds["noise_precision"] == (0.01, 10)
        assert name == "vifa-lr" or entry.model.build().hidden == (50,)
        if name in known.entries:
            other = known.entries[name].model_dump()
            other["search"]["space"]["noise_precision"]["high"] = 10
            rates = own["by_dataset"].pop("wine", None)  # which uci-regression does not have
            assert rates in (None, {"hyper": {"learning_rate": 0.005}})
            assert own == other


LOG_RANGES = {
    "boston": (-2.6, -2.2, -2, 2),
    "concrete": (-3.7, -2.7, -2, 2),
    "energy": (-0.3, 0.1, -4, 0),
    "kin8nm": (4.8, 5.3, -2, 2),
    "naval": (10.9, 11.4, -4, 0),
    "power": (-3.1, -2.5, -2, 2),
    "wine": (0.8, 1.1, 0, 4),
    "yacht": (-1.6, -0.6, -2, 2),
}
RATES = {"concrete": 0.005, "power": 0.005, "wine": 0.005, "yacht": 0.08}
LARGE = {"kin8nm", "naval", "power"}


@pytest.mark.parametrize("dataset", LOG_RANGES)
def test_slang_uci_follows_the_paper_and_its_code(dataset):
    """Natural logarithms of noise and prior precision, learning rates, batches, samples (SLANG paper, appendix F)."""
    benchmark = load_benchmark("slang-uci")
    assert (benchmark.splits, benchmark.evaluation.samples, set(benchmark.datasets)) == (
        20,
        20,
        set(LOG_RANGES),
    )
    for name in ("slang", "bbb", "vifa", "swag"):
        entry = benchmark.entries[name].on(dataset)
        assert (entry.training.epochs, entry.training.batch_size) == (
            120,
            100 if dataset in LARGE else 10,
        )
        if name in ("slang", "bbb"):
            bounds = []
            for key in ("noise_precision", "prior_precision"):
                bounds += [log(entry.search.space[key].low), log(entry.search.space[key].high)]
            assert bounds == pytest.approx(LOG_RANGES[dataset], abs=1e-4)
            assert entry.method.build().samples == (2 if dataset in LARGE else 4)
            assert entry.prior.settings == {"bias_precision": 1e-6}
            search = entry.search
            assert (search.trials, search.startup, search.folds, search.metric) == (
                30,
                5,
                5,
                "joint_nll",
            )
            assert (search.sampler, search.penalty) == ("bayesian", 5)
    assert benchmark.entries["slang"].on(dataset).hyper == {
        "learning_rate": RATES.get(dataset, 0.01)
    }
    assert benchmark.entries["bbb"].on(dataset).hyper == {
        "learning_rate": 0.02 if dataset == "yacht" else RATES.get(dataset, 0.01)
    }


def test_each_printed_value_is_held_against_the_quantity_that_it_is():
    values = paper_values(load_benchmark("slang-uci").papers)
    assert values["boston", "slang", "joint_nll", "mean"].value.text == "2.58"
    assert values["kin8nm", "bbb", "joint_nll", "mean"].value.text == "-1.07"
    assert values["boston", "dropout", "nmll", "mean"].value.text == "2.46"
    assert len(values) == 8 * 3 * 2
    assert len(paper_values(load_benchmark("slang-online-eig-uci").papers)) == 8 * 3 * 2
    values = paper_values(load_benchmark("uci-regression").papers)
    assert (
        sum("slang" in entry for _, entry, *_ in values) == 2 * (4 * 5) + 2
    )  # the last are its worst on energy
    assert float(values["energy", "slang-nn-published", "joint_nll", "max"].value) == 4.04e8
    assert float(values["energy", "slang-nn-published", "joint_nll", "mean"].value) == 2.13e7
    values = paper_values(load_benchmark("online-fa").papers)
    assert len(values) == 36
    assert values["fa_1000_100", "online-em", "scaled_w2", "mean"].value.text == "0.0049"


def test_quick_and_check_need_no_download():
    quick, check = (load_benchmark("uci-regression", name) for name in ("quick", "check"))
    assert (quick.datasets, check.datasets) == (("yacht",), ("diabetes",))
    assert load_dataset("yacht").split(0).test.size
    assert check.entries.keys() == load_benchmark("uci-regression").entries.keys()


def test_quick_is_a_part_of_the_protocol():
    quick, paper = (load_benchmark("uci-regression", name) for name in ("quick", "paper"))
    assert list(quick.select().entries) == ["vifa-lr", "vifa-nn"]
    for entry in ("vifa-lr", "vifa-nn"):
        assert quick.fit_part("yacht", entry) == paper.fit_part("yacht", entry)
        assert quick.score_part("yacht", entry) == paper.score_part("yacht", entry)


def test_json_schema():
    schema = build_json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert set(re.findall(r'"\$ref": "#/\$defs/(\w+)"', json.dumps(schema))) == set(
        schema["$defs"]
    )
    fields, entry = schema["properties"], schema["$defs"]["Entry"]["properties"]
    assert "profile" not in fields
    assert set(
        yaml.safe_load((ROOT / "benchmarks" / "uci-regression.yaml").read_text("utf-8"))
    ) <= set(fields)
    vifa, *_, other = schema["$defs"]["MethodComponent"]["anyOf"]
    assert vifa["properties"]["name"] == {"const": "vifa"}
    assert vifa["properties"]["latent_dim"]["minimum"] == 1
    assert vifa["additionalProperties"] is False
    assert re.search(other["properties"]["name"]["pattern"], "own.py:Own")
    name, *components, other = fields["datasets"]["items"]["anyOf"]
    stream = next(found for found in components if found["properties"]["name"]["const"] == "fa")
    assert {"diabetes", "fa"} <= set(name["enum"])
    assert set(stream["required"]) == {"name", "dim", "top"}
    assert "label" in stream["properties"]
    assert re.search(other["pattern"], "own.py:Own")
    steering = schema["$defs"]["Search"]["properties"]["metric"]["examples"]
    assert {"nmll", "joint_nll", "rmse"} <= set(steering)
    assert not {"runtime", "scaled_w2"} & set(steering)
    gaussian = schema["$defs"]["PriorComponent"]["anyOf"][0]
    assert (gaussian["required"], gaussian["properties"]["bias_precision"]["default"]) == (
        [],
        None,
    )
    one, groups = schema["$defs"]["Training"]["properties"]["schedule"]["anyOf"]
    assert groups["additionalProperties"] == one == {"$ref": "#/$defs/RateComponent"}
    changes = fields["profiles"]["additionalProperties"]["propertyNames"]["enum"]
    assert set(changes) == set(fields) - {"profiles"}
    by_dataset = entry["by_dataset"]["additionalProperties"]
    assert set(by_dataset["propertyNames"]["enum"]) == set(entry) - {
        "by_dataset",
        "datasets",
        "evaluation",
    }
    assert (
        fields["by_dataset"]["additionalProperties"]["propertyNames"]
        == by_dataset["propertyNames"]
    )
    assert "yacht" in entry["by_dataset"]["propertyNames"]["examples"]


def test_every_field_is_described():
    schema, text = build_json_schema(), DOCS.read_text("utf-8")
    fields = {
        name for part in (schema, *schema["$defs"].values()) for name in part.get("properties", {})
    }
    assert len(fields) > 30
    named = {name for name in fields if f"`{name}`" in text or f"{name}: " in text}
    assert fields - named == set()


def test_example_of_the_description_loads(load):
    (example,) = re.findall(r"```yaml\n(name: .*?)```", DOCS.read_text("utf-8"), flags=re.DOTALL)
    assert load(example, "quick").splits == 2


def test_swag_is_searched_as_vifa_is():
    """Only the methods differ, and the ranges of their learning rates."""
    swag, vifa = (
        load_benchmark("uci-regression").entries[name].dump() for name in ("swag-nn", "vifa-nn")
    )
    ours, theirs = swag["search"].pop("space"), vifa["search"].pop("space")
    assert swag | {"method": vifa["method"]} == vifa
    assert list(ours) == list(theirs)
    assert ours | {"learning_rate": theirs["learning_rate"]} == theirs


@pytest.mark.parametrize("estimator", ["em", "sga", "px-em"])
@pytest.mark.parametrize("profile", ["paper", "quick"])
def test_online_fa_learns_from_the_sgd_of_swag(estimator, profile):
    """Nothing but the method differs, and of the method not the descent."""
    entries = load_benchmark("uci-regression", profile).entries
    swag, other = entries["swag-nn"], entries[f"online-fa-{estimator}-nn"]
    assert other.dump() | {"method": {}} == swag.dump() | {"method": {}}
    method, descent = other.method.build(), swag.method.build()
    assert (method.estimator, method.latent_dim) == (estimator, 10)
    assert (method.warmup_epochs, method.initial_scale) == (
        descent.warmup_epochs,
        descent.initial_scale,
    )


@pytest.mark.data
def test_logistic_posterior_follows_the_paper():
    """Tables 8 and 9 of the VIFA paper (2023), with minibatches that are whole."""
    benchmark = load_benchmark("logistic-posterior")
    settings = {
        "usps_3v5": (767, 256, 25, 10_000),
        "a1a": (1605, 123, 2.8072, 30_000),
        "australian": (345, 14, 1e-5, 30_000),
        "breast_cancer": (341, 10, 1, 23_000),
    }
    assert benchmark.datasets == tuple(settings)
    for dataset, (rows, dim, precision, epochs) in settings.items():
        entry, preparation = benchmark.entries["vifa"].on(dataset), benchmark.preparation
        data = prepare_dataset(
            load_dataset(dataset),
            preparation.split,
            preparation.standardise,
            preparation.rows_of(dataset),
        )
        method = entry.method.build()
        assert (len(data.split(0).train), entry.model.build().dim(data.d, 1)) == (rows, dim)
        assert entry.hyper == {"learning_rate": 0.001, "prior_precision": precision}
        assert (method.latent_dim, method.gradients_per_update, method.max_grad_norm) == (
            5,
            10,
            10,
        )
        assert (method.optimizer, entry.training.batch_size) == ("sgd", 100)
        kept_last = epochs * -(-rows // 100) // 10
        assert abs(entry.training.build().updates(rows, method.batches_per_step) - kept_last) <= 1


@pytest.mark.parametrize("name", ["posterior-methods", "posterior-methods-weights"])
@pytest.mark.parametrize("dataset", ["australian", "breast_cancer", "a1a", "usps_3v5"])
def test_other_methods_have_the_references_of_logistic_posterior(name, dataset):
    """Same rows, inputs, model, prior and sampler: no reference is sampled twice."""
    known, ours = load_benchmark("logistic-posterior"), load_benchmark(name)
    assert ours.preparation.dump_on(dataset) == known.preparation.dump_on(dataset)
    theirs = known.entries["vifa"].on(dataset)
    for entry in ours.entries.values():
        settings = entry.on(dataset)
        for field in ("model", "likelihood", "prior", "reference"):
            assert getattr(settings, field) == getattr(theirs, field)
        assert settings.hyper["prior_precision"] == theirs.hyper["prior_precision"]
