"""What a command asks for: the protocol, or a variant under a name of its own.

And which splits.
"""

import json
import shlex

import pytest
from tiny import TINY

from bdl.errors import InputError
from bdl.spec import (
    Request,
    find_differences,
    list_benchmarks,
    list_profiles,
    load_request,
    parse_splits,
)
from bdl.spec.request import format_ranges

EPOCHS = "entries.vifa-lr.training.epochs=2"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"spec": {}}', '{"spec": {"name": "x"}}'])
def test_what_is_no_variant_is_refused(text):
    with pytest.raises(InputError, match=r"rows\.parquet"):
        Request.parse(text, "rows.parquet")


def test_code_in_settings_is_named_by_who_loads_the_benchmark(tmp_path):
    """The factory of a network is imported when it trains, which the command `table` does not."""
    name = f"{tmp_path}/network.py:make"
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY.replace("name: linear", f"name: module, factory: '{name}'"), "utf-8")
    stored = json.dumps(load_request(str(path)).dump())
    assert Request.parse(stored, "rows.parquet").benchmark.name == "tiny"
    other = stored.replace("network.py:make", "other.py:make")
    with pytest.raises(InputError, match=r"rows\.parquet asks for code from outside the package"):
        Request.parse(other, "rows.parquet")


@pytest.mark.parametrize(("name", "title"), list_benchmarks())
def test_every_benchmark_comes_back_from_what_is_stored_of_it(name, title):
    for profile in list_profiles(name):
        asked = load_request(name, profile)
        back = Request.parse(json.dumps(asked.dump()), "here")
        assert (back.folder_name, back.benchmark.name) == ("", name)
        assert profile != "paper" or back.benchmark.title == title
        assert find_differences(asked.benchmark, back.benchmark) == {}
        assert back.benchmark.content_hash == asked.benchmark.content_hash


def test_what_narrows_or_changes_nothing_is_the_protocol():
    whole = load_request("uci-regression").benchmark
    splits = f"0-{whole.splits - 1}"
    asked = load_request(
        "uci-regression", "paper", ["seed=0"], [*whole.datasets][::-1], [*whole.entries], splits
    )
    assert (asked.folder_name, asked.is_narrowed, dict(asked.changes)) == ("", False, {})


def test_the_order_and_the_spelling_of_options_do_not_matter():
    one = load_request("uci-regression", "paper", [EPOCHS], ["yacht", "energy"], ["vifa-lr"], "2")
    spelt = "entries.vifa-lr={training: {epochs: 2}}"
    same = load_request(
        "uci-regression", "paper", [spelt], ["energy", "yacht"], ["vifa-lr"], "1,0"
    )
    other = load_request("uci-regression", "paper", [EPOCHS], ["yacht"], ["vifa-lr"], "2")
    assert one.folder_name == same.folder_name != other.folder_name
    assert one.folder_name.startswith("energy_yacht_vifa-lr_splits-2_epochs-2-")


@pytest.mark.parametrize(
    ("overrides", "splits"),
    [
        ([EPOCHS, "datasets=[yacht, energy]"], "3"),
        (
            [
                "splits=20",
                "entries.vifa-nn.method={name: swag}",
                "entries.vifa-nn.prior.bias_precision=1e-7",
            ],
            "4-4",
        ),
        (
            ["splits=20", "sweep={training.epochs: [1, 2]}", "title='Null: a \"quoted\" # title'"],
            "0,3,5-7",
        ),
        (["record={unit: epochs, every: 1}", "baseline=null"], None),
        # an item of a list, and a text that is no mapping
        (["metrics=[nmll, {name: coverage, level: 0.8}]", "title='one: two'"], None),
        (["datasets=[{name: yacht, label: boats}]", "title='three:'"], None),
    ],
)
def test_the_options_that_are_told_ask_for_the_same(overrides, splits):
    asked = load_request("uci-regression", "check", overrides, [], ["vifa-nn"], splits)
    _, *words = shlex.split(asked.command_arguments)
    given = {"--profile": [], "--method": [], "--splits": [None], "--set": []}
    for option, value in zip(words[::2], words[1::2], strict=True):
        given[option].append(value)
    (profile,), entries, overrides = given["--profile"], given["--method"], given["--set"]
    again = load_request("uci-regression", profile, overrides, [], entries, given["--splits"][-1])
    assert again.folder_name == asked.folder_name
    assert again.dump() == asked.dump()


@pytest.mark.parametrize(
    ("text", "splits"),
    [
        ("3", (0, 1, 2)),
        ("0,3,5-7", (0, 3, 5, 6, 7)),
        ("4-4", (4,)),
        ("5, 1 - 2, 1", (1, 2, 5)),
        ("19,0", (0, 19)),
    ],
)
def test_splits(text, splits):
    assert parse_splits(text, 20) == splits


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *(
            (text, "give a count such as 3")
            for text in ("", "a", "-1", "1,", "1-2-3", "1.5", "9" * 30)
        ),
        *((text, "no split at all") for text in ("0", "7-5")),
        *((text, "there are 20 splits, 0 to 19") for text in ("21", "1,20")),
    ],
)
def test_splits_refused(text, message):
    with pytest.raises(InputError, match=message):
        parse_splits(text, 20)


@pytest.mark.parametrize(
    ("splits", "text"), [([], ""), ([4], "4"), ([0, 1], "0-1"), ([7, 3, 0, 6, 5], "0, 3, 5-7")]
)
def test_listed(splits, text):
    assert format_ranges(splits) == text


@pytest.mark.parametrize("name", ["uci-gap", "csv"])
def test_a_recorded_spec_names_no_code_whatever_it_is_called(name):
    """Columns of tables may look like code; the name of the benchmark is none of theirs."""
    content = load_request("uci-gap").dump()
    content["spec"]["name"] = name
    content["spec"]["entries"]["bbb"]["method"] = {"name": "evil:Boom"}
    with pytest.raises(InputError, match="asks for code from outside"):
        Request.parse(json.dumps(content), "here")


def test_columns_with_colons_name_no_code():
    content = load_request("uci-gap").dump()
    content["spec"]["datasets"][0] = {
        "name": "csv", "path": "d.csv", "target": "y:usd", "label": "boston",
    }  # fmt: skip
    assert Request.parse(json.dumps(content), "here").benchmark.datasets[0].name == "csv"


def test_labels_with_dots_and_digits_are_no_items_of_lists():
    """Settings of `boats.2` are below a mapping, whose keys the path does not tell apart."""
    overrides = [
        "datasets=[{name: yacht, label: boats.2}]",
        'by_dataset={"boats.2": {training: {epochs: 3}}}',
    ]
    request = load_request("uci-regression", "check", overrides)
    assert any(path.startswith("by_dataset.boats.2") for path in request.changes)
    assert "boats.2" in request.command_arguments
