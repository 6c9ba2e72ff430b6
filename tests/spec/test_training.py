"""Schedules, minibatches, precision, and when a fit is looked at."""

import pytest

from bdl.errors import InputError
from bdl.spec import Record, load_benchmark
from bdl.training.schedule import Constant, Decay, Schedule

TRAINING = "entries.fixed.training"


def test_defaults_are_the_training_that_there_always_was(load, text):
    schedule = load(text).entries["fixed"].training.build()
    assert schedule == Schedule(5, 10, {"": Constant()}, "without_replacement", "drop", "float32")


def test_everything_can_be_said(load, text):
    changes = [
        "schedule={name: decay, power: 0.6}",
        "sampling=with_replacement",
        "dtype=float64",
    ]
    single = "entries.fixed.method.gradients_per_update=1"
    overrides = [single, *(f"{TRAINING}.{change}" for change in changes), f"{TRAINING}.incomplete=keep"]
    schedule = load(text, overrides=overrides).entries["fixed"].training.build()
    assert schedule == Schedule(5, 10, {"": Decay(power=0.6)}, "with_replacement", "keep", "float64")


def test_a_rate_for_each_group(load, content):
    groups = {"c": {"name": "decay"}, "F": {"name": "constant"}}
    content["entries"]["fixed"]["training"]["schedule"] = groups
    benchmark = load(content)
    assert benchmark.entries["fixed"].training.build().rates == {"c": Decay(), "F": Constant()}
    assert type(benchmark).model_validate(benchmark.model_dump(mode="json")) == benchmark
    one = load(content, overrides=[f"{TRAINING}.schedule={{name: constant}}"])
    assert one.entries["fixed"].training.build().rates == {"": Constant()}, "one takes the place of several"
    content["entries"]["fixed"]["training"]["schedule"] = {"name": "decay"}
    content["by_dataset"] = {"yacht": {"training": {"schedule": groups}}}
    with pytest.raises(InputError, match=r"by_dataset.yacht: no entry has 'training.schedule.c.name'"):
        load(content)
    del content["by_dataset"]
    content["entries"]["fixed"]["by_dataset"] = {"yacht": {"training": {"schedule": groups}}}
    assert load(content).entries["fixed"].on("yacht").training.build().rates == {"c": Decay(), "F": Constant()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("schedule={name: dekay}", f"{TRAINING}.schedule: unknown rate 'dekay': did you mean decay"),
        ("schedule=3", f"{TRAINING}.schedule: should be a mapping with a name, one of: constant, decay"),
        ("schedule={name: decay, powr: 3}", f"{TRAINING}.schedule: unknown setting of rate 'decay' 'powr'"),
        ("schedule={c: {name: dekay}}", f"{TRAINING}.schedule.c: unknown rate 'dekay': did you mean decay"),
        ("schedule={d: {name: decay}}", "entries.fixed: training: unknown group of parameters 'd'"),
        (
            "incomplete=keep",
            "entries.fixed: training: incomplete minibatches cannot be kept where an update takes 4 of them",
        ),
        ("sampling=both", f"{TRAINING}.sampling: Input should be 'without_replacement' or 'with_replacement'"),
        ("dtype=float16", f"{TRAINING}.dtype: Input should be 'float32' or 'float64' (got \"float16\")"),
    ],
)
def test_training_refused(load, text, change, message):
    with pytest.raises(InputError) as caught:
        load(text, overrides=[f"{TRAINING}.{change}"])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


EPOCHS = Record(unit="epochs", every=2)


def test_an_entry_is_looked_at_as_it_or_the_benchmark_says(load, text):
    overrides = ["record={unit: epochs, every: 2}", "entries.fixed.record={unit: updates, log: true, first: 5}"]
    benchmark = load(text, overrides=overrides)
    assert benchmark.record_of("yacht", "searched") == EPOCHS
    assert benchmark.record_of("yacht", "fixed") == Record(unit="updates", log=True, first=5)
    assert load(text).record_of("yacht", "searched") is None
    own = load(text, overrides=["entries.fixed.by_dataset.yacht.record={unit: epochs, every: 2}"])
    assert [own.record_of(dataset, "fixed") for dataset in ("diabetes", "yacht")] == [None, EPOCHS]


def test_streams_are_looked_at_in_powers_of_ten_unless_told_otherwise():
    default = Record(unit="observations", log=True, first=100)
    for override, expected in (
        ("record=null", default),
        ("record={unit: epochs, every: 2}", default),
        ("record={unit: observations, every: 500}", Record(unit="observations", every=500)),
        ("entries.ppca.record={unit: observations, every: 9}", Record(unit="observations", every=9)),
    ):
        assert load_benchmark("online-fa", overrides=[override]).record_of("fa_100_10", "ppca") == expected


def test_a_fit_without_a_course_is_not_looked_at():
    benchmark = load_benchmark("uci-linear-posterior", overrides=["record={unit: epochs, every: 2}"])
    assert benchmark.record_of("yacht", "vifa") == EPOCHS
    assert benchmark.record_of("yacht", "fa-optimum") is None


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        ("uci-regression", "record={every: 3}", "record.unit: is missing"),
        ("uci-regression", "record={unit: days, every: 3}", "record.unit: Input should be 'epochs', 'updates' or 'obs"),
        ("uci-regression", "record={unit: epochs}", "record: give either every, or log: true"),
        ("uci-regression", "record={unit: epochs, every: 2, log: true}", "record: give either every, or log: true"),
        ("uci-regression", "record={unit: epochs, every: 0}", "record.every: Input should be greater than or equal"),
        ("uci-regression", "record={unit: epochs, every: 2, first: 4}", "record: first: evaluations every so often"),
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
)  # fmt: skip
def test_record_refused(name, override, message):
    with pytest.raises(InputError) as caught:
        load_benchmark(name, overrides=[override])
    assert f"--set {override}: {message}" in str(caught.value)
    assert "\n" not in str(caught.value)
