"""Guests in a benchmark: the same splits, folds, seeds, scores and rows as any method."""

import time
from importlib.metadata import version

import numpy as np
import pytest
from execution.listeners import Ear

from bdl.data import load_dataset
from bdl.execution import groups, scheduler
from bdl.execution.cluster import open_worker_pool
from bdl.execution.worker_pool import ProcessWorkers, WorkerPool, open_local_pool
from bdl.posteriors.predictive import MeanVariance
from bdl.records.row import KEPT_DETAIL
from bdl.reports.comparison import compare_with_papers
from bdl.stored_results.results_folder import tabulate_final_rows

from .conftest import CONJUGATE, GUESTS, line

ALPHA, BETA = 10, 3e-4
YACHT = ("datasets=[yacht]", "splits=20", "evaluation.samples=100")
SEARCH = (
    "hyper: {HYPER}, search: {trials: 3, folds: 2, metric: nmll, "
    "space: {prior_precision: {low: 1, high: 100, scale: log}}}"
)


def wrong(guest, kind, seconds=100.0, more="hyper: {size: 1}"):
    return f"line: {{method: {{{guest('Wrong')}, kind: {kind}, seconds: {seconds}}}, {more}}}"


def closed_form(data, split):
    """NMLL and RMSE of Bayesian linear regression, from its predictive mean and variance."""
    train, test, _ = data.split(split)
    x, y = data.x, data.y
    mean, scale = x[train].mean(0), x[train].std(0)
    design = np.column_stack([(x - mean) / scale, np.ones(len(x))])
    origin, unit = y[train].mean(), y[train].std()
    precision = ALPHA * np.eye(design.shape[1]) + BETA * unit**2 * design[train].T @ design[train]
    weights = np.linalg.solve(
        precision, BETA * unit**2 * design[train].T @ (y[train] - origin) / unit
    )
    variance = (
        unit**2 * (design[test] * np.linalg.solve(precision, design[test].T).T).sum(1) + 1 / BETA
    )
    errors = y[test] - origin - unit * design[test] @ weights
    nmll = 0.5 * np.mean(np.log(2 * np.pi * variance) + errors**2 / variance)
    return nmll, np.sqrt(np.mean(errors**2))


@pytest.mark.parametrize(
    ("chosen", "count"), [((), 2), pytest.param(YACHT, 20, marks=pytest.mark.data, id="yacht")]
)
def test_linear_regression_of_a_guest_is_the_conjugate_entry(rows, guest, store, chosen, count):
    ours = rows(line(CONJUGATE), *chosen, splits=range(count))
    store.forget([ours[0].cell])
    theirs = rows(line(guest("Weights")), *chosen, splits=range(count))
    assert len(theirs) == count
    for one, other in zip(ours, theirs, strict=True):
        assert (one.status, other.status) == ("ok", "ok")
        assert other.metrics["nmll"] == pytest.approx(one.metrics["nmll"], abs=1e-8)
        assert other.metrics["rmse"] == pytest.approx(one.metrics["rmse"], abs=1e-8)
        assert other.metrics["log_evidence"] == pytest.approx(
            one.metrics["log_evidence"], rel=1e-10
        )
        assert KEPT_DETAIL not in other.details


@pytest.mark.parametrize(
    ("name", "kept"), [("Closure", "predictions at the test rows"), ("Whole", "a predictive")]
)
def test_predictions_are_scored_as_they_are(rows, guest, name, kept):
    for row in rows(line(guest(name))):
        nmll, rmse = closed_form(load_dataset("diabetes"), row.split)
        assert row.metrics["nmll"] == pytest.approx(nmll, abs=1e-10)
        assert row.metrics["rmse"] == pytest.approx(rmse, abs=1e-10)
        assert (row.details[KEPT_DETAIL], row.metrics["log_evidence"], row.refusals) == (
            kept,
            None,
            {},
        )


def test_outputs_are_predicted_from_by_the_likelihood_and_drawn_from_the_seed_of_the_trial(
    rows, guest, store
):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = rows(line(guest("Samples")))
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
    store.forget([first[0].cell])
    np.random.standard_normal(5)  # noqa: NPY002
    assert [row.artefact for row in first] == [
        row.artefact for row in rows(line(guest("Samples")))
    ]
    assert first[0].artefact != first[1].artefact
    # 2000 draws: the error of a mean is a fiftieth of the spread of the outputs, some 10 of a
    # target that varies by 77
    nmll, rmse = closed_form(load_dataset("diabetes"), first[0].split)
    assert first[0].metrics["nmll"] == pytest.approx(nmll, abs=2e-3)
    assert first[0].metrics["rmse"] == pytest.approx(rmse, abs=0.2)


def test_a_score_is_added_to_what_is_kept_of_a_function(rows, guest, store):
    rows(line(guest("Closure")), "metrics=[nmll]")
    found = rows(line(guest("Closure")))
    posterior, _ = store.posteriors.read(found[0].artefact)
    assert isinstance(posterior, MeanVariance)
    assert posterior.rows.tolist() == load_dataset("diabetes").split(0).test.tolist()
    assert [row.metrics["rmse"] for row in found] == pytest.approx(
        [closed_form(load_dataset("diabetes"), i)[1] for i in (0, 1)]
    )


def test_the_search_is_that_of_any_method(rows, guest, store):
    ours = rows(
        line(guest("Closure"), SEARCH.replace("HYPER", "noise_precision: 3e-4")), stage="search"
    )
    finals = store.load_rows("final", ours[0].cell)
    assert len(ours) == 2 * 3 * 2
    for split in (0, 1):
        folds = [row for row in ours if row.split == split]
        means = {
            row.trial: np.mean([one.metrics["nmll"] for one in folds if one.trial == row.trial])
            for row in folds
        }
        best = min(means, key=means.__getitem__)
        assert finals[split].hyper == next(row.hyper for row in folds if row.trial == best)
    store.forget([ours[0].cell])
    trained = SEARCH.replace("HYPER", "noise_precision: 3e-4, learning_rate: 0.01")
    theirs = rows(
        line("name: vifa", f"training: {{epochs: 1, batch_size: 5}}, {trained}"), stage="search"
    )
    proposed = [[row.hyper["prior_precision"] for row in own] for own in (ours, theirs)]
    assert proposed[0] == proposed[1]


def test_the_folds_of_a_search_share_its_seconds(rows, guest, monkeypatch):
    """They are made one after the other: their sum is what the whole took."""
    validate, spent = groups.cross_validate, []

    def timed(*arguments, **named):
        before = time.perf_counter()
        found = validate(*arguments, **named)
        spent.append(time.perf_counter() - before)
        return found

    monkeypatch.setattr(groups, "cross_validate", timed)
    folds = rows(
        line(guest("Closure"), SEARCH.replace("HYPER", "noise_precision: 3e-4")), stage="search"
    )
    assert sum(row.seconds for row in folds) == pytest.approx(sum(spent), rel=0.1)


def test_labels_are_predicted_without_a_model_and_a_fold_is_scored_on_the_rows_that_it_holds_out(
    rows, guest, store
):
    """By the shares of the classes among the rows that a fit has seen."""
    search = "search: {sampler: grid, folds: 2, metric: nll, grid: {unused: [1]}}"
    labels = ("datasets=[overlapping_classes]", "metrics=[nll, error]")
    folds = rows(
        f"line: {{method: {{{guest('Shares')}}}, {search}}}", *labels, splits=(0,), stage="search"
    )
    (final,) = store.load_rows("final", folds[0].cell)
    data = load_dataset("overlapping_classes")
    train, test, _ = data.split(0)
    seen, new = data.y[train].astype(int), data.y[test].astype(int)
    first, second = np.array_split(seen, 2)
    for row, own, held in (
        (folds[0], second, first),
        (folds[1], first, second),
        (final, seen, new),
    ):
        shares = np.bincount(own) / len(own)
        assert row.metrics["nll"] == pytest.approx(-np.log(shares[held]).mean(), rel=1e-12)
    assert final.metrics["error"] == pytest.approx((new != shares.argmax()).mean(), rel=1e-12)


def test_a_setting_that_fails_is_a_failed_fold_and_another_is_chosen(rows, guest, store):
    search = "search: {sampler: grid, folds: 2, metric: nmll, grid: {size: [0.1, 0.9]}}"
    folds = rows(wrong(guest, "raises", more=search), splits=(0,), stage="search")
    assert [row.reason for row in folds] == [None] * 2 + [
        "RuntimeError: the matrix is singular"
    ] * 2
    assert [row.hyper for row in store.load_rows("final", folds[0].cell)] == [{"size": 0.1}]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (
            "short",
            "WrongReturn: Wrong.fit returned a function: mean has shape (3,): give it shape (44,) or (S",
        ),
        ("raises", "RuntimeError: the matrix is singular"),
        ("dead", "SystemExit: 3"),
        ("panics", "RuntimeError: PanicException: the mutex is poisoned"),
        ("slow", "OutOfTime: the fit took more than 0.2 seconds (method.seconds)"),
    ],
)
def test_what_goes_wrong_in_a_guest_is_a_failed_row(rows, guest, kind, reason):
    found = rows(wrong(guest, kind, 0.2 if kind == "slow" else 100))
    assert [row.status for row in found] == ["failed"] * 2
    assert all(row.reason.startswith(reason) for row in found), found[0].reason


@pytest.mark.parametrize(("sampler", "fits"), [("random", 60), ("bayesian", 2)])
def test_the_time_of_a_search_is_that_of_the_fits_of_a_round(cells, guest, store, sampler, fits):
    search = (
        f"search: {{sampler: {sampler}, trials: 30, folds: 2, metric: nmll, "
        "space: {size: {low: 0.1, high: 0.9}}}"
    )
    (cell,) = cells(wrong(guest, "raises", 5, more=search), splits=(0,))
    groups_of_split = groups.SearchGroup(cell, {0: []})
    # private: what it limits takes as long to show
    assert scheduler._time_limit(groups_of_split)[0] == fits * 5


@pytest.mark.slow  # processes, and a limit that has to pass
def test_a_guest_that_hears_no_alarm_is_ended_from_outside_and_the_run_goes_on(
    cells, guest, store, monkeypatch
):
    monkeypatch.setattr(scheduler, "_GRACE", 1.0)
    planned = cells(
        f"{wrong(guest, 'hung', 0.2)}, {line(guest('Weights'), name='good')}", splits=(0,)
    )
    with open_local_pool(1, separate_process=True) as workers:
        scheduler.prepare_run_folder(planned, store)
        scheduler.run_tasks(planned, store, workers, Ear())
    (hung,), (well,) = (store.load_rows("final", cell.key) for cell in planned)
    assert hung.reason == "over the limit of 0.2 seconds (method.seconds), and hung"
    assert hung.seconds == 0.2
    assert well.status == "ok"


def test_a_command_gives_guests_a_process_of_their_own(cells, guest):
    for method, kind in ((guest("Weights"), ProcessWorkers), (CONJUGATE, WorkerPool)):
        with open_worker_pool(cells(line(method)), 1, "") as workers:
            assert type(workers) is kind


def test_a_score_of_parameters_is_empty_and_no_failure(rows, cells, guest, store):
    rows(line(guest("Closure")))
    planned = cells(line(guest("Closure")))
    by_metric = {
        cell.metric: cell
        for cell in compare_with_papers(planned[0].benchmark, tabulate_final_rows(planned, store))
    }
    empty, full = by_metric["log_evidence"], by_metric["rmse"]
    assert (empty.ours, empty.n_failed, empty.verdict) == (None, 0, "no parameters")
    assert (full.n_trials, full.n_failed, full.verdict) == (2, 0, "no paper value")


def test_rows_say_which_packages_made_them(rows, guest, tmp_path):
    named = "\n\n@dataclass(frozen=True)\nclass Named(Whole):\n    needs = {'sklearn': 'scikit-learn'}\n"
    (tmp_path / "guests.py").write_text(GUESTS + named)
    (row, _) = rows(line(f"name: '{tmp_path}/guests.py:Named'"))
    assert row.details["packages"] == f"scikit-learn {version('scikit-learn')}"
