"""Schedules, minibatches, precision, and when a fit is looked at."""

import pytest

from bdl.errors import InputError
from bdl.spec import Record, load_benchmark
from bdl.training.schedule import Constant, Decay, Schedule

TRAINING = "entries.fixed.training"


def test_defaults_and_everything_that_can_be_said(load, text):
    schedule = load(text).entries["fixed"].training.build()
    assert schedule == Schedule(5, 10, {"": Constant()}, "without_replacement", "drop", "float32")
    changes = [
        "method.gradients_per_update=1",
        "training.schedule={name: decay, power: 0.6}",
        "training.sampling=with_replacement",
        "training.dtype=float64",
        "training.incomplete=keep",
    ]
    benchmark = load(text, overrides=[f"entries.fixed.{change}" for change in changes])
    schedule = benchmark.entries["fixed"].training.build()
    assert schedule == Schedule(
        5, 10, {"": Decay(power=0.6)}, "with_replacement", "keep", "float64"
    )


def test_a_rate_for_each_group(load, content):
    groups = {"c": {"name": "decay"}, "F": {"name": "constant"}}
    rates = {"c": Decay(), "F": Constant()}
    content["entries"]["fixed"]["training"]["schedule"] = groups
    benchmark = load(content)
    assert benchmark.entries["fixed"].training.build().rates == rates
    assert type(benchmark).model_validate(benchmark.model_dump(mode="json")) == benchmark
    one = load(content, overrides=[f"{TRAINING}.schedule={{name: constant}}"])
    assert one.entries["fixed"].training.build().rates == {"": Constant()}, (
        "one takes the place of several"
    )
    content["entries"]["fixed"]["training"]["schedule"] = {"name": "decay"}
    content["entries"]["fixed"]["by_dataset"] = {"yacht": {"training": {"schedule": groups}}}
    assert load(content).entries["fixed"].on("yacht").training.build().rates == rates
    content["by_dataset"] = content["entries"]["fixed"].pop("by_dataset")
    with pytest.raises(
        InputError, match=r"by_dataset.yacht: no entry has 'training.schedule.c.name'"
    ):
        load(content)


EPOCHS, OBSERVATIONS = (
    Record(unit="epochs", every=2),
    Record(unit="observations", log=True, first=100),
)
EVERY_TWO = "record={unit: epochs, every: 2}"


@pytest.mark.parametrize(
    ("name", "override", "pair", "expected"),
    [
        ("uci-regression", "record=null", ("yacht", "vifa-nn"), None),
        ("uci-regression", EVERY_TWO, ("yacht", "vifa-nn"), EPOCHS),
        (
            "uci-regression",
            f"entries.vifa-nn.by_dataset.yacht.{EVERY_TWO}",
            ("yacht", "vifa-nn"),
            EPOCHS,
        ),
        (
            "uci-regression",
            f"entries.vifa-nn.by_dataset.yacht.{EVERY_TWO}",
            ("boston", "vifa-nn"),
            None,
        ),
        # a fit without a course is not looked at
        ("uci-linear-posterior", EVERY_TWO, ("yacht", "fa-optimum"), None),
        # streams are looked at in powers of ten unless told otherwise
        ("online-fa", "record=null", ("fa_100_10", "ppca"), OBSERVATIONS),
        ("online-fa", EVERY_TWO, ("fa_100_10", "ppca"), OBSERVATIONS),
        (
            "online-fa",
            "record={unit: observations, every: 500}",
            ("fa_100_10", "ppca"),
            Record(unit="observations", every=500),
        ),
    ],
)
def test_when_a_fit_is_looked_at(name, override, pair, expected):
    assert load_benchmark(name, overrides=[override]).record_of(*pair) == expected


def test_an_entrys_own_record_comes_before_that_of_the_benchmark():
    overrides = [EVERY_TWO, "entries.vifa-nn.record={unit: updates, log: true, first: 5}"]
    benchmark = load_benchmark("uci-regression", overrides=overrides)
    assert benchmark.record_of("yacht", "vifa-nn") == Record(unit="updates", log=True, first=5)
    assert benchmark.record_of("yacht", "vifa-lr") == EPOCHS


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        ("uci-regression", "record={every: 3}", "record.unit: is missing"),
        (
            "uci-regression",
            "record={unit: days, every: 3}",
            "record.unit: Input should be 'epochs', 'updates' or 'obs",
        ),
        ("uci-regression", "record={unit: epochs}", "record: give either every, or log: true"),
        (
            "uci-regression",
            "record={unit: epochs, every: 2, log: true}",
            "record: give either every, or log: true",
        ),
        (
            "uci-regression",
            "record={unit: epochs, every: 0}",
            "record.every: Input should be greater than or equal",
        ),
        (
            "uci-regression",
            "record={unit: epochs, every: 2, first: 4}",
            "record: first: evaluations every so often",
        ),
        (
            "uci-regression",
            "entries.vifa-nn.record={unit: observations, every: 2}",
            "entries.vifa-nn: record.unit: method 'vifa' counts epochs or updates, not observations",
        ),
        (
            "online-fa",
            "entries.ppca.record={unit: epochs, every: 2}",
            "entries.ppca: record.unit: method 'batch-fa' counts observations, not epochs",
        ),
        (
            "uci-linear-posterior",
            "entries.fa-optimum.record={unit: epochs, every: 2}",
            "entries.fa-optimum: method 'fa-optimum' has no course to look at: remove record",
        ),
    ],
)
def test_record_refused(name, override, message):
    with pytest.raises(InputError) as caught:
        load_benchmark(name, overrides=[override])
    assert f"--set {override}: {message}" in str(caught.value)
    assert "\n" not in str(caught.value)
