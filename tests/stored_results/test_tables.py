"""Rows of a run as tables: a column an axis and a metric, and scores at recorded counts beside them."""

import pandas as pd
import pytest

from bdl.plan.planning import list_tasks
from bdl.records.row import CurvePoint, FitResult, Row
from bdl.records.run_folder import RunFolder
from bdl.spec import Request, load_benchmark
from bdl.stored_results.folders import locate_folder
from bdl.stored_results.loading import load_results
from bdl.stored_results.results_folder import list_stored_tasks, tabulate_final_rows

KEY = ["dataset", "entry", "stage", "split", "trial", "fold", "status", "reason", "seconds"]
SWEEP = "sweep={model.hidden: [[5], [7, 7]], training.epochs: [1, 2]}"


def cells(*overrides):
    return list_tasks(
        load_benchmark("uci-regression", "check", ["splits=2", *overrides]).select(
            entries=["vifa-nn"]
        )
    )


def final(cell, split, metrics, **changes):
    fields = {"status": "ok", "reason": None, "hyper": {"learning_rate": 0.5}, "seconds": 2.0}
    details = {"updates": 7, "traceback": "long"}
    return Row(
        *cell.key, "final", split, 0, 0, metrics=metrics, details=details, **(fields | changes)
    )


@pytest.fixture
def store(tmp_path):
    with RunFolder(tmp_path / "store") as opened:
        yield opened


def test_without_a_sweep(store):
    (cell,) = cells()
    assert [*tabulate_final_rows([cell], store).columns][: len(KEY)] == KEY
    failed = final(cell, 1, {}, status="failed", reason="diverged", hyper={})
    store.append([FitResult(final(cell, 0, {"nmll": 1.5, "runtime": None})), FitResult(failed)])
    table = tabulate_final_rows([cell], store)
    metrics = ["nmll", "runtime", "joint_nll", "rmse"]
    assert [*table.columns] == [*KEY, "hyper_learning_rate", *metrics[:2], "updates", *metrics[2:]]
    assert table.status.tolist() == ["ok", "failed"]
    assert table.reason.isna().tolist() == [True, False]
    assert table.nmll[0] == 1.5
    assert table[metrics].isna().sum().tolist() == [1, 2, 2, 2]


def test_an_axis_is_a_column_of_its_values_as_text(store):
    swept = cells(SWEEP)
    for value, cell in enumerate(swept):
        store.append(
            [
                FitResult(
                    final(cell, 0, {"nmll": value}), (CurvePoint("epochs", 1, "nmll", value / 2),)
                )
            ]
        )
    table, points = (
        tabulate_final_rows(swept, store),
        store.tabulate_curve_points([cell.key for cell in swept]),
    )
    place = ["dataset", "entry", "model.hidden", "training.epochs"]
    assert [*table.columns][:5] == [*place, "stage"]
    assert table["model.hidden"].tolist() == ["[5]", "[5]", "[7,7]", "[7,7]"]
    assert (
        table["training.epochs"].tolist()
        == points["training.epochs"].tolist()
        == ["1", "2", "1", "2"]
    )
    assert table.nmll.tolist() == [0, 1, 2, 3]
    assert [*points.columns] == [*place, "split", "axis", "at", "metric", "value"]
    assert points.value.tolist() == [0, 0.5, 1, 1.5]


def found(asked, results):
    """Final rows and recorded scores."""
    loaded = load_results(asked, results)
    return loaded.rows, loaded.points


@pytest.mark.parametrize("overrides", [[], [SWEEP]])
def test_what_is_published_reads_as_what_is_stored(tmp_path, overrides):
    """Search folds are published too, and do not count as results."""
    own = cells(*overrides)
    whole = load_benchmark("uci-regression", "check", ["splits=2", *overrides]).select(
        entries=["vifa-nn"]
    )
    asked = Request(whole)
    place = locate_folder(tmp_path, asked)
    with RunFolder(place / "store") as store:
        for cell in own[:1]:
            fold = Row(
                *cell.key,
                "search",
                0,
                3,
                1,
                "ok",
                None,
                {"learning_rate": 0.1},
                {"nmll": 9.0},
                1.0,
                {},
            )
            evaluations = (CurvePoint("epochs", 1, "nmll", 2.0),)
            store.append([FitResult(fold), FitResult(final(cell, 0, {"nmll": 1.0}), evaluations)])
        assert [cell.key for cell in list_stored_tasks(whole, store)] == [own[0].key]
        stored = found(asked, tmp_path)
        store.publish(place, [cell.key for cell in own])
    raw = RunFolder(place).tabulate()
    assert raw.stage.tolist() == ["search", "final"]
    assert raw.nmll.tolist() == [9.0, 1.0]
    published = found(asked, tmp_path)
    for ours, theirs in zip(stored, published, strict=True):
        shared = [name for name in ours.columns if name in theirs.columns]
        assert {"dataset", "entry", *own[0].point} <= set(shared)
        pd.testing.assert_frame_equal(
            ours[shared], theirs[shared].reset_index(drop=True), check_dtype=False
        )
