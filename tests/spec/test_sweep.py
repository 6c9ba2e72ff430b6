"""A sweep: every combination of values of settings of entries, data sets and the benchmark."""

import json
import pickle
import re

import pytest

from bdl.errors import InputError
from bdl.spec import SweepPoint, load_benchmark


@pytest.fixture
def swept(load, content):
    """Load with a sweep."""

    def change(sweep, **kwargs):
        content["sweep"] = sweep
        return load(content, **kwargs)

    return change


def test_a_point():
    point = SweepPoint({"model.hidden": [50], "evaluation.samples": 3})
    assert dict(point) == {"model.hidden": [50], "evaluation.samples": 3}
    assert list(point) == ["model.hidden", "evaluation.samples"], "in the order of the axes"
    assert point.text == '{"evaluation.samples":3,"model.hidden":[50]}'
    assert point.texts == {"model.hidden": "[50]", "evaluation.samples": "3"}
    for again in (SweepPoint(json.loads(point.text)), pickle.loads(pickle.dumps(point))):
        assert (again, hash(again), again.text) == (point, hash(point), point.text)
    assert point != SweepPoint({"model.hidden": [50]})
    point["model.hidden"].append(9)
    assert point["model.hidden"] == [50], "it cannot be changed"


def test_no_sweep_has_one_empty_point(load, text):
    benchmark = load(text)
    assert (benchmark.axes, benchmark.points, benchmark.points[0].text) == (
        (),
        (SweepPoint(),),
        "{}",
    )
    assert benchmark.at(SweepPoint()) is benchmark
    assert benchmark.cells == tuple((*pair, SweepPoint()) for pair in benchmark.pairs)


def test_points_are_all_combinations_the_last_axis_fastest_and_cells_are_in_table_order(swept):
    benchmark = swept({"model.hidden": [[1], [2]], "training.epochs": [3, 4, 5]})
    assert benchmark.axes == ("model.hidden", "training.epochs")
    expected = [([width], epochs) for width in (1, 2) for epochs in (3, 4, 5)]
    assert [tuple(point.values()) for point in benchmark.points] == expected
    assert benchmark.cells == tuple(
        (dataset, entry, point)
        for dataset in ("diabetes", "yacht")
        for point in benchmark.points
        for entry in ("searched", "fixed")
    )


def test_a_value_is_laid_over_the_entries_that_have_it(swept):
    benchmark = swept({"model.hidden": [[3], [4, 5]]})
    for point in benchmark.points:
        at = benchmark.at(point)
        assert at is benchmark.at(point), "checked once"
        assert list(at.entries["searched"].model.build().hidden) == point["model.hidden"]
        assert at.entries["fixed"] == benchmark.entries["fixed"]
        assert (at.axes, at.pairs) == ((), benchmark.pairs)


@pytest.mark.parametrize(
    ("path", "values", "read"),
    [
        ("training.batch_size", [5, 6], lambda b: b.entries["fixed"].training.batch_size),
        ("method.latent_dim", [1, 2], lambda b: b.entries["searched"].method.build().latent_dim),
        ("hyper.learning_rate", [0.1, 0.2], lambda b: b.entries["fixed"].hyper["learning_rate"]),
        (
            "search.space.learning_rate.high",
            [1, 2],
            lambda b: b.entries["searched"].search.space["learning_rate"].high,
        ),
        (
            "prior.bias_precision",
            [None, 2],
            lambda b: b.entries["fixed"].prior.build().bias_precision,
        ),
        (
            "model",
            [{"name": "linear", "bias": bias} for bias in (False, True)],
            lambda b: b.entries["fixed"].model.model_dump(),
        ),
        (
            "training.schedule",
            [{"name": "constant"}, {"name": "decay", "power": 1}],
            lambda b: b.entries["fixed"].training.schedule.model_dump(),
        ),
        ("preparation.rows", [100, 200], lambda b: b.preparation.rows_of("yacht")),
        ("preparation.split", ["first", "half"], lambda b: b.preparation.split),
        ("evaluation.samples", [5, 6], lambda b: b.evaluation_of("fixed").samples),
    ],
)
def test_every_path_of_a_setting_can_be_swept(swept, content, path, values, read):
    """Also where an entry has an evaluation of its own."""
    content["entries"]["fixed"]["evaluation"] = {"samples": 7}
    benchmark = swept({path: values})
    assert [read(benchmark.at(point)) for point in benchmark.points] == values


def test_settings_of_data_sets_are_swept_and_keep_their_labels():
    benchmark = load_benchmark("online-fa", "quick", ["sweep.dataset.top=[5, 50]"])
    tops = [benchmark.at(point).datasets[0].build().top for point in benchmark.points]
    assert tops == [5, 50]
    assert {str(benchmark.at(point).datasets[0]) for point in benchmark.points} == {"fa_100_10"}
    parts = [
        benchmark.at(point).fit_part("fa_100_10", "ppca")["dataset"] for point in benchmark.points
    ]
    assert [settings["top"] for _, _, settings in parts] == tops
    with pytest.raises(
        InputError,
        match=r"sweep: dataset: unknown field 'tops' .did you mean top.*allowed: dim, len",
    ):
        load_benchmark("online-fa", overrides=["sweep.dataset.tops=[5]"])


def test_a_sweep_comes_after_what_data_sets_say(swept, content):
    """Other changes of theirs stay."""
    content["by_dataset"] = {"yacht": {"training": {"batch_size": 7, "epochs": 8}}}
    content["entries"]["fixed"]["by_dataset"] = {"yacht": {"training": {"batch_size": 9}}}
    benchmark = swept({"training.batch_size": [1, 2]})
    assert benchmark.entries["fixed"].on("yacht").training.batch_size == 9
    for point in benchmark.points:
        for entry in benchmark.at(point).entries.values():
            found = [entry.on(dataset).training for dataset in ("diabetes", "yacht")]
            assert [training.batch_size for training in found] == [
                point["training.batch_size"]
            ] * 2
            assert [training.epochs for training in found] == [5, 8]


def test_a_part_of_a_benchmark_and_a_copy_have_its_points(swept):
    benchmark = swept({"model.hidden": [[3], [4]]})
    point = benchmark.points[1]
    assert benchmark.at(point).datasets == ("diabetes", "yacht")
    part = benchmark.select(["yacht"], ["fixed"])
    assert part.points == benchmark.points
    assert (part.at(point).datasets, list(part.at(point).entries)) == (("yacht",), ["fixed"])
    assert pickle.loads(pickle.dumps(benchmark)).at(point).entries[
        "searched"
    ].model.build().hidden == (4,)
    assert type(benchmark).model_validate(benchmark.model_dump(mode="json")) == benchmark


@pytest.mark.parametrize(
    ("overrides", "axes"),
    [
        (["sweep.training.epochs=[1, 2]"], ("training.epochs",)),
        (
            ["sweep={training.epochs: [1], method.latent_dim: [1]}"],
            ("training.epochs", "method.latent_dim"),
        ),
        (["sweep={}"], ()),
        (
            ["sweep.training.epochs=[1, 2]", "sweep.method.latent_dim=[1]"],
            ("training.epochs", "method.latent_dim"),
        ),
        (
            ["sweep={training.epochs: [1]}", "sweep.method.latent_dim=[1]"],
            ("training.epochs", "method.latent_dim"),
        ),
    ],
)
def test_a_sweep_is_set_by_its_path_and_replaced_as_a_whole(swept, overrides, axes):
    assert swept({"model.hidden": [[3], [4]]}, overrides=overrides).axes == axes
    with pytest.raises(
        InputError, match=re.escape("--set sweep.epochs=[1]: sweep: unknown field 'epochs'")
    ):
        swept({}, overrides=["sweep.epochs=[1]"])
