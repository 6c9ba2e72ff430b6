"""A run does what the store lacks, once, in whatever order it gets ready, and a group's death is failed rows."""

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

import pytest
import torch

from bdl.errors import InputError
from bdl.execution.groups import FinalGroup, SearchGroup
from bdl.execution.scheduler import count_remaining_work, prepare_run_folder, run_tasks
from bdl.execution.scoring import compute_scores, make_evaluation
from bdl.execution.worker_pool import WorkerPool
from bdl.plan import workload
from bdl.plan.cost import estimate_batch_work
from bdl.plan.planning import plan_tasks
from bdl.posteriors.tensors import as_type
from bdl.records.row import Row
from bdl.records.run_folder import RunFolder
from bdl.rng import normal_slice, trial_keys
from bdl.search.crossval import cross_validate
from bdl.search.proposals import propose
from bdl.spec import Benchmark, load_benchmark

from .listeners import Ear, outcomes, run_here

CELL = ("diabetes", "vifa-lr", "{}")
IN_A_FOLD, IN_A_FIT = 16, 36
"""Minibatches: 199 rows make 19, and 398 make 39, which updates take by four."""
FOLDS, TRIALS = 2, 3


def load(*changes: str, sampler: str = "random") -> Benchmark:
    """A search of three settings by two folds.

    A Bayesian one in rounds, of which the first is at random.
    """
    search = [
        f"sampler={sampler}",
        f"trials={TRIALS}",
        f"folds={FOLDS}",
        *(["startup=1"] if sampler != "random" else []),
    ]
    small = [
        f"entries.vifa-lr.{change}"
        for change in ("training.epochs=1", *(f"search.{own}" for own in search))
    ]
    overrides = ["splits=3", "evaluation.samples=5", *small, *changes]
    return load_benchmark("uci-regression", "check", overrides).select(entries=["vifa-lr"])


def go(store: RunFolder, splits: Sequence[int], benchmark: Benchmark) -> Ear:
    ear = run_here(plan_tasks(benchmark, splits=splits, compile=False), store)
    assert ear.total == ear.done
    return ear


def everything(store: RunFolder) -> list[dict[str, object]]:
    return outcomes(store, plan_tasks(load(), splits=(0,)))


@pytest.fixture(scope="module", params=["random", "bayesian"])
def calm(request, tmp_path_factory):
    """A benchmark, its rows after an undisturbed run of three splits, and what the listener heard."""
    benchmark = load(sampler=request.param)
    with RunFolder(tmp_path_factory.mktemp("calm") / "store") as store:
        ear = go(store, (0, 1, 2), benchmark)
        return benchmark, everything(store), ear


def rounds_of(benchmark: Benchmark) -> list[list[int]]:
    """Trials of each round."""
    trials = [*range(TRIALS)]
    return (
        [[trial] for trial in trials]
        if benchmark.entries["vifa-lr"].search.sampler == "bayesian"
        else [trials]
    )


def test_each_round_trains_every_split_as_one_program(calm):
    """What is announced is counted: 398 training rows are 19 minibatches in a fold of 199, and 39 in a final fit."""
    benchmark, rows, ear = calm
    rounds = [
        ("search", [[trial for trial in own for _ in range(FOLDS)]] * 3)
        for own in rounds_of(benchmark)
    ]
    assert ear.rounds == [*rounds, ("final", [[0]] * 3)]
    (cell,) = plan_tasks(benchmark, splits=(0,))
    search = TRIALS * FOLDS * IN_A_FOLD * estimate_batch_work(cell, "search")
    assert ear.total == ear.done == 3 * (search + IN_A_FIT * estimate_batch_work(cell, "final"))
    assert len(rows) == 3 * (TRIALS * FOLDS + 1)


def test_the_setting_with_the_lowest_mean_score_is_fitted(calm, store):
    """What is proposed in a round follows from the scores of those before."""
    benchmark, _, _ = calm
    go(store, (1,), benchmark)
    search, told = store.load_rows("search", CELL), []
    for own in rounds_of(benchmark):
        folds = [[row for row in search if row.trial == trial] for trial in own]
        assert [rows[0].hyper for rows in folds] == propose(
            benchmark.entries["vifa-lr"].search, 1, told
        )
        told += [
            (rows[0].hyper, sum(row.metrics["nmll"] for row in rows) / FOLDS) for rows in folds
        ]
    (final,) = store.load_rows("final", CELL)
    assert final.hyper == min(told, key=lambda pair: pair[1])[0]
    assert final.metrics["runtime"] == pytest.approx(
        (final.seconds + sum(row.seconds for row in search)) / 60
    )


@pytest.mark.parametrize("done", [0, 1, 2, TRIALS])
def test_an_interrupted_run_goes_on_as_it_would_have(calm, store, monkeypatch, done):
    """It dies before a round, or between search and final fits.

    What is stored is not done again.
    """
    benchmark, expected, _ = calm
    rounds, begun, search = len(rounds_of(benchmark)), [], SearchGroup.run
    if done > rounds:
        pytest.skip("a random search has one round")

    def die(self, report):
        raise KeyboardInterrupt

    def sometimes(self, report):
        begun.append(self)
        return die(self, report) if len(begun) > done else search(self, report)

    with monkeypatch.context() as patch:
        patch.setattr(SearchGroup, "run", sometimes)
        patch.setattr(FinalGroup, "run", die)
        with pytest.raises(KeyboardInterrupt):
            go(store, (0, 1, 2), benchmark)
    (cell,) = plan_tasks(benchmark, splits=(0, 1, 2))
    trials = sum(map(len, rounds_of(benchmark)[done:]))
    search_work = estimate_batch_work(cell, "search") * trials * FOLDS * IN_A_FOLD
    assert count_remaining_work(cell, store) == 3 * (
        search_work + estimate_batch_work(cell, "final") * IN_A_FIT
    )
    assert len(go(store, (0, 1, 2), benchmark).groups) == rounds - done + 1
    assert everything(store) == expected
    again = go(store, (0, 1, 2), benchmark)
    assert (again.groups, again.total) == ([], 0)


def test_a_split_that_lags_behind_joins_the_others(store, monkeypatch):
    benchmark, search, begun = load(sampler="bayesian"), SearchGroup.run, []

    def once(self, report):
        if begun:
            raise KeyboardInterrupt
        begun.append(self)
        return search(self, report)

    with monkeypatch.context() as patch:
        patch.setattr(SearchGroup, "run", once)
        with pytest.raises(KeyboardInterrupt):
            go(store, (0,), benchmark)
    both, alone = [[[1] * FOLDS, [0] * FOLDS], [[2] * FOLDS, [1] * FOLDS]], [[[2] * FOLDS]]
    expected = [*(("search", own) for own in (*both, *alone)), ("final", [[0]] * 2)]
    assert go(store, (0, 2), benchmark).rounds == expected


def test_scores_follow_from_the_stored_posteriors(store):
    """As `evaluation` computes them, and by hand: five draws, a linear model, the mean density of each row."""
    go(store, (0, 2), load())
    (cell,) = plan_tasks(load(), splits=(0, 2))
    for row in store.load_rows("final", CELL):
        posterior, buffers = store.posteriors.read(row.artefact)
        assert buffers == {}
        again = compute_scores(
            make_evaluation(cell, row.split, posterior, buffers, row.hyper),
            cell.benchmark.metrics[:3],
        ).values
        assert {
            name: row.metrics[name] for name in ("nmll", "joint_nll", "rmse")
        } == pytest.approx(again, rel=1e-12)

        train, test, _ = cell.data.split(row.split)
        x, y = cell.data.x, torch.tensor(cell.data.y)
        inputs = torch.tensor((x[test] - x[train].mean(0)) / x[train].std(0)).float()
        posterior = as_type(posterior, torch.float32)
        keys, width = (
            trial_keys([(*cell.identity, row.split, "final")], "predict"),
            posterior.noise_dim,
        )
        noise = normal_slice(
            keys, torch.tensor(0, dtype=torch.int32), (5 * width + 1) // 2, 0, 5 * width
        )
        theta = posterior.sample(noise.view(5, width))
        f = (theta[:, :-1] @ inputs.T + theta[:, -1:]) * float(y[train].std(correction=0)) + float(
            y[train].mean()
        )
        noise_sd = torch.tensor(row.hyper["noise_precision"]).double() ** -0.5
        log_density = torch.distributions.Normal(f.double(), noise_sd).log_prob(y[test])
        nmll = -(log_density.logsumexp(0) - torch.tensor(5.0).log()).mean()
        assert row.metrics["nmll"] == pytest.approx(nmll.item(), rel=1e-5)
        assert row.metrics["rmse"] == pytest.approx(
            (f.mean(0) - y[test]).square().mean().sqrt().item(), rel=1e-5
        )


def test_the_death_of_a_group_is_a_failed_row_and_the_rest_goes_on(store, monkeypatch):
    search = SearchGroup.run

    def sometimes(self, report):
        if [split for _, split in self.members] == [1]:
            raise RuntimeError("out of memory\nand a long story")
        return search(self, report)

    monkeypatch.setattr(SearchGroup, "run", sometimes)
    monkeypatch.setattr(
        workload, "_CONCURRENT_FITS_FOR_ONE_SPLIT", 1
    )  # each split is searched by itself
    run_here(plan_tasks(load(), splits=(0, 1, 2), compile=False), store)
    rows = store.load_rows("final", CELL)
    assert [row.status for row in rows] == ["ok", "failed", "ok"]
    assert rows[1].reason == "RuntimeError: out of memory"
    assert "in sometimes" in rows[1].details["traceback"]
    assert (rows[1].metrics, rows[1].artefact) == ({}, None)


def test_failed_folds_are_counted_and_penalised(store, monkeypatch):
    """The second fold fails of trials with a large prior precision, and counts as 40 nats."""

    def some_fail(*args, **kwargs):
        found = cross_validate(*args, **kwargs)
        bad = [score.fold and score.hyper["prior_precision"] > 1 for score in found]
        failed = {"score": float("nan"), "reason": "why"}
        return [
            score._replace(**failed) if own else score
            for score, own in zip(found, bad, strict=True)
        ]

    monkeypatch.setattr("bdl.execution.groups.cross_validate", some_fail)
    changes = [
        f"entries.vifa-lr.search.{change}" for change in ("trials=4", "startup=2", "penalty=40")
    ]
    benchmark = load(*changes, sampler="bayesian")
    go(store, (0,), benchmark)
    search = store.load_rows("search", CELL)
    lost = [row for row in search if row.status == "failed"]
    assert 0 < len(lost) == sum(row.hyper["prior_precision"] > 1 for row in search) / FOLDS < 4
    assert all((row.reason, row.metrics["nmll"]) == ("why", None) for row in lost)
    scored = [40 if row in lost else row.metrics["nmll"] for row in search]
    told = [
        (search[i].hyper, sum(scored[i : i + FOLDS]) / FOLDS) for i in range(0, len(search), FOLDS)
    ]
    for trial in range(1, 4):
        assert [told[trial][0]] == propose(benchmark.entries["vifa-lr"].search, 0, told[:trial])
    (final,) = store.load_rows("final", CELL)
    assert final.hyper["prior_precision"] <= 1, "a setting with a failed fold is not chosen"


def test_a_search_in_which_everything_fails_ends(store):
    """Learning rates that overflow."""
    rates = "entries.vifa-lr.search.space.learning_rate={low: 1e30, high: 1e38}"
    run_here(plan_tasks(load(rates, sampler="bayesian"), splits=(0,), compile=False), store)
    assert {row.status for row in store.load_rows("search", CELL)} == {"failed"}
    assert [row.reason for row in store.load_rows("final", CELL)] == [
        f"all {TRIALS} search settings failed"
    ]


def test_what_is_not_searched_stays_fixed(store):
    space = "{prior_precision: {low: 1, high: 2}, noise_precision: {low: 0.1, high: 0.2}}"
    search = (
        f"{{sampler: bayesian, trials: 2, startup: 1, folds: 2, metric: nmll, space: {space}}}"
    )
    changes = "search=null", f"search={search}", "hyper={learning_rate: 0.005}"
    go(store, (0,), load(*(f"entries.vifa-lr.{change}" for change in changes)))
    rows: list[Row] = [*store.load_rows("search", CELL), *store.load_rows("final", CELL)]
    assert [row.status for row in rows] == ["ok"] * 5
    assert {row.hyper["learning_rate"] for row in rows} == {0.005}
    assert all(1 <= row.hyper["prior_precision"] <= 2 for row in rows)


@pytest.mark.parametrize(
    "change", ["seed=1", "entries.vifa-lr.training.epochs=2", "record={unit: epochs, every: 1}"]
)
def test_rows_of_another_spec_are_refused_before_anything_is_done(store, change):
    go(store, (0,), load())
    before = everything(store)
    with pytest.raises(
        InputError, match=r"holds diabetes/vifa-lr of another spec, data or code .*--changed"
    ):
        go(store, (0, 1), load(change))
    assert everything(store) == before


class NewestFirst(WorkerPool):
    """A worker pool of three, whose tasks wait until they are looked for.

    Every other time the newest is then done.
    """

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
    cells = tiny()
    with RunFolder(tmp_path / "calm") as calm:
        in_order = [(rows[0].cell, rows[0].stage) for rows in run_here(cells, calm).stored_rows]
        expected = outcomes(calm, cells)
    ear, workers = Ear(), NewestFirst()
    prepare_run_folder(cells, store)
    run_tasks(cells, store, workers, ear)
    assert outcomes(store, cells) == expected
    assert ear.total == ear.done > 0
    assert max(map(len, workers.side_by_side)) == 3
    assert any(len(set(together)) > 1 for together in workers.side_by_side), (
        "groups of several cells"
    )
    came = [(rows[0].cell, rows[0].stage) for rows in ear.stored_rows]
    assert came != in_order
    assert sorted(came) == sorted(in_order)
    keys = [cell.key for cell in cells]
    assert in_order == sorted(in_order, key=lambda own: keys.index(own[0])), (
        "in one process, cell by cell"
    )


def test_a_round_waits_for_the_one_before_it_and_for_no_other_cell(tiny, store):
    """The first round of the first cell is looked at last.

    Meanwhile the others go on to their ends.
    """
    cells = tiny(entries=["rounds", "exact"])
    ear = Ear()
    prepare_run_folder(cells, store)
    run_tasks(cells, store, NewestFirst(), ear)
    stages = {
        cell.key: [rows[0].stage for rows in ear.stored_rows if rows[0].cell == cell.key]
        for cell in cells
    }
    assert stages == {
        cell.key: [*(["search"] * 3 if cell.entry == "rounds" else []), "final"] for cell in cells
    }
    last = [rows[0].cell for rows in ear.stored_rows][-4:]
    assert last == [("diabetes", "rounds", "{}")] * 4
