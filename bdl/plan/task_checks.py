"""Checks of tasks, which refuse those that cannot work before anything is written."""

import operator
import re
from typing import cast

import torch

from bdl.errors import InputError
from bdl.methods.base import MinibatchMethod, StreamMethod
from bdl.models import LIKELIHOODS
from bdl.models.modules import Module
from bdl.plan.task import Task
from bdl.plan.workload import count_updates


def check_task(task: Task) -> None:
    """Refuse a task that cannot work.

    It may have no such split, too few rows, or a likelihood, metric or method that does not fit.
    """
    if task.settings.streams:
        _check_stream(task)
        return
    _check_target(task)
    _check_hyper(task)
    method = task.settings.method.build()
    if not method.missing:  # the run reports that a package of the method is not installed
        method.check(task.problem)
    if task.settings.reference is not None:
        task.settings.reference.build().check(task.problem)
    if task.settings.direct and task.problem.buffers():
        raise InputError(
            f"entries.{task.entry}: method '{task.settings.method.name}' gathers no running "
            "statistics; use batch_norm: recompute, of a network that a factory makes"
        )
    warmup = method.idle_epochs if isinstance(method, MinibatchMethod) else 0
    if task.settings.training and task.settings.training.epochs <= warmup:
        raise InputError(
            f"entries.{task.entry}.training.epochs: {task.settings.training.epochs} epochs leave "
            f"nothing after a warm-up of {warmup}; raise epochs or lower warmup_epochs"
        )
    _check_rows(task)


def _check_rows(task: Task) -> None:
    """Refuse too few training rows, and a search by validation rows without any.

    There must be enough for the folds, and for one update.
    """
    search = task.settings.search
    for split in task.splits:
        rows = task.data.split(split).train
        fitted_counts = {len(rows)}
        smallest = len(rows)
        if search is not None and search.folds > 1:
            units = task.data.count_fold_units(rows)
            if search.folds > units:
                kind = "training rows" if task.data.groups is None else "groups that train"
                raise InputError(
                    f"entries.{task.entry}.search.folds: {search.folds} folds but {task.dataset} "
                    f"has {units} {kind}; choose at most {units}"
                )
            fold_rows = task.data.folds(rows, search.folds)
            fitted_counts |= {len(training) for training, _ in fold_rows}
            smallest = min(fitted_counts)
        if task.settings.training and count_updates(task, smallest) == 0:
            raise InputError(
                f"entries.{task.entry}.training: no update fits into {smallest} rows of "
                f"{task.dataset}; lower batch_size or raise epochs"
            )
        for count in fitted_counts:
            check_last_minibatch(task, count)
    by_rows = search is not None and search.folds == 1 and search.metric.info.kind == "predictive"
    if by_rows and any(not len(task.data.split(split).validation) for split in task.splits):
        raise InputError(
            f"entries.{task.entry}.search.folds: 1 stands for the validation rows of a split, and "
            f"{task.dataset} has none; choose 2 folds or more, or a score of the posterior"
        )


def check_last_minibatch(task: Task, rows: int) -> None:
    """Refuse a fit to so many rows of which a minibatch has one row, where the network fails by it.

    Batch normalisation has no statistics of one row.
    """
    training, problem = task.settings.training, task.problem
    if training is None or not isinstance(problem.model, Module):
        return
    batch = min(training.batch_size, rows)
    remainder = rows % batch if training.incomplete == "keep" else 0
    if (remainder or batch) > 1:
        return
    try:
        problem.model(torch.zeros(problem.dim), torch.zeros(1, problem.d_in), problem.d_out)
    except ValueError as error:
        raise InputError(
            f"entries.{task.entry}.training: a minibatch of one row fails ({error}): use "
            "incomplete: drop, or another batch_size"
        ) from None


def _check_stream(task: Task) -> None:
    if task.device != "cpu":
        raise InputError(
            f"--device {task.device}: methods that learn from a stream run on the CPU; "
            "use --device cpu"
        )
    for metric in task.benchmark.metrics:
        if metric.info.kind in ("predictive", "posterior"):
            raise InputError(
                f"metrics: a stream has a distribution, but no targets for '{metric}'; "
                "use distances"
            )
    for split in task.splits:
        task.stream.check(split)
    cast(StreamMethod, task.settings.method.build()).check_dim(task.stream.dim)
    record = task.benchmark.record_of(task.dataset, task.entry)
    if record is not None and task.stream.length < record.first:
        raise InputError(
            f"preparation.rows.{task.dataset}: the first look at a stream is after {record.first} "
            "observations; give at least so many"
        )


def _check_target(task: Task) -> None:
    """Refuse a likelihood or a score that does not suit the targets of the data set."""
    data, likelihood, search = task.data, task.settings.likelihood, task.settings.search
    if likelihood and not likelihood.build().fits(data.classes):
        targets = f"has {data.classes} classes" if data.classes else "is a regression"
        fitting = []
        for name in LIKELIHOODS.builtin:
            if LIKELIHOODS.get(name)().fits(data.classes):
                fitting.append(name)
        raise InputError(
            f"entries.{task.entry}.likelihood: '{likelihood.name}' does not fit dataset "
            f"'{task.dataset}', which {targets}; use {' or '.join(fitting)}"
        )
    metrics_by_field = [("metrics", metric) for metric in task.benchmark.metrics]
    if search:
        metrics_by_field.append((f"entries.{task.entry}.search.metric", search.metric))
    for field, metric in metrics_by_field:
        if metric.info.task not in (None, data.task):
            raise InputError(
                f"{field}: '{metric}' scores a {metric.info.task}, and dataset '{task.dataset}' "
                f"is a {data.task}; use another metric"
            )
        if metric.info.ordered and data.classes > 2 and not data.ordered:
            raise InputError(
                f"{field}: '{metric}' scores ordered classes, and the {data.classes} classes of "
                f"dataset '{task.dataset}' have no order: say it (classes: [low, medium, high]), "
                "or use another metric"
            )
        if metric.info.binary and data.classes > 2:
            raise InputError(
                f"{field}: '{metric}' scores two classes, and dataset '{task.dataset}' has "
                f"{data.classes}: use accuracy, error or nll"
            )
        if metric.settings.get("standardised") and data.standardise != "both":
            raise InputError(
                f"{field}: '{metric}' is in standard deviations of the target, which stays as it "
                "is: use preparation.standardise: both, or leave out standardised"
            )
    if all(len(data.split(split).test) for split in task.splits):
        return
    for metric in task.benchmark.metrics:
        if metric.info.kind == "predictive" or metric.info.by_samples:
            subject = "distances of functions" if metric.info.by_samples else "predictions"
            raise InputError(
                f"metrics: '{metric}' scores {subject}, and dataset '{task.dataset}' has no test "
                "rows; use metrics of the posterior"
            )


def _check_hyper(task: Task) -> None:
    """Compare values and ranges with the limits of components, `hyper_below` and `hyper_above`."""
    search, problem = task.settings.search, task.problem
    components = (task.settings.method.build(), problem.prior, problem.likelihood)
    # By field of the entry: the hyper-parameter, and the smallest or largest value it may have.
    # a limit is one-sided: all of a range keeps it if its end does
    lowest = {f"hyper.{name}": (name, value) for name, value in task.settings.hyper.items()}
    highest = dict(lowest)
    if search:
        for name, bounds in search.space.items():
            highest[f"search.space.{name}.high"] = (name, bounds.high)
            lowest[f"search.space.{name}.low"] = (name, bounds.low)
        for name, values in search.grid.items():
            highest[f"search.grid.{name}"] = (name, max(values))
            lowest[f"search.grid.{name}"] = (name, min(values))
    rules = (
        ("below", "large", highest, operator.ge),
        ("above", "small", lowest, operator.le),
    )
    for side, size, extremes, violates in rules:
        limits: dict[str, float] = {}
        for component in components:
            limits.update(getattr(component, f"hyper_{side}", {}))
        for field, (name, value) in extremes.items():
            if name in limits and violates(value, limits[name]):
                raise InputError(
                    f"entries.{task.entry}.{field}: {value:g} is too {size}; "
                    f"choose a value {side} {limits[name]:g}"
                )


def check_device(device: str) -> None:
    """Raise `InputError` if the machine has no such device."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise InputError(f"--device {device}: use cpu, cuda or cuda:N")
    if device == "cpu":
        return
    if not torch.cuda.is_available():
        raise InputError(f"--device {device}: PyTorch finds no CUDA device here; use --device cpu")
    if (torch.device(device).index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"--device {device}: there are {torch.cuda.device_count()} CUDA devices, "
            "counted from 0"
        )
