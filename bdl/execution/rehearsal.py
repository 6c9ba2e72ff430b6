"""Rehearsal: components from outside are called once before anything is trained.

Components of the package are not called: its tests do, and numbers that a posterior has before
training prove little.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from bdl.data.splits import Rows
from bdl.errors import InputError, summarise_error
from bdl.execution.groups import reference_hyper
from bdl.execution.scoring import (
    Buffers,
    compute_scores,
    describe_error,
    make_evaluation,
)
from bdl.execution.worker_pool import LostWorker, OverTime, open_local_pool
from bdl.methods.contract_check import UnknownHyperparameter, WrongReturn, returned_by
from bdl.metrics import METRICS
from bdl.metrics.evaluation import Evaluation
from bdl.plan.fittings import build_final_fitting, build_training_setup
from bdl.plan.initial_check import list_extreme_settings, max_rows_at_once
from bdl.plan.task import Task
from bdl.posteriors.base import Posterior, check_posterior
from bdl.registry import locate_outside_error, outside_file
from bdl.search.proposals import Setting
from bdl.spec.labels import MetricName
from bdl.training.fitting import EvaluationSchedule, Fitting, Progress, ignore_progress

_FEW_ROWS = 100
"""Training rows of a method without minibatches, and observations of one that has a stream."""
_GUEST_SECONDS = 60.0
"""Wall time of a guest's fit to so few rows."""
_SAMPLES = 2
"""Posterior samples of a prediction."""


def rehearse(tasks: Iterable[Task], unfinished_tasks: Collection[Task]) -> None:
    """Call each method and score once, in tasks that have a component from outside the package.

    The method makes one update on the first split (one without minibatches is fitted to a few
    rows), which is scored. Equal components are called for one task alone. `InputError` if one
    raises, with the file and the line where it does; of guests only if they return something
    wrong: their rows report other errors. Since their fits take long, they are called for
    `unfinished_tasks` alone.
    """
    called = set[object]()
    guests: dict[object, Task] = {}
    for task in tasks:
        entry, outside = task.settings, task.outside_files
        components = tuple(
            component and component.name
            for component in (entry.method, entry.model, entry.likelihood, entry.prior)
        )
        if entry.limited:
            if task in unfinished_tasks and outside_file(entry.method.build()):
                guests.setdefault(components, task)  # equal components: the first task alone
            continue
        metrics = task.fit_metrics
        if entry.search:
            metrics.append(entry.search.metric)
        uncalled = {}
        for metric in metrics:
            is_outside = outside or outside_file(METRICS.get(metric.name))
            if is_outside and (*components, metric.key) not in called:
                uncalled[metric.key] = metric
        if not uncalled and (not outside or components in called):
            continue
        called.add(components)
        called |= {(*components, key) for key in uncalled}
        _call_components(task, list(uncalled.values()), bool(outside))
    if guests:
        _call_guests(guests.values())


def _call_guests(tasks: Iterable[Task]) -> None:
    """Fit guests to a few rows, in a process that can be ended, as they may hang or exit."""
    with open_local_pool(1, separate_process=True) as workers:
        for task in tasks:
            future = workers.submit(_find_wrong_return, task, ignore_progress, _GUEST_SECONDS)
            try:
                reason = workers.result(future)
            except (LostWorker, OverTime):  # the rows will report it, if it lasts
                continue
            if reason:
                raise InputError(_refusal(f"entries.{task.entry}", task, reason))


def _find_wrong_return(task: Task, report: Progress) -> str | None:
    """Fit a guest to a few rows; say what it returns that is wrong, and where, if it does."""
    try:
        _make_first_update(task)
    except (WrongReturn, UnknownHyperparameter) as error:
        return describe_error(error)
    except (Exception, SystemExit):  # it may be due to so few rows
        pass
    return None


@contextmanager
def shorten_component_errors() -> Iterator[None]:
    """Replace an error inside a component that is a file by one line with its place there."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        location = locate_outside_error(error)
        if location is None:
            raise
        raise InputError(f"{location}: {summarise_error(error)}") from None


def _call_components(task: Task, metrics: Iterable[MetricName], outside: bool) -> None:
    """Begin a fit of a task, and compute scores.

    A fit with components of the package alone (not `outside`) is allowed to fail: only its scores
    are rehearsed.
    """
    reasons: dict[str, str | None] = {}
    try:
        evaluation = make_evaluation(task, task.splits[0], *_make_first_update(task))
        scores = compute_scores(_reduce_evaluation(evaluation), metrics)
        for metric in metrics:
            # a score may not be defined for parameters that are not trained yet
            reasons[f"metric '{metric.name}'"] = scores.raised.get(str(metric))
    except (Exception, SystemExit) as error:
        if outside:
            reasons = {f"entries.{task.entry}": describe_error(error)}
    for component, reason in reasons.items():
        if reason:
            raise InputError(_refusal(component, task, reason))


def _refusal(component: str, task: Task, reason: str) -> str:
    return f"{component} on {task.dataset}: {reason}; mend it: nothing was trained yet"


def _make_first_update(task: Task) -> tuple[Posterior, Buffers, Setting]:
    """Make the first update of a task's first split, at the lower ends of the searched ranges.

    Return the posterior, running statistics and hyper-parameters.
    """
    split = task.splits[0]
    hyper = {**list_extreme_settings(task)[0], **reference_hyper(task, split)}
    fitting: Fitting
    if task.settings.streams:
        fitting = build_final_fitting([(task, split)], [hyper], False)
        schedule = EvaluationSchedule("observations", _FEW_ROWS)
    else:
        setup, rows = build_training_setup(task), task.rows(split).train
        if setup.schedule is None:
            # Without a schedule of minibatches the first update is the whole fit, of all rows it
            # is given.
            rows = _select_few_rows(task, rows)
        trials = setup.trials([(*task.identity, "start")], [rows], [hyper])
        fitting = setup.fitting(trials, rows_to_predict=[task.rows(split).test])
        schedule = EvaluationSchedule("updates", 1)
    snapshot = next(iter(fitting.run(schedule)))
    buffers = {name: value[0] for name, value in snapshot.buffers.items()}
    posterior = fitting.posterior(snapshot, 0)
    if task.settings.streams:  # fits to rows are checked where they start
        with returned_by(fitting.method, "posterior", posterior):
            check_posterior(posterior, task.stream.dim)
    return posterior, buffers, hyper


def _select_few_rows(task: Task, rows: Rows) -> Rows:
    """Select rows at random, all classes among them, of which a method may count the labels."""
    shuffled = np.random.default_rng(0).permutation(rows)
    if task.data.task == "classification":
        _, firsts = np.unique(task.data.y[shuffled], return_index=True)
        # A method that counts the labels would otherwise miss the rare ones among so few rows.
        shuffled = np.concatenate([shuffled[firsts], np.delete(shuffled, firsts)])
        return np.sort(shuffled[: max(_FEW_ROWS, len(firsts))])
    return np.sort(shuffled[:_FEW_ROWS])


def _reduce_evaluation(evaluation: Evaluation) -> Evaluation:
    """Leave out rows where there are many, and most samples."""
    if evaluation.problem is None:
        return evaluation
    rows = slice(max_rows_at_once(evaluation.problem))
    return replace(
        evaluation,
        test=lambda: evaluation.test().take(rows),
        training=lambda: evaluation.training().take(rows),
        samples=_SAMPLES,
    )
