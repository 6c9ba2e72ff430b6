"""A run folder: all rows of a group or none, each once, and back as they were."""

import multiprocessing
import os
import random
import time
from io import BytesIO
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from bdl.errors import InputError
from bdl.records.posterior_files import PosteriorFiles
from bdl.records.row import CurvePoint, FitResult, Row
from bdl.records.run_folder import RunFolder, StoredTwice
from bdl.records.tables import tabulate_rows

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


def append(store: RunFolder, *rows: Row) -> None:
    store.append([FitResult(row) for row in rows])


def segments(store: RunFolder) -> list[Path]:
    return sorted((store.path / "rows").glob("*.parquet"))


def flip_seconds(content: bytes) -> bytes:
    """Flip a bit of a page, which has a checksum."""
    column = pq.ParquetFile(BytesIO(content)).metadata.row_group(0).column(14)
    assert column.path_in_schema == "seconds"
    last = column.data_page_offset + column.total_compressed_size - 2
    return content[:last] + bytes([content[last] ^ 16]) + content[last + 1 :]


@pytest.fixture
def store(tmp_path):
    with RunFolder(tmp_path / "new/folder") as opened:
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
    with RunFolder(store.path) as again:
        assert again.load_rows("search", CELL) == rows
        assert again.load_rows("final", CELL) == [failed]
        assert again.load_rows("final", OTHER) == []
        assert again.request_text == "another"


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
    with pytest.raises((TypeError, ValueError)):
        store.append([FitResult(make_row(0)), FitResult(make_row(1), (READING,)), *bad])
    assert store.load_rows("final", CELL) == [make_row(9)]
    assert store.load_curve_points(CELL) == []
    append(store, make_row(0))  # the store is usable afterwards
    assert [row.split for row in store.load_rows("final", CELL)] == [0, 9]


def test_a_posterior_that_cannot_be_written_leaves_no_row(store):
    """Rows are written after the posteriors that they name."""
    store.path.mkdir(parents=True)
    store.posteriors.folder.write_text("in the way")
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
    with pytest.raises(StoredTwice):
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
    with pytest.raises(TypeError):
        store.replace_scores(
            [make_row(0, metrics={"nmll": 9.0}), make_row(1, metrics={"nmll": object()})]
        )
    assert store.load_rows("final", CELL) == [make_row(0), make_row(1)]
    store.replace_scores(
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
    assert RunFolder(store.path).load_rows("final", CELL) == [first, second]


def test_the_format_has_a_number_and_another_is_refused(store):
    """With another number the rows of all earlier versions would be refused."""
    append(store, make_row(0))
    (path,) = segments(store)
    table = pq.read_table(path)
    assert table.schema.metadata[b"bdl-bench rows"] == b"3"
    pq.write_table(table.replace_schema_metadata({b"bdl-bench rows": b"4"}), path)
    with pytest.raises(InputError, match="another version of bdl-bench; move it away"):
        RunFolder(store.path).load_rows("final", CELL)


def test_a_file_in_the_way_is_told_and_left_alone(tmp_path):
    path = tmp_path / "store"
    path.write_bytes(b"something else")
    with pytest.raises(InputError, match="choose another --results"):
        append(RunFolder(path / "yacht"), make_row(0))
    with pytest.raises(InputError, match="choose another --results"):
        append(RunFolder(path), make_row(0))
    assert path.read_bytes() == b"something else"


@pytest.mark.parametrize("name", ["rows.parquet", "rows/000001.parquet"])
@pytest.mark.parametrize(
    "damage", [lambda _: b"", lambda content: content[:-1], lambda _: b"text", flip_seconds]
)
def test_a_damaged_file_is_refused_in_one_line(store, name, damage):
    append(store, make_row(0))
    if name == "rows.parquet":
        store.compact()
    path = store.path / name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=rf"cannot read .*{name}.*; remove it and run again"):
        RunFolder(store.path).load_rows("final", CELL)


def test_a_file_of_too_many_values_is_refused(store, monkeypatch):
    append(store, make_row(0))
    monkeypatch.setattr("bdl.records.row_files._MAX_VALUES", 5)
    with pytest.raises(InputError, match="values, more than the 5 of any run"):
        _ = RunFolder(store.path).has_rows


def rows_of_table(store, stages=("search", "final"), **how):
    """The table as rows; what a row lacks is left out."""
    table = tabulate_rows(store.select([CELL], stages), **how)
    for values in table.to_dict("records"):
        yield {name: value for name, value in values.items() if not pd.isna(value)}


def test_columns_are_the_rows(store):
    """Also where rows have different names, and whether they come from files or from memory."""
    refused = make_row(2, metrics={"nmll": 2.0, "rmse": None}, refusals={"rmse": "too few"})
    failed = make_row(
        1, status="failed", reason="diverged", metrics={}, hyper={}, details={"traceback": "long"}
    )
    rows = [make_row(0), failed, refused, make_row(3, metrics={"extra": 0.1 + 0.2})]
    append(store, *rows[::-1], make_row(0, "search", 1, 2))
    for folder in (store, RunFolder(store.path)):
        for found, row in zip(
            rows_of_table(folder, ["final"], details=["traceback"]), rows, strict=True
        ):
            own = {name: getattr(row, name) for name in ("dataset", "entry", "stage", "status")}
            own |= {"split": row.split, "trial": 0, "fold": 0, "seconds": 0.25}
            own |= {"reason": row.problem} if row.problem else {}
            numbers = {name: value for name, value in row.metrics.items() if value is not None}
            hyper = {f"hyper_{name}": value for name, value in row.hyper.items()}
            assert found == own | hyper | numbers | row.details
        (search,) = rows_of_table(folder, ["search"])
        assert (search["split"], search["trial"], search["fold"]) == (0, 1, 2)
        for metrics, missing in ((["rmse", "nmll"], [(2, "rmse: too few")]), (["nmll"], [])):
            table = rows_of_table(folder, problems_of=metrics)
            found = [(row["split"], row["reason"]) for row in table]
            assert found == [(1, "diverged"), *missing]


def test_a_later_segment_replaces_and_removes_and_all_are_put_together(store):
    """What is read is the same before and after, in one file, and beside what a kill left."""
    append(store, *(make_row(split) for split in range(4)))
    store.replace_scores([make_row(1, metrics={"nmll": 7.0})])
    store.remove([make_row(2)])
    store.append([FitResult(make_row(5, "search"), (READING,))])
    expected = store.load_results(CELL)
    assert RunFolder(store.path).load_results(CELL) == expected
    left = {path: path.read_bytes() for path in segments(store)}
    store.compact()
    assert segments(store) == []
    for path, content in left.items():  # killed after the file was written
        path.write_bytes(content)
    assert RunFolder(store.path).load_results(CELL) == expected
    with RunFolder(store.path) as again:
        append(again, make_row(2))
    assert segments(store) == []
    assert RunFolder(store.path).load_rows("final", CELL)[2] == make_row(2)


def test_many_segments_are_put_together_while_a_run_goes_on(store, monkeypatch):
    monkeypatch.setattr("bdl.records.run_folder._MAX_SEGMENTS", 3)
    for split in range(10):
        append(store, make_row(split))
        assert len(segments(store)) <= 3
    assert [row.split for row in RunFolder(store.path).load_rows("final", CELL)] == [*range(10)]


def test_hidden_files_of_a_killed_writer_are_no_rows(store):
    append(store, make_row(0))
    (store.path / "rows/.1234-000002.parquet").write_bytes(b"half of it")
    append(store, make_row(1))
    assert [row.split for row in RunFolder(store.path).load_rows("final", CELL)] == [0, 1]


def test_a_full_disk_is_told_in_one_line_and_loses_nothing(store, monkeypatch):
    append(store, make_row(0))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        for call in (lambda: append(store, make_row(1)), store.compact):
            with pytest.raises(InputError, match=r"No space left on device.* is safe: mend that"):
                call()
        assert store.load_rows("final", CELL) == [make_row(0)]
    assert RunFolder(store.path).load_rows("final", CELL) == [make_row(0)]
    append(store, make_row(1))
    assert RunFolder(store.path).load_rows("final", CELL) == [make_row(0), make_row(1)]


def write_splits(path, splits, refused):
    """Append each split by itself; count those that another writer has stored."""
    store, count = RunFolder(path), 0
    for split in splits:
        try:
            store.append([FitResult(make_row(split), (READING,), b"posterior %d" % split)])
        except StoredTwice:
            count += 1
    refused.put(count)


def test_two_writers_lose_no_row_and_store_none_twice(store, monkeypatch):
    """Of two processes that write the same splits, while a third one reads."""
    monkeypatch.setattr("bdl.records.run_folder._MAX_SEGMENTS", 5)
    context = multiprocessing.get_context("fork")
    refused = context.Queue()
    orders = [*range(30)], [*range(29, -1, -1)]
    writers = [
        context.Process(target=write_splits, args=(store.path, order, refused)) for order in orders
    ]
    for writer in writers:
        writer.start()
    seen = [0]
    while any(writer.is_alive() for writer in writers):
        rows = RunFolder(store.path).load_rows("final", CELL)
        seen.append(len(rows))
        assert [row.split for row in rows] == sorted({row.split for row in rows})
    assert seen == sorted(seen)
    assert refused.get() + refused.get() == 30
    results = RunFolder(store.path).load_results(CELL)
    assert [result.row.split for result in results] == [*range(30)]
    assert all(result.curve_points == (READING,) for result in results)
    for row, *_ in results:
        assert store.posteriors.read_bytes(row.artefact) == b"posterior %d" % row.split


def append_forever(path):
    store = RunFolder(path)
    for number in count():
        store.append(
            [FitResult(make_row(2 * number + i), (), b"%d" % (2 * number + i)) for i in (0, 1)]
        )


def test_a_kill_at_any_moment_leaves_whole_groups_with_their_posteriors(store, monkeypatch):
    monkeypatch.setattr("bdl.records.run_folder._MAX_SEGMENTS", 4)
    moments, before = random.Random(0), 0
    for attempt in range(6):
        folder = store.path / str(attempt)
        writer = multiprocessing.get_context("fork").Process(target=append_forever, args=(folder,))
        writer.start()
        while not RunFolder(folder).has_rows:
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.1))
        writer.kill()
        writer.join()
        rows = RunFolder(folder).load_rows("final", CELL)
        assert [row.split for row in rows] == [*range(len(rows))]
        assert len(rows) % 2 == 0
        for row in rows:
            content = PosteriorFiles(folder / "posteriors").read_bytes(row.artefact)
            assert content == b"%d" % row.split
        next_row = make_row(len(rows))
        append(RunFolder(folder), next_row)
        assert RunFolder(folder).load_rows("final", CELL)[-1] == next_row
        before = max(before, len(rows))
    assert before > 4, "the kills came after some segments were put together"


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
    assert RunFolder(store.path).list_artefacts(CELL) == store.list_artefacts(CELL)
