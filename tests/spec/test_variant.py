"""What a command asks for: the protocol, or a variant under a name of its own."""

import json
import shlex

import pytest

from bdl.errors import InputError
from bdl.spec import Variant, differences, list_benchmarks, list_profiles, load_benchmark, load_variant

EPOCHS = "entries.vifa-lr.training.epochs=2"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"spec": {}}', '{"spec": {"name": "x"}}'])
def test_what_is_no_variant_is_refused(text):
    with pytest.raises(InputError, match=r"trials\.parquet"):
        Variant.parse(text, "trials.parquet")


@pytest.mark.parametrize("part", [{"datasets": ["yacth"]}, {"entries": ["vifa"]}, {"splits": ""}, {"splits": "21"}])
def test_a_part_that_does_not_exist_is_refused(part):
    with pytest.raises(InputError):
        load_variant("uci-regression", **part)


@pytest.mark.parametrize("name", [name for name, _ in list_benchmarks()])
def test_every_benchmark_comes_back_from_what_is_stored_of_it(name):
    for profile in list_profiles(name):
        asked = load_variant(name, profile)
        back = Variant.parse(json.dumps(asked.dump()), "here")
        assert back.name == ""
        assert differences(asked.benchmark, back.benchmark) == {}
        assert back.benchmark.content_hash == asked.benchmark.content_hash


def test_what_narrows_or_changes_nothing_is_the_protocol():
    whole = load_benchmark("uci-regression")
    asked = load_variant(
        "uci-regression", "paper", ["seed=0"], list(whole.datasets)[::-1], list(whole.entries), f"0-{whole.splits - 1}"
    )
    assert (asked.name, asked.narrowed, dict(asked.changes)) == ("", False, {})


def test_the_order_and_the_spelling_of_options_do_not_matter():
    one = load_variant("uci-regression", "paper", [EPOCHS], ["yacht", "energy"], ["vifa-lr"], "2")
    same = load_variant(
        "uci-regression", "paper", ["entries.vifa-lr={training: {epochs: 2}}"], ["energy", "yacht"], ["vifa-lr"], "1,0"
    )
    other = load_variant("uci-regression", "paper", [EPOCHS], ["yacht"], ["vifa-lr"], "2")
    assert one.name == same.name != other.name
    assert one.name.startswith("energy_yacht_vifa-lr_splits-2_epochs-2-")


@pytest.mark.parametrize(
    ("overrides", "splits"),
    [
        ([EPOCHS, "datasets=[yacht, energy]"], "3"),
        (["splits=20", "entries.vifa-nn.method={name: swag}", "entries.vifa-nn.prior.bias_precision=1e-7"], "4-4"),
        (["splits=20", "sweep={training.epochs: [1, 2]}", "title='Null: a \"quoted\" # title'"], "0,3,5-7"),
        (["record={unit: epochs, every: 1}", "baseline=null"], None),
    ],
)
def test_the_options_that_are_told_ask_for_the_same(overrides, splits):
    asked = load_variant("uci-regression", "quick", overrides, [], ["vifa-nn"], splits)
    _, *words = shlex.split(asked.asked)
    given = {"--profile": [], "--method": [], "--splits": [], "--set": []}
    for option, value in zip(words[::2], words[1::2], strict=True):
        given[option].append(value)
    (profile,) = given["--profile"]
    again = load_variant(
        "uci-regression", profile, given["--set"], [], given["--method"], *(given["--splits"] or [None])
    )
    assert again.name == asked.name
    assert again.dump() == asked.dump()
