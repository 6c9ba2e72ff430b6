"""A search that has rounds: studies in lockstep, resumed between rounds, failing in part."""

from collections.abc import Sequence

import pytest
from rich.console import Console

from bdl.api.progress import Display
from bdl.execution import groups as work
from bdl.execution.groups import SearchGroup
from bdl.execution.queue import remaining
from bdl.plan.planning import plan
from bdl.plan.programs import unit
from bdl.search import propose
from bdl.search.crossval import cross_validate
from bdl.spec import Benchmark, load_benchmark
from bdl.store import Outcome, Row
from bdl.store.store import Store

from .listeners import Ear, run_here

SMALL = [
    "splits=3",
    "entries.vifa-lr.search.sampler=bayesian",
    "entries.vifa-lr.search.startup=2",
    "entries.vifa-lr.search.trials=4",
    "entries.vifa-lr.search.folds=2",
    "entries.vifa-lr.training.epochs=1",
    "evaluation.samples=5",
]
FOLDS, TRIALS = 2, 4
CELL = ("diabetes", "vifa-lr", "{}")
IN_A_FOLD, IN_A_FIT = 16, 36
"""Minibatches: 199 rows make 19, and 398 make 39, which updates take by four."""


def load(*changes: str) -> Benchmark:
    return load_benchmark("uci-regression", "quick", [*SMALL, *changes]).select(entries=["vifa-lr"])


def go(benchmark: Benchmark, store: Store, splits: Sequence[int]) -> Ear:
    ear = run_here(plan(benchmark, splits=splits, compile=False), store)
    assert ear.total == ear.done
    return ear


def rows_of(store: Store) -> list[Row]:
    return [row for stage in ("search", "final") for row in store.rows(stage, CELL)]


def outcomes(store: Store) -> list[tuple[object, ...]]:
    """All of the rows but the times."""
    return [
        (row.stage, row.split, row.trial, row.fold, row.hyper, row.status, row.metrics.get("nmll"))
        for row in rows_of(store)
    ]


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """Outcomes of an undisturbed run of three splits, and what its listener heard."""
    with Store(tmp_path_factory.mktemp("calm") / "store.sqlite") as store:
        ear = go(load(), store, (0, 1, 2))
        return outcomes(store), ear


def interrupted(monkeypatch, rounds, store, splits):
    """Run, but die when one round more is begun."""
    search, done = SearchGroup.run, []

    def sometimes(self, report):
        if len(done) == rounds:
            raise KeyboardInterrupt
        done.append(self)
        return search(self, report)

    with monkeypatch.context() as patch:
        patch.setattr(SearchGroup, "run", sometimes)
        with pytest.raises(KeyboardInterrupt):
            go(load(), store, splits)


def test_each_round_trains_every_split_as_one_program(calm):
    outcome, ear = calm
    rounds = [("search", [[trial] * FOLDS] * 3) for trial in range(TRIALS)]
    assert ear.rounds == [*rounds, ("final", [[0]] * 3)]
    (cell,) = plan(load(), splits=(0, 1, 2))
    search = TRIALS * FOLDS * IN_A_FOLD * unit(cell, "search")
    assert ear.total == ear.done == 3 * (search + IN_A_FIT * unit(cell, "final"))
    assert len(outcome) == 3 * (TRIALS * FOLDS + 1)


def test_proposals_follow_from_the_scores_and_the_best_mean_is_fitted(store):
    benchmark = load()
    go(benchmark, store, (1,))
    told = []
    for trial in range(TRIALS):
        own = [row for row in rows_of(store) if (row.stage, row.trial) == ("search", trial)]
        assert [own[0].hyper] == propose(benchmark.entries["vifa-lr"].search, 1, told)
        told.append((own[0].hyper, sum(row.metrics["nmll"] for row in own) / FOLDS))
    assert rows_of(store)[-1].hyper == min(told, key=lambda pair: pair[1])[0]


@pytest.mark.parametrize("rounds", [1, 3])  # within the random start, and after it
def test_an_interrupted_search_goes_on_as_it_would_have(calm, store, monkeypatch, rounds):
    interrupted(monkeypatch, rounds, store, (0, 1, 2))
    (cell,) = plan(load(), splits=(0, 1, 2))
    assert len(rows_of(store)) == 3 * FOLDS * rounds
    search = unit(cell, "search") * (TRIALS - rounds) * FOLDS * IN_A_FOLD
    assert remaining(cell, store) == 3 * (search + unit(cell, "final") * IN_A_FIT)
    assert len(go(load(), store, (0, 1, 2)).groups) == TRIALS - rounds + 1
    assert outcomes(store) == calm[0]
    assert go(load(), store, (0, 1, 2)).groups == []


def test_a_split_that_lags_behind_joins_the_others(store, monkeypatch):
    interrupted(monkeypatch, 2, store, (0,))
    ear = go(load(), store, (0, 2))
    both = [("search", [[2] * FOLDS, [0] * FOLDS]), ("search", [[3] * FOLDS, [1] * FOLDS])]
    alone = [("search", [[2] * FOLDS]), ("search", [[3] * FOLDS])]
    assert ear.rounds == [*both, *alone, ("final", [[0]] * 2)]


def test_the_death_of_a_round_ends_the_search_of_its_splits(store, monkeypatch):
    def die(self, report):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(SearchGroup, "run", die)
    run_here(plan(load(), splits=(0, 1), compile=False), store)
    assert [(row.stage, row.status, row.reason) for row in rows_of(store)] == [
        ("final", "failed", "RuntimeError: out of memory")
    ] * 2


def some_folds_fail(*args, **kwargs):
    """Fail the second fold of trials with a large prior precision."""
    return [
        score._replace(score=float("nan"), reason="why") if score.fold and score.hyper["prior_precision"] > 1 else score
        for score in cross_validate(*args, **kwargs)
    ]


@pytest.mark.parametrize("penalty", [None, 40.0])
def test_failed_folds_are_counted_and_penalised(store, monkeypatch, penalty):
    monkeypatch.setattr(work, "cross_validate", some_folds_fail)
    benchmark = load(f"entries.vifa-lr.search.penalty={'null' if penalty is None else penalty}")
    go(benchmark, store, (0,))
    search = store.rows("search", CELL)
    lost = [row for row in search if row.status == "failed"]
    assert 0 < len(lost) == sum(row.hyper["prior_precision"] > 1 for row in search) / FOLDS < TRIALS
    assert all((row.reason, row.metrics["nmll"]) == ("why", None) for row in lost)
    for trial in range(1, TRIALS):
        before = [row for row in search if row.trial < trial]
        finished = [row.metrics["nmll"] for row in before if row.status == "ok"]
        worst = max(finished) if penalty is None else penalty
        scores = [worst if row in lost else row.metrics["nmll"] for row in before]
        told = [(before[i].hyper, sum(scores[i : i + FOLDS]) / FOLDS) for i in range(0, len(before), FOLDS)]
        assert [search[trial * FOLDS].hyper] == propose(benchmark.entries["vifa-lr"].search, 0, told)
    (final,) = store.rows("final", CELL)
    assert final.hyper["prior_precision"] <= 1, "a setting with a failed fold is not chosen"


def test_a_search_in_which_everything_fails_ends(store):
    """Learning rates that overflow."""
    rates = "entries.vifa-lr.search.space.learning_rate={low: 1e30, high: 1e38}"
    run_here(plan(load(rates), splits=(0,), compile=False), store)
    *search, final = rows_of(store)
    assert len({row.hyper["learning_rate"] for row in search}) == TRIALS
    assert {row.status for row in search} == {"failed"}
    assert final.reason == "all 4 search settings failed"


def test_what_is_not_searched_stays_fixed(store):
    space = "{prior_precision: {low: 1, high: 2}, noise_precision: {low: 0.1, high: 0.2}}"
    search = (
        f"entries.vifa-lr.search={{sampler: bayesian, trials: 2, startup: 1, folds: 2, metric: nmll, space: {space}}}"
    )
    go(load("entries.vifa-lr.search=null", search, "entries.vifa-lr.hyper={learning_rate: 0.005}"), store, (0,))
    rows = rows_of(store)
    assert [row.status for row in rows] == ["ok"] * 5
    assert {row.hyper["learning_rate"] for row in rows} == {0.005}
    assert all(1 <= row.hyper["prior_precision"] <= 2 for row in rows)


def test_a_split_counts_as_searched_after_its_last_round_also_where_an_earlier_run_made_some(store):
    (cell,) = plan(load(), splits=(0, 1), compile=False)

    def shown():
        console = Console(record=True, width=120)
        with console.capture() as text:
            console.print(displays[-1]._render().renderables[0])
        return [int(word) for word in text.get().splitlines()[1].split()[2:4]]

    displays = [Display(Console(), [cell], store)]
    for trial in range(TRIALS):
        assert shown() == [0, 0]
        row = Row(*CELL, "search", 1, trial, 0, "ok", None, {}, {}, 0.0, {})
        store.append([Outcome(row)])
        displays[-1].stored(cell, [row])
    assert shown() == [1, 0]
    store.append([Outcome(Row(*CELL, "final", split, 0, 0, "ok", None, {}, {}, 0.0, {})) for split in (1, 2)])
    displays.append(Display(Console(), [cell], store))
    assert shown() == [1, 1], "split 2 is not of this run"


def test_a_dumb_terminal_gets_plain_lines(store, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    (cell,) = plan(load(), splits=(0,), compile=False)
    console = Console(record=True, force_terminal=True, width=120)
    with console.capture() as text, Display(console, [cell], store) as display:
        display.begin(1)
        display.stored(cell, [Row(*CELL, "search", 0, 0, 0, "ok", None, {}, {}, 1.0, {})])
    assert "search, split 0: 1 trials in 1.0 s" in text.get()
