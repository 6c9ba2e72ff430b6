"""The runner does what the store lacks, once, and turns a group's death into failed rows."""

from collections.abc import Sequence

import pytest
import torch

from bdl.errors import InputError
from bdl.execution.executor import InProcessExecutor
from bdl.execution.groups import FinalGroup, SearchGroup
from bdl.execution.runner import remaining, run
from bdl.execution.scoring import score_predictions
from bdl.metrics.predictive import nmll
from bdl.plan.cell import Cell, plan
from bdl.search import propose
from bdl.spec import Benchmark, load_benchmark
from bdl.store.store import Row, Store

SMALL = [
    "splits=3",
    "entries.vifa-lr.search.trials=3",
    "entries.vifa-lr.search.folds=2",
    "entries.vifa-lr.training.epochs=1",
    "evaluation.samples=5",
]


class Ear:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.total, self.done, self.groups = 0, 0, []

    def begin(self, work: int) -> None:
        self.total = work

    def advance(self, work: int) -> None:
        self.done += work

    def stored(self, cell: Cell, rows: Sequence[Row]) -> None:
        if rows:
            self.groups.append((rows[0].stage, sorted({row.split for row in rows})))


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    return load_benchmark("uci-regression", "quick", SMALL).select(entries=["vifa-lr"])


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


def go(benchmark: Benchmark, store: Store, splits: Sequence[int]) -> Ear:
    ear = Ear()
    run(plan(benchmark, splits=splits, compile=False), store, InProcessExecutor(), ear)
    return ear


def outcomes(store: Store) -> list[tuple[object, ...]]:
    rows = [row for stage in ("search", "final") for row in store.rows(stage, "diabetes", "vifa-lr")]
    return [(row.stage, row.split, row.trial, row.fold, row.hyper, row.status, row.metrics.get("nmll")) for row in rows]


def test_progress_counts_what_is_announced(benchmark, store):
    """398 training rows: 19 minibatches in a fold of 199, 4 an update; 39 in a final fit. 11 parameters."""
    ear = go(benchmark, store, (0, 1))
    assert ear.total == ear.done == (200 + 11) * 2 * (3 * 2 * 16 + 36)
    assert ear.groups == [("search", [0]), ("search", [1]), ("final", [0, 1])]


def test_what_is_stored_is_not_done_again(benchmark, store):
    go(benchmark, store, (1,))
    ear = go(benchmark, store, (0, 1, 2))
    assert ear.groups == [("search", [0]), ("search", [2]), ("final", [0, 2])]
    assert go(benchmark, store, (0, 1, 2)).groups == []
    assert len(outcomes(store)) == 3 * (6 + 1)


def test_a_searched_split_is_only_fitted(benchmark, store, tmp_path, monkeypatch):
    """A run that dies between search and final fit goes on with the final fit, and to the same numbers."""
    with Store(tmp_path / "calm.sqlite") as calm:
        go(benchmark, calm, (0,))
        expected = outcomes(calm)

    def die(self, progress):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FinalGroup, "run", die)
        with pytest.raises(KeyboardInterrupt):
            go(benchmark, store, (0,))
    (cell,) = plan(benchmark, splits=(0,))
    assert remaining(cell, store) == 36 * cell.cost
    assert go(benchmark, store, (0,)).groups == [("final", [0])]
    assert outcomes(store) == expected


def test_the_setting_with_the_lowest_mean_score_is_fitted(benchmark, store):
    go(benchmark, store, (1,))
    search = store.rows("search", "diabetes", "vifa-lr")
    proposed = propose(benchmark.entries["vifa-lr"].search, 1, [])
    assert len(proposed) == 3
    assert [row.hyper for row in search] == [setting for setting in proposed for _ in range(2)]
    means = [sum(row.metrics["nmll"] for row in search if row.trial == trial) for trial in range(3)]
    (final,) = store.rows("final", "diabetes", "vifa-lr")
    assert final.hyper == proposed[means.index(min(means))]
    assert final.metrics["runtime"] == pytest.approx((final.seconds + sum(row.seconds for row in search)) / 60)


def test_scores_follow_from_the_saved_predictions(benchmark, store):
    go(benchmark, store, (0, 2))
    (cell,) = plan(benchmark, splits=(0, 2))
    for row in store.rows("final", "diabetes", "vifa-lr"):
        f = torch.from_numpy(store.predictions("diabetes", "vifa-lr", row.split))
        assert f.shape == (5, 44)
        again = score_predictions(cell, row.split, f, row.hyper)
        assert {name: row.metrics[name] for name in ("nmll", "joint_nll", "rmse")} == pytest.approx(again, rel=1e-12)
        y = torch.tensor(cell.data.y[cell.data.split(row.split).test])
        beta = {"noise_precision": torch.tensor(row.hyper["noise_precision"], dtype=torch.float64)}
        assert row.metrics["nmll"] == pytest.approx(nmll(f.double(), y, beta).item(), rel=1e-12)


def test_the_death_of_a_group_is_a_failed_row_and_the_rest_goes_on(benchmark, store, monkeypatch):
    search = SearchGroup.run

    def sometimes(self, progress):
        if self.splits == (1,):
            raise RuntimeError("out of memory\nand a long story")
        return search(self, progress)

    monkeypatch.setattr(SearchGroup, "run", sometimes)
    go(benchmark, store, (0, 1, 2))
    rows = store.rows("final", "diabetes", "vifa-lr")
    assert [row.status for row in rows] == ["ok", "failed", "ok"]
    assert rows[1].reason == "RuntimeError: out of memory"
    assert "in sometimes" in rows[1].details["traceback"]
    assert rows[1].metrics == {}


def test_rows_of_another_spec_are_refused_before_anything_is_done(benchmark, store):
    go(benchmark, store, (0,))
    before = outcomes(store)
    other = load_benchmark("uci-regression", "quick", [*SMALL, "seed=1"]).select(entries=["vifa-lr"])
    with pytest.raises(InputError, match=r"holds diabetes/vifa-lr of another spec, data or code .*--fresh"):
        go(other, store, (0, 1))
    assert outcomes(store) == before


def test_the_executor_passes_results_and_errors_on():
    executor = InProcessExecutor()
    assert executor.submit(lambda a, b: a - b, 5, b=3).result() == 2
    with pytest.raises(ZeroDivisionError):
        executor.submit(lambda: 1 / 0).result()

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        executor.submit(interrupt)
