"""Benchmarks that were checked before are read without an import of their components."""

import json

import pytest

from bdl.errors import InputError
from bdl.registry import Registry, shipped_benchmarks
from bdl.spec import Request, load_benchmark, load_request


@pytest.fixture
def record():
    """The record of a request, as values that a test may change."""
    return load_request("slang-uci", "quick").dump()


@pytest.fixture
def imports(monkeypatch):
    """Names of the components that are imported."""
    names = []
    get = Registry.get
    monkeypatch.setattr(Registry, "get", lambda self, name: names.append(name) or get(self, name))
    return names


def parse(record):
    return Request.parse(json.dumps(record), "rows.parquet").benchmark


def settings_of(record, entry="bbb"):
    return record["spec"]["entries"][entry]["method"]


def test_a_record_needs_no_component(record, imports):
    benchmark = parse(record)
    assert benchmark.points
    assert benchmark.record_of("yacht", "slang") is None
    assert not imports


def test_retired_settings_and_new_ones_are_as_by_default(record, imports):
    whole = parse(record)
    settings = settings_of(record)
    settings["optimizer"] = "adam"
    del settings["betas"]
    assert parse(record) == whole
    assert not imports


def test_a_whole_number_is_the_float_that_the_setting_is(record):
    settings_of(record)["initial_scale"] = 1
    assert repr(parse(record).entries["bbb"].method.settings["initial_scale"]) == "1.0"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param({"rank": 3}, "unknown setting of method 'bbb' 'rank'", id="another setting"),
        pytest.param({"optimizer": "sgd"}, "optimizer", id="another value of a retired one"),
        pytest.param({"name": "bbc"}, "unknown method 'bbc'", id="another method"),
    ],
)
def test_what_is_not_declared_is_checked(record, change, problem):
    settings_of(record).update(change)
    with pytest.raises(InputError, match="is not one of this version") as caught:
        parse(record)
    assert problem in str(caught.value)


def test_a_wrong_value_is_found_when_it_is_used(record):
    settings_of(record)["samples"] = 0
    method = parse(record).entries["bbb"].method
    with pytest.raises(InputError, match="method 'bbb': samples: "):
        method.build()


def test_points_of_a_sweep_are_read_the_same_way(imports):
    benchmark = load_benchmark("noisy-batch-size", checked=True)
    points = [benchmark.at(point) for point in benchmark.points]
    assert len(points) > 1
    assert not imports


def test_other_files_and_overrides_are_checked(tmp_path, imports):
    path = tmp_path / "own.yaml"
    path.write_text(shipped_benchmarks()["slang-uci"].read_text("utf-8"))
    load_benchmark(str(path), checked=True)
    assert "slang" in imports
    with pytest.raises(InputError, match="latent_dim"):
        load_request("slang-uci", overrides=["entries.vifa.method.latent_dim=0"], checked=True)


def test_a_profile_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="unknown profile 'huge'"):
        load_benchmark("slang-uci", "huge", checked=True)
