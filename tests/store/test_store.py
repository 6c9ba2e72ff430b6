"""The store: all rows of a group or none, each once, and back as they were."""

import sqlite3

import numpy as np
import pytest

from bdl.errors import InputError
from bdl.store import CurvePoint, FitResult, Row
from bdl.store.store import Store

CELL, OTHER = ("yacht", "vifa", "{}"), ("yacht", "other", "{}")
READING = CurvePoint("epochs", 1, "nmll", 2.0)


def make_row(
    split: int = 0, stage: str = "final", trial: int = 0, fold: int = 0, **changes: object
) -> Row:
    fields = {
        "dataset": "yacht",
        "entry": "vifa",
        "point": "{}",
        "status": "ok",
        "reason": None,
        "hyper": {"learning_rate": 0.1 + 0.2},
        "metrics": {"nmll": 1 / 3, "rmse": None},
        "seconds": 0.25,
        "details": {"updates": 7, "compiled": False, "device": "cpu"},
    } | changes
    return Row(stage=stage, split=split, trial=trial, fold=fold, **fields)


def append(store: Store, *rows: Row) -> None:
    store.append([FitResult(row) for row in rows])


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "new/folder/store.sqlite") as opened:
        yield opened


def test_rows_come_back_as_they_were_in_the_order_of_split_trial_and_fold(store):
    names = [
        (split, trial, fold) for split in (0, 2, 10) for trial in (0, 1, 11) for fold in range(2)
    ]
    rows = [
        make_row(split, "search", trial, fold, seconds=i / 7)
        for i, (split, trial, fold) in enumerate(names)
    ]
    failed = make_row(
        3, status="failed", reason="a 'quoted' reason\nof two lines", metrics={}, hyper={}
    )
    append(store, *rows[::-1])
    append(store, failed)
    store.record_request("one")
    store.record_request("another")
    with Store(store.path) as again:
        assert again.load_rows("search", CELL) == rows
        assert again.load_rows("final", CELL) == [failed]
        assert again.load_rows("final", OTHER) == []
        assert again.recorded_request == "another"


def test_readings_come_back_in_the_order_of_the_clock(store):
    early, late, lost = (
        CurvePoint("epochs", at, "nmll", value)
        for at, value in [(1, 2.0), (10, 1 / 3), (2, float("nan"))]
    )
    store.append([FitResult(make_row(0), (late, early, lost)), FitResult(make_row(1), (late,))])
    found = store.load_curve_points(CELL)
    assert [(split, reading.at) for split, reading in found] == [(0, 1), (0, 2), (0, 10), (1, 10)]
    assert found[2] == (0, late)
    assert np.isnan(found[1][1].value)


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param([FitResult(make_row(2, metrics={"nmll": object()}))], id="metric"),
        pytest.param([FitResult(make_row(2, status=None))], id="status"),
        pytest.param([FitResult(make_row(2, hyper=object()))], id="hyper"),
        pytest.param([FitResult(make_row(9, seconds=2.0))], id="second copy of a stored row"),
        pytest.param([FitResult(make_row(2)), FitResult(make_row(2))], id="twice in a group"),
        pytest.param([FitResult(make_row(2), (READING, READING))], id="reading twice"),
    ],
)
def test_a_group_with_a_bad_row_leaves_none(store, bad):
    append(store, make_row(9))
    with pytest.raises((TypeError, sqlite3.Error)):
        store.append([FitResult(make_row(0)), FitResult(make_row(1), (READING,)), *bad])
    assert store.load_rows("final", CELL) == [make_row(9)]
    assert store.load_curve_points(CELL) == []
    append(store, make_row(0))  # the store is usable afterwards
    assert [row.split for row in store.load_rows("final", CELL)] == [0, 9]


def test_a_posterior_that_cannot_be_written_leaves_no_row(store):
    """Rows are written after the posteriors that they name."""
    store.posteriors.write_text("in the way")
    with pytest.raises(InputError, match="choose another --results"):
        store.append([FitResult(make_row(0)), FitResult(make_row(1), (READING,), b"content")])
    assert store.load_rows("final", CELL) == store.load_curve_points(CELL) == []


@pytest.mark.parametrize(
    "other", [OTHER, ("yacht", "vifa", '{"model.hidden":[5]}'), ("energy", "vifa", "{}")]
)
def test_forgetting_removes_a_cell_and_nothing_else(store, other):
    for cell in (CELL, other):
        own = dict(zip(("dataset", "entry", "point"), cell, strict=True))
        store.claim(cell, f"print-{cell == CELL}")
        append(store, make_row(stage="search", **own))
        store.append([FitResult(make_row(**own), (READING,))])
    store.forget([CELL, ("yacht", "never seen", "{}")])
    assert (
        store.load_rows("final", CELL)
        == store.load_rows("search", CELL)
        == store.load_curve_points(CELL)
        == []
    )
    assert (store.find_fit_hash(CELL), store.find_fit_hash(other)) == (None, "print-False")
    assert (
        len(store.load_rows("final", other))
        == len(store.load_rows("search", other))
        == len(store.load_curve_points(other))
        == 1
    )
    assert store.load_rows("final", other)[0].metrics == make_row().metrics
    store.claim(CELL, "new")
    with pytest.raises(sqlite3.IntegrityError):
        store.claim(CELL, "second")
    store.append([FitResult(make_row(), (READING,))])
    assert store.find_fit_hash(CELL) == "new"


def test_removing_rows_leaves_the_others_of_their_cell(store):
    store.append([FitResult(make_row(split), (READING,)) for split in (0, 1, 2)])
    store.remove([make_row(0), make_row(2)])
    assert store.load_rows("final", CELL) == [make_row(1)]
    assert store.load_curve_points(CELL) == [(1, READING)]


def test_scores_are_written_anew_all_or_none_and_fits_stay(store):
    append(store, make_row(0, score_hashes={"nmll": "old", "rmse": "old"}), make_row(1))
    before = store._db.execute("SELECT * FROM fits").fetchall()
    with pytest.raises(TypeError):
        store.rescore(
            [make_row(0, metrics={"nmll": 9.0}), make_row(1, metrics={"nmll": object()})]
        )
    assert store.load_rows("final", CELL) == [make_row(0), make_row(1)]
    store.rescore(
        [
            make_row(
                0,
                metrics={"nmll": 2.5, "extra": float("inf")},
                score_hashes={"nmll": "new", "extra": "new"},
            )
        ]
    )
    first, second = store.load_rows("final", CELL)
    assert first.metrics == {"nmll": 2.5, "rmse": None, "extra": None}
    assert first.score_hashes == {"nmll": "new", "rmse": "old", "extra": "new"}
    assert second == make_row(1)
    assert store._db.execute("SELECT * FROM fits").fetchall() == before


def test_the_format_of_a_store_has_a_number_and_another_is_refused(store, tmp_path):
    """With another number the stores of all earlier versions would be refused."""
    with sqlite3.connect(store.path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
    with sqlite3.connect(tmp_path / "store.sqlite") as db:
        db.execute("CREATE TABLE trials (row TEXT)")
    with pytest.raises(InputError, match="another version of bdl-bench; move it away"):
        Store(tmp_path / "store.sqlite")


def test_a_file_in_the_way_is_told_and_left_alone(tmp_path):
    path = tmp_path / "store.sqlite"
    path.write_bytes(b"something else, and long enough to be no empty database" * 100)
    before = path.read_bytes()
    with pytest.raises(
        InputError, match=r"cannot use .*store\.sqlite as a store .*; move it away"
    ):
        Store(path)
    with pytest.raises(InputError, match="choose another --results"):
        Store(path / "yacht/store.sqlite")
    assert path.read_bytes() == before


def columns(store, stage, **how):
    """Put the parts together as rows; what a row lacks is left out."""
    for own in store.iterate_columns(stage, CELL, **how):
        for values in zip(*own.values(), strict=True):
            yield {name: value for name, value in zip(own, values, strict=True) if value == value}


def test_columns_are_the_rows(store, monkeypatch):
    """In parts, too, and where rows have different names."""
    refused = make_row(2, metrics={"nmll": 2.0, "rmse": None}, refusals={"rmse": "too few"})
    failed = make_row(
        1, status="failed", reason="diverged", metrics={}, hyper={}, details={"traceback": "long"}
    )
    rows = [make_row(0), failed, refused, make_row(3, metrics={"extra": 0.1 + 0.2})]
    append(store, *rows[::-1], make_row(0, "search", 1, 2))
    for size in (1, 3, 500):
        monkeypatch.setattr("bdl.store.store.ROWS_PER_FETCH", size)
        for found, row in zip(columns(store, "final"), rows, strict=True):
            own = {
                "split": row.split,
                "trial": 0,
                "fold": 0,
                "status": row.status,
                "reason": row.problem,
            }
            numbers = {name: value for name, value in row.metrics.items() if value is not None}
            hyper = {f"hyper_{name}": value for name, value in row.hyper.items()}
            assert found == own | {"seconds": 0.25} | hyper | numbers | row.details
    assert [(own["split"], own["trial"], own["fold"]) for own in columns(store, "search")] == [
        (0, 1, 2)
    ]
    problems = [(own["split"], own["reason"]) for own in columns(store, "final", problems=True)]
    assert problems == [(1, "diverged"), (2, "rmse: too few")]


def test_artefacts_are_those_of_the_rows(store):
    store.append(
        [
            FitResult(make_row(1), posterior=b"content"),
            FitResult(make_row(0, status="failed", reason="no")),
        ]
    )
    assert store.list_artefacts(CELL) == [
        (row.split, row.status, row.artefact) for row in store.load_rows("final", CELL)
    ]
    assert [bool(artefact) for *_, artefact in store.list_artefacts(CELL)] == [False, True]
