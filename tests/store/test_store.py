"""The store: all rows of a group or none, each once, and back as they were."""

import sqlite3

import numpy as np
import pytest

from bdl.errors import InputError
from bdl.store.store import Row, Store


def make_row(split: int = 0, stage: str = "final", trial: int = 0, fold: int = 0, **changes: object) -> Row:
    fields = {
        "dataset": "yacht",
        "entry": "vifa",
        "status": "ok",
        "reason": None,
        "hyper": {"learning_rate": 0.1 + 0.2},
        "metrics": {"nmll": 1 / 3, "rmse": None},
        "seconds": 0.25,
        "details": {"updates": 7, "compiled": False, "device": "cpu"},
    } | changes
    return Row(stage=stage, split=split, trial=trial, fold=fold, **fields)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "new/folder/store.sqlite") as opened:
        yield opened


def test_rows_come_back_as_they_were_in_the_order_of_split_trial_and_fold(store):
    names = [(split, trial, fold) for split in (0, 2, 10) for trial in (0, 1, 11) for fold in range(2)]
    rows = [make_row(split, "search", trial, fold, seconds=i / 7) for i, (split, trial, fold) in enumerate(names)]
    failed = make_row(3, status="failed", reason="a 'quoted' reason\nof two lines", metrics={}, hyper={})
    store.append(rows[::-1])
    store.append([failed])
    assert store.rows("search", "yacht", "vifa") == rows
    assert store.rows("final", "yacht", "vifa") == [failed]
    assert store.rows("final", "yacht", "other") == []


def test_rows_outlive_the_process(store):
    store.append([make_row()])
    with Store(store.path) as again:
        assert again.rows("final", "yacht", "vifa") == [make_row()]


def test_predictions_come_back_bit_by_bit(store):
    values = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    values[0, 0] = np.float32(1e-42)
    store.append([make_row(0, predictions=values), make_row(1)])
    back = store.predictions("yacht", "vifa", 0)
    assert back.dtype == np.float32
    np.testing.assert_array_equal(back, values)
    assert store.predictions("yacht", "vifa", 1) is None
    assert store.predictions("yacht", "vifa", 2) is None


@pytest.mark.parametrize(
    "bad", [{"metrics": {"nmll": object()}}, {"status": None}, {"hyper": object()}], ids=["metric", "status", "hyper"]
)
def test_a_group_with_a_bad_row_leaves_none(store, bad):
    store.append([make_row(9)])
    with pytest.raises((TypeError, sqlite3.Error)):
        store.append([make_row(0), make_row(1), make_row(2, **bad)])
    assert store.rows("final", "yacht", "vifa") == [make_row(9)]
    store.append([make_row(0)])  # the store is usable afterwards
    assert [row.split for row in store.rows("final", "yacht", "vifa")] == [0, 9]


def test_a_second_copy_of_a_row_is_refused_with_its_group(store):
    store.append([make_row(1, seconds=1.0)])
    with pytest.raises(sqlite3.IntegrityError):
        store.append([make_row(0), make_row(1, seconds=2.0)])
    assert store.rows("final", "yacht", "vifa") == [make_row(1, seconds=1.0)]
    with pytest.raises(sqlite3.IntegrityError):
        store.append([make_row(3), make_row(3)])
    assert len(store.rows("final", "yacht", "vifa")) == 1


def test_forgetting_removes_a_cell_and_nothing_else(store):
    for entry in ("vifa", "other"):
        store.claim("yacht", entry, f"print-{entry}")
        store.append([make_row(entry=entry), make_row(stage="search", entry=entry)])
    store.forget([("yacht", "vifa"), ("yacht", "never seen")])
    assert store.rows("final", "yacht", "vifa") == store.rows("search", "yacht", "vifa") == []
    assert store.fingerprint("yacht", "vifa") is None
    assert store.fingerprint("yacht", "other") == "print-other"
    assert len(store.rows("final", "yacht", "other")) == len(store.rows("search", "yacht", "other")) == 1
    store.claim("yacht", "vifa", "new")
    store.append([make_row()])
    assert store.fingerprint("yacht", "vifa") == "new"


def test_a_cell_is_claimed_once(store):
    store.claim("yacht", "vifa", "first")
    with pytest.raises(sqlite3.IntegrityError):
        store.claim("yacht", "vifa", "second")
    assert store.fingerprint("yacht", "vifa") == "first"


def test_a_file_that_is_no_store_is_left_alone(tmp_path):
    path = tmp_path / "store.sqlite"
    path.write_bytes(b"something else, and long enough to be no empty database" * 100)
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"cannot use .*store\.sqlite as a store .*; move it away"):
        Store(path)
    assert path.read_bytes() == before


def test_a_file_in_the_way_of_the_folder_is_told(tmp_path):
    (tmp_path / "results").write_text("a file")
    with pytest.raises(InputError, match="choose another --results"):
        Store(tmp_path / "results/yacht/store.sqlite")


def test_an_update_writes_the_metrics_and_leaves_the_rest(store):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    store.append([make_row(0, predictions=values), make_row(1)])
    store.update([make_row(0, metrics={"nmll": 2.5, "rmse": 1.5})])
    assert store.rows("final", "yacht", "vifa") == [make_row(0, metrics={"nmll": 2.5, "rmse": 1.5}), make_row(1)]
    np.testing.assert_array_equal(store.predictions("yacht", "vifa", 0), values)


def test_an_update_of_several_rows_is_all_or_none(store):
    store.append([make_row(0), make_row(1)])
    with pytest.raises(TypeError):
        store.update([make_row(0, metrics={}), make_row(1, metrics={"nmll": object()})])
    assert store.rows("final", "yacht", "vifa") == [make_row(0), make_row(1)]
