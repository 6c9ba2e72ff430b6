"""A run does what the store lacks, once, in whatever order it gets ready, and a group's death is failed rows."""

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

import pytest
import torch

from bdl.errors import InputError
from bdl.execution import WorkerPool, worker_pool
from bdl.execution.groups import FinalGroup, SearchGroup
from bdl.execution.queue import remaining, run
from bdl.execution.scoring import evaluation, scores
from bdl.plan import programs
from bdl.plan.planning import plan
from bdl.plan.programs import unit
from bdl.posteriors.tensors import as_type
from bdl.rng import normal_slice, trial_keys
from bdl.search import propose
from bdl.spec import Benchmark, load_benchmark
from bdl.store import artefacts
from bdl.store.store import Store

from .listeners import Ear, outcomes, run_here

SMALL = [
    "splits=3",
    "entries.vifa-lr.search.trials=3",
    "entries.vifa-lr.search.folds=2",
    "entries.vifa-lr.training.epochs=1",
    "evaluation.samples=5",
]
CELL = ("diabetes", "vifa-lr", "{}")


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    return load_benchmark("uci-regression", "quick", SMALL).select(entries=["vifa-lr"])


def go(benchmark: Benchmark, store: Store, splits: Sequence[int]) -> Ear:
    return run_here(plan(benchmark, splits=splits, compile=False), store)


def everything(benchmark: Benchmark, store: Store) -> list[dict[str, object]]:
    return outcomes(store, plan(benchmark, splits=(0,)))


def test_progress_counts_what_is_announced(benchmark, store):
    """398 training rows: 19 minibatches in a fold of 199, 4 an update; 39 in a final fit."""
    ear = go(benchmark, store, (0, 1))
    (cell,) = plan(benchmark, splits=(0,))
    assert ear.total == ear.done == 2 * (3 * 2 * 16 * unit(cell, "search") + 36 * unit(cell, "final"))
    assert ear.groups == [("search", [0, 1]), ("final", [0, 1])]


def test_what_is_stored_is_not_done_again(benchmark, store):
    go(benchmark, store, (1,))
    ear = go(benchmark, store, (0, 1, 2))
    assert ear.groups == [("search", [0, 2]), ("final", [0, 2])]
    again = go(benchmark, store, (0, 1, 2))
    assert (again.groups, again.total) == ([], 0)
    assert len(everything(benchmark, store)) == 3 * (6 + 1)


def test_a_searched_split_is_only_fitted(benchmark, store, tmp_path, monkeypatch):
    """A run that dies between search and final fit goes on with the final fit, and to the same numbers."""
    with Store(tmp_path / "calm.sqlite") as calm:
        go(benchmark, calm, (0,))
        expected = everything(benchmark, calm)

    def die(self, report):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FinalGroup, "run", die)
        with pytest.raises(KeyboardInterrupt):
            go(benchmark, store, (0,))
    (cell,) = plan(benchmark, splits=(0,))
    assert remaining(cell, store) == 36 * unit(cell, "final")
    assert go(benchmark, store, (0,)).groups == [("final", [0])]
    assert everything(benchmark, store) == expected


def test_the_setting_with_the_lowest_mean_score_is_fitted(benchmark, store):
    go(benchmark, store, (1,))
    search = store.rows("search", CELL)
    proposed = propose(benchmark.entries["vifa-lr"].search, 1, [])
    assert len(proposed) == 3
    assert [row.hyper for row in search] == [setting for setting in proposed for _ in range(2)]
    means = [sum(row.metrics["nmll"] for row in search if row.trial == trial) for trial in range(3)]
    (final,) = store.rows("final", CELL)
    assert final.hyper == proposed[means.index(min(means))]
    assert final.metrics["runtime"] == pytest.approx((final.seconds + sum(row.seconds for row in search)) / 60)


def test_scores_follow_from_the_stored_posteriors(benchmark, store):
    """As `evaluation` computes them, and by hand: five draws, a linear model, the mean density of each row."""
    go(benchmark, store, (0, 2))
    (cell,) = plan(benchmark, splits=(0, 2))
    for row in store.rows("final", CELL):
        posterior, buffers = artefacts.read(store.posteriors, row.artefact)
        assert buffers == {}
        again = scores(evaluation(cell, row.split, posterior, buffers, row.hyper), cell.benchmark.metrics[:3]).values
        assert {name: row.metrics[name] for name in ("nmll", "joint_nll", "rmse")} == pytest.approx(again, rel=1e-12)

        train, test, _ = cell.data.split(row.split)
        x, y = cell.data.x, torch.tensor(cell.data.y)
        inputs = torch.tensor((x[test] - x[train].mean(0)) / x[train].std(0)).float()
        posterior = as_type(posterior, torch.float32)
        keys, width = trial_keys([(*cell.identity, row.split, "final")], "predict"), posterior.noise_dim
        noise = normal_slice(keys, torch.tensor(0, dtype=torch.int32), (5 * width + 1) // 2, 0, 5 * width)
        theta = posterior.sample(noise.view(5, width))
        f = (theta[:, :-1] @ inputs.T + theta[:, -1:]) * float(y[train].std(correction=0)) + float(y[train].mean())
        noise_sd = torch.tensor(row.hyper["noise_precision"]).double() ** -0.5
        log_density = torch.distributions.Normal(f.double(), noise_sd).log_prob(y[test])
        nmll = -(log_density.logsumexp(0) - torch.tensor(5.0).log()).mean()
        assert row.metrics["nmll"] == pytest.approx(nmll.item(), rel=1e-5)
        assert row.metrics["rmse"] == pytest.approx((f.mean(0) - y[test]).square().mean().sqrt().item(), rel=1e-5)


def test_the_death_of_a_group_is_a_failed_row_and_the_rest_goes_on(benchmark, store, monkeypatch):
    search = SearchGroup.run

    def sometimes(self, report):
        if [split for _, split in self.members] == [1]:
            raise RuntimeError("out of memory\nand a long story")
        return search(self, report)

    monkeypatch.setattr(SearchGroup, "run", sometimes)
    monkeypatch.setattr(programs, "_MANY", 1)  # each split is searched by itself
    go(benchmark, store, (0, 1, 2))
    rows = store.rows("final", CELL)
    assert [row.status for row in rows] == ["ok", "failed", "ok"]
    assert rows[1].reason == "RuntimeError: out of memory"
    assert "in sometimes" in rows[1].details["traceback"]
    assert (rows[1].metrics, rows[1].artefact) == ({}, None)


@pytest.mark.parametrize("change", ["seed=1", "entries.vifa-lr.training.epochs=2", "record={unit: epochs, every: 1}"])
def test_rows_of_another_spec_are_refused_before_anything_is_done(benchmark, store, change):
    go(benchmark, store, (0,))
    before = everything(benchmark, store)
    other = load_benchmark("uci-regression", "quick", [*SMALL, change]).select(entries=["vifa-lr"])
    with pytest.raises(InputError, match=r"holds diabetes/vifa-lr of another spec, data or code .*--changed"):
        go(other, store, (0, 1))
    assert everything(benchmark, store) == before


class NewestFirst(WorkerPool):
    """A worker pool of three, whose tasks wait until they are looked for; every other time the newest is then done."""

    size = 3

    def __init__(self):
        self.waiting, self.rests = [], False
        self.side_by_side = []

    def submit(self, task, argument, report, seconds=None):
        future: Future = Future()
        self.waiting.append((future, partial(task, argument, report), argument))
        self.side_by_side.append([group.members[0][0].key[:2] for _, _, group in self.waiting])
        return future

    def collect(self, report):
        if not self.rests:  # what was done is stored before more is
            future, work, _ = self.waiting.pop()
            future.set_result(work())
        self.rests = not self.rests


def test_groups_that_end_in_any_order_give_the_same_results(tiny, store, tmp_path):
    with Store(tmp_path / "calm.sqlite") as calm:
        cells = tiny()
        in_order = run_here(cells, calm).stored_rows
        expected = outcomes(calm, cells)
    ear, workers = Ear(), NewestFirst()
    run(cells, store, workers, ear)
    assert outcomes(store, cells) == expected
    assert ear.total == ear.done > 0
    assert max(map(len, workers.side_by_side)) == 3
    assert any(len(set(together)) > 1 for together in workers.side_by_side), "groups of several cells"
    came = [(rows[0].cell, rows[0].stage) for rows in ear.stored_rows]
    assert came != [(rows[0].cell, rows[0].stage) for rows in in_order]
    assert sorted(came) == sorted((rows[0].cell, rows[0].stage) for rows in in_order)


def test_a_round_waits_for_the_one_before_it_and_for_no_other_cell(tiny, store):
    """The first round of the first cell is looked at last; meanwhile the others go on to their ends."""
    cells = tiny(entries=["rounds", "exact"])
    ear = Ear()
    run(cells, store, NewestFirst(), ear)
    stages = {cell.key: [rows[0].stage for rows in ear.stored_rows if rows[0].cell == cell.key] for cell in cells}
    assert stages == {cell.key: [*(["search"] * 3 if cell.entry == "rounds" else []), "final"] for cell in cells}
    last = [rows[0].cell for rows in ear.stored_rows][-4:]
    assert last == [("diabetes", "rounds", "{}")] * 4


def test_a_run_of_one_at_a_time_finishes_a_cell_before_the_next(tiny, store):
    cells = tiny(splits=(1,))
    came = [rows[0].cell for rows in run_here(cells, store).stored_rows]
    assert list(dict.fromkeys(came)) == [cell.key for cell in cells]
    assert came == sorted(came, key=[cell.key for cell in cells].index)


def test_the_crew_in_this_process_passes_results_and_errors_on():
    def interrupt():
        raise KeyboardInterrupt

    with worker_pool(1) as here:
        assert here.size == 1
        assert here.submit(lambda a, report: (a, report), 5, "told").result() == (5, "told")
        with pytest.raises(ZeroDivisionError):
            here.submit(lambda a, report: 1 / 0, None, print).result()
        with pytest.raises(KeyboardInterrupt):
            here.submit(lambda a, report: interrupt(), None, print)
