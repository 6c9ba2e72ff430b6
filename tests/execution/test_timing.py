"""Updates are timed of cells that nothing is known of, those with most work first, and of nothing else."""

import time
from contextlib import nullcontext

import pytest
import yaml

from bdl.archive.frames import empty
from bdl.execution import rehearsal
from bdl.execution.estimate import left_of
from bdl.execution.rehearsal import time_updates
from bdl.plan.planning import cells_of
from bdl.spec import load_benchmark

HYPER = {"prior_precision": 1, "noise_precision": 0.001}
LINEAR = {"model": {"name": "linear"}, "likelihood": {"name": "gaussian"}}
TRAINED = LINEAR | {"training": {"epochs": 3, "batch_size": 10}, "hyper": HYPER | {"learning_rate": 0.01}}
CONTENT = {
    "name": "small",
    "title": "Small",
    "datasets": ["diabetes"],
    "splits": 5,
    "entries": {
        "short": TRAINED | {"method": {"name": "vifa"}},
        "long": TRAINED | {"method": {"name": "bbb"}, "training": {"epochs": 300, "batch_size": 10}},
        "again": TRAINED | {"method": {"name": "vifa"}, "hyper": HYPER | {"learning_rate": 0.02}},
        "direct": LINEAR | {"method": {"name": "conjugate"}, "hyper": HYPER},
    },
    "metrics": ["nmll"],
}


@pytest.fixture
def left(tmp_path):
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(CONTENT))
    with empty() as store:
        return [left_of(cell, store) for cell in cells_of(load_benchmark(str(tmp_path / "small.yaml")))]


def timed(left, known=(), seconds=60.0):
    return {one.cell[1]: one for one in time_updates(left, known, seconds)}


def test_equal_updates_are_timed_once_and_a_method_without_updates_is_not(left):
    start = time.perf_counter()
    found = timed(left)
    passed = time.perf_counter() - start
    assert set(found) == {"short", "long", "again"}
    assert found["short"].seconds == found["again"].seconds
    assert all(one.updates == 1 and 0 < one.width * one.seconds < passed for one in found.values())


def test_most_work_comes_first_and_none_is_begun_too_late(left):
    assert set(timed(left, seconds=0)) == {"long"}


def test_cells_with_earlier_fits_are_not_timed(left):
    known = timed(left)["long"]
    assert set(timed(left, [known], 0)) == {"short", "again"}
    assert set(timed(left, [known._replace(device="cuda")], 0)) == {"long"}


def test_an_observation_of_a_stream_is_timed(tmp_path):
    stream = {"method": {"name": "online-em", "latent_dim": 2}}
    content = CONTENT | {"datasets": [{"name": "fa", "dim": 100, "top": 10}], "entries": {"em": stream}}
    content["metrics"] = ["rel_cov_dist"]
    (tmp_path / "stream.yaml").write_text(yaml.safe_dump(content))
    (cell,) = cells_of(load_benchmark(str(tmp_path / "stream.yaml")))
    with empty() as store:
        (one,) = time_updates([left_of(cell, store)], [], 60)
    assert (one.width, one.updates) == (1, 1)
    assert 0 < one.seconds < 0.1


def test_what_takes_long_is_timed_as_it_runs(left, monkeypatch):
    """Updates run from their trace after the first 200, in about a third of the time."""
    asked = []
    monkeypatch.setattr(rehearsal, "at_once", lambda: asked.append(True) or nullcontext())
    monkeypatch.setattr(rehearsal, "_LONG", float("inf"))
    assert set(timed(left)) == {"short", "long", "again"}
    assert asked == []
    monkeypatch.setattr(rehearsal, "_LONG", 0.0)
    assert set(timed(left)) == {"short", "long", "again"}
    assert len(asked) == 2
