"""What is different on one data set for all entries that have it."""

import pytest

from bdl.errors import InputError
from bdl.spec import load_benchmark
from bdl.spec.values import applicable, without


@pytest.fixture
def on_yacht(load, content):
    """Load with changes on yacht for all entries, and of `searched` alone."""

    def change(changes, own=None, **kwargs):
        content["by_dataset"] = {"yacht": changes}
        if own is not None:
            content["entries"]["searched"]["by_dataset"] = {"yacht": own}
        benchmark = load(content, **kwargs)
        return benchmark, [entry.on("yacht") for entry in benchmark.entries.values()]

    return change


SETTINGS = {"model": {"name": "mlp", "hidden": [3]}, "search": None, "training": {"epochs": 3}}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"training": {"epochs": 4, "rows": 1}, "seed": 1}, {"training": {"epochs": 4}}),
        ({"model": {"hidden": [4]}}, {"model": {"hidden": [4]}}),
        ({"model": {"name": "mlp", "hidden": [4]}}, {"model": {"name": "mlp", "hidden": [4]}}),
        ({"model": {"name": "linear", "hidden": [4]}}, {}),
        ({"search": {"trials": 3}}, {}),
        ({"search": None, "training": None}, {"search": None, "training": None}),
        ({}, {}),
    ],
)
def test_the_part_that_exists(changes, expected):
    assert applicable(changes, SETTINGS) == expected


def test_leaving_out_what_lies_under_keys():
    tree = {"a": {"b": {"c": 1}, "d": 2}, "e": 3}
    assert without(tree, ["a", "b", "c"]) == {"a": {"d": 2}, "e": 3}
    assert without(tree, ["a"]) == {"e": 3}
    for keys in (["x"], ["a", "x"], ["e", "x"]):
        assert without(tree, keys) == tree


def test_only_entries_that_have_the_leaf_are_changed(on_yacht):
    space = {"noise_precision": {"low": 0.5}}
    changes = {"model": {"hidden": [7]}, "training": {"epochs": 9}, "search": {"space": space}}
    benchmark, (searched, fixed) = on_yacht(changes)
    assert searched.model.build().hidden == (7,)
    assert (searched.search.space["noise_precision"].low, searched.search.space["noise_precision"].high) == (0.5, 1)
    assert fixed.model == benchmark.entries["fixed"].model
    assert (searched.training.epochs, fixed.training.epochs) == (9, 9)
    assert all(entry.on("diabetes") is entry for entry in benchmark.entries.values())


def test_a_name_says_whom_it_concerns(on_yacht):
    _, (searched, fixed) = on_yacht({"likelihood": {"name": "bernoulli"}, "model": {"name": "linear", "bias": False}})
    assert searched.likelihood.name == "gaussian"
    assert fixed.model.settings == {"bias": False}


def test_an_entry_has_the_last_word(on_yacht):
    _, (searched, fixed) = on_yacht({"training": {"epochs": 9, "batch_size": 8}}, {"training": {"epochs": 2}})
    assert (searched.training.epochs, searched.training.batch_size) == (2, 8)
    assert fixed.training.epochs == 9


def test_together_they_are_checked(on_yacht):
    """The entry's own change is right beside that of all, and wrong without it."""
    shared = {"search": {"space": {"noise_precision": {"high": 9}}}}
    own = {"search": {"space": {"noise_precision": {"low": 3}}}}
    _, (searched, _) = on_yacht(shared, own)
    found = searched.search.space["noise_precision"]
    assert (found.low, found.high) == (3, 9)
    with pytest.raises(InputError, match=r"entries.searched.by_dataset.yacht.search.space.noise_precision: range rev"):
        on_yacht({}, own)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"hiden": [3]}}, "by_dataset.yacht: no entry has 'model.hiden': correct it, or use the by_dataset"),
        ({"model": {"name": "lin"}}, "by_dataset.yacht: no entry has 'model.name'"),
        ({"hyper": {"noise_precision": 3}}, "by_dataset.yacht: no entry has 'hyper.noise_precision'"),
        ({"datasets": ["yacht"]}, "by_dataset.yacht: no entry has 'datasets'"),
        ({"evaluation": {"samples": 3}}, "by_dataset.yacht: no entry has 'evaluation.samples'"),
        (3, "by_dataset.yacht: should be a mapping (got 3)"),
        ({"training": {"epochs": 0}}, "by_dataset.yacht.training.epochs: Input should be greater than or equal to 1"),
    ],
)
def test_refusals(on_yacht, changes, message):
    with pytest.raises(InputError) as caught:
        on_yacht(changes)
    assert f"small.yaml: {message}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_data_set(load, content):
    content["by_dataset"] = {"yatch": {"training": {"epochs": 3}}}
    with pytest.raises(InputError, match=r"by_dataset\.yatch: unknown dataset 'yatch': did you mean yacht"):
        load(content)


def test_profiles_and_overrides_add_to_the_changes(on_yacht, content):
    content["profiles"]["quick"]["by_dataset"] = {"yacht": {"training": {"batch_size": 4}}}
    overrides = ["by_dataset.yacht.model.hidden=[2]", "by_dataset.diabetes.training.epochs=1"]
    benchmark, (searched, fixed) = on_yacht({"training": {"epochs": 9}}, profile="quick", overrides=overrides)
    assert (searched.training.epochs, searched.training.batch_size, searched.model.build().hidden) == (9, 4, (2,))
    assert (fixed.training.epochs, fixed.training.batch_size) == (9, 4)
    assert benchmark.entries["fixed"].on("diabetes").training.epochs == 1
    with pytest.raises(InputError, match=r"by_dataset.yacht.training: unknown field 'epoch' \(did you mean epochs"):
        on_yacht({}, overrides=["by_dataset.yacht.training.epoch=1"])


def test_a_part_and_a_copy_keep_the_changes(on_yacht):
    benchmark, _ = on_yacht({"model": {"hidden": [7]}})
    assert benchmark.select(entries=["fixed"]).entries["fixed"].on("yacht").training.epochs == 5
    again = type(benchmark).model_validate(benchmark.model_dump(mode="json"))
    assert again.entries["searched"].on("yacht").model.build().hidden == (7,)


def test_slang_uci_says_its_ranges_once():
    benchmark = load_benchmark("slang-uci")
    for dataset, changes in benchmark.by_dataset.items():
        shared = changes["search"]["space"]["noise_precision"]
        for name in ("bbb", "slang", "vifa", "swag"):
            found = benchmark.entries[name].on(dataset).search.space["noise_precision"]
            assert (found.low, found.high) == (shared["low"], shared["high"])
        assert benchmark.entries["dropout"].on(dataset).training.batch_size == 32
