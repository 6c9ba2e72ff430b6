"""Scores of a fit, after it or later.

Every metric of the benchmark is a function of one lazy evaluation.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from math import isfinite, nan, prod
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_leaves

from bdl.data.conversion import Inputs
from bdl.errors import InputError, summarise_error
from bdl.execution.limits import is_full_disk
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.targets import Examples
from bdl.plan.reference_posteriors import compute_truth
from bdl.plan.task import Task
from bdl.posteriors.base import Posterior
from bdl.posteriors.predictive import is_predictive
from bdl.records.row import Row
from bdl.records.run_folder import RunFolder
from bdl.records.unusable_fits import DamagedPosterior
from bdl.registry import locate_outside_error, outside_file
from bdl.rng import trial_keys
from bdl.runtime import OverLimit, one_thread
from bdl.search.proposals import Setting
from bdl.spec.labels import MetricName
from bdl.training.trials import fit_scaling

Buffers = Mapping[str, Tensor]


def make_evaluation(
    task: Task, split: int, posterior: Posterior, buffers: Buffers, hyper: Setting
) -> Evaluation:
    """Make the evaluation of a fit, of which its scores are functions.

    Nothing is computed before a score asks for it. Hyper-parameters are in original units.
    """
    streams = task.settings.streams
    generating = None if streams else task.data.generating
    return Evaluation(
        posterior=posterior,
        problem=None if streams else task.problem,
        hyper=hyper,
        test=partial(_split_examples, task, split, "test"),
        training=partial(_split_examples, task, split, "train"),
        samples=task.benchmark.evaluation_of(task.entry).samples,
        # the coordinates of the fit: a score that is computed later draws the same numbers
        key=trial_keys([(*task.identity, split, "final")], "predict")[0],
        buffers=buffers,
        truth=partial(compute_truth, task, split),
        generating=None if generating is None else torch.from_numpy(generating[split]),
    )


def is_finite(posterior: Posterior) -> bool:
    """Return whether all numbers of a posterior are finite."""
    return all(bool(torch.isfinite(leaf).all()) for leaf in tree_leaves(posterior))


_NOT_FINITE = "is no finite number"


class FitScores(NamedTuple):
    """Scores of a fit."""

    values: dict[str, float]
    """By metric; further values of a score are under ``<name>_<suffix>``."""
    refused: Mapping[str, str] = MappingProxyType({})
    """Why a score could not be computed, by metric."""
    without: tuple[str, ...] = ()
    """Scores of parameters, where the method returned predictions alone."""

    @property
    def raised(self) -> dict[str, str]:
        """Reasons of scores that raised an error, by metric."""
        return {
            name: reason
            for name, reason in self.refused.items()
            if not reason.startswith(_NOT_FINITE)
        }

    @property
    def stored(self) -> dict[str, float | None]:
        """Values as rows have them: None where one is not finite, or could not be computed."""
        stored: dict[str, float | None] = dict(self.values)
        for name, value in self.values.items():
            if not isfinite(value):
                stored[name] = None
        return stored | dict.fromkeys((*self.refused, *self.without))


def compute_scores(evaluation: Evaluation, metrics: Iterable[MetricName]) -> FitScores:
    """Compute metrics, NaN for a posterior that is not finite itself.

    One that raises, or returns no finite number, leaves its own column empty with the reason, and
    does not stop the others; but for `OverLimit` when the time of the fits is over, and `OSError`
    if the disk is full, which are no fault of a score.
    """
    if not is_finite(evaluation.posterior):
        return FitScores({str(metric): nan for metric in metrics})
    values: dict[str, float] = {}
    refused: dict[str, str] = {}
    without: list[str] = []
    for metric in metrics:
        if metric.info.kind in ("posterior", "distance") and is_predictive(evaluation.posterior):
            without.append(str(metric))
            continue
        try:
            score = metric.build()
            argument = evaluation if outside_file(score) is None else _copy_for(metric, evaluation)
            with nullcontext() if metric.info.kind == "predictive" else one_thread():
                value = score(argument)
            by_suffix = value if isinstance(value, Mapping) else {"": value}
            numbers = {suffix: float(number) for suffix, number in by_suffix.items()}
            if not numbers:
                raise ValueError("it returned no number")
            if not all(map(isfinite, numbers.values())):
                returned = ", ".join(f"{number:g}" for number in numbers.values())
                refused[str(metric)] = f"{_NOT_FINITE}: {returned}"
                continue
            for suffix, number in numbers.items():
                values[f"{metric}_{suffix}" if suffix else str(metric)] = number
        # SystemExit: a score that calls sys.exit ends its column, not the run
        except (Exception, SystemExit) as error:
            if isinstance(error, OverLimit) or is_full_disk(error):
                raise
            refused[str(metric)] = describe_error(error)
    return FitScores(values, refused, tuple(without))


def _copy_for(metric: MetricName, evaluation: Evaluation) -> Evaluation:
    """Copy what a score of others' code is given, since it may work in place."""
    if metric.info.kind == "predictive":
        with suppress(InputError):  # there may be none
            _ = evaluation.predictions  # which the copies for all scores have then
    return evaluation.copy()


def describe_error(error: BaseException) -> str:
    """Write an error in one line, with its place if that is in a component that is a file."""
    location = locate_outside_error(error)
    summary = summarise_error(error)
    return f"{summary} ({location})" if location else summary


def standardise_examples(task: Task, split: int, x: Inputs, y: NDArray[np.float64]) -> Examples:
    """Standardise rows as the trial of a split does.

    They are in original units, of the data set or new ones.
    """
    scaling = fit_scaling(task.data, [task.rows(split).train])
    inputs = np.asarray(
        (x.reshape(len(x), prod(x.shape[1:])) - scaling.x_mean[0]) / scaling.x_scale[0],
        dtype=np.float64,
    )
    return Examples(
        torch.from_numpy(inputs),
        torch.from_numpy(y),
        float(scaling.y_scale[0]),
        float(scaling.y_mean[0]),
    )


def _split_examples(task: Task, split: int, subset: Literal["train", "test"]) -> Examples:
    rows = getattr(task.rows(split), subset)
    return standardise_examples(task, split, task.data.x[rows], task.data.y[rows])._replace(
        rows=torch.from_numpy(rows)
    )


def rescore(task: Task, run_folder: RunFolder) -> None:
    """Compute the scores that stored final rows of a task lack, or that other code has computed.

    Fits stay as they are. A score that is not finite, or raises, is stored as None, the second
    with its reason; it is computed again each time. Rows without a posterior are left alone: those
    that failed, and those that were imported from published rows, which
    `scores_needing_posteriors` lists. Rows whose posterior turns out to be damaged are removed.
    """
    rescored, damaged = [], []
    for row, metrics in _stale_rows(task, run_folder):
        if row.artefact:
            try:
                posterior, buffers = run_folder.posteriors.read(row.artefact)
            except DamagedPosterior:
                damaged.append(row)
                continue
            evaluation = make_evaluation(task, row.split, posterior, buffers, row.hyper)
            scores = compute_scores(evaluation, metrics)
            # empty what other code computed besides: an error bar, say, of a score that is refused
            outdated = [name for name in row.metrics if task.find_metric(name) in metrics]
            values = dict.fromkeys(outdated) | scores.stored
            rescored.append(
                replace(
                    row,
                    metrics=values,
                    score_hashes=task.score_hashes(values),
                    refusals=dict(scores.refused),
                )
            )
    run_folder.replace_scores(rescored)
    run_folder.remove(damaged)


def scores_needing_posteriors(task: Task, run_folder: RunFolder) -> list[str]:
    """Name the scores of a task that need its fits anew, since final rows have no posterior.

    Final rows lack them, or other code has computed them.
    """
    stale = set()
    for row, metrics in _stale_rows(task, run_folder):
        if not row.artefact:
            stale.update(metrics)
    return [str(metric) for metric in task.fit_metrics if metric in stale]


def _stale_rows(task: Task, run_folder: RunFolder) -> Iterator[tuple[Row, list[MetricName]]]:
    """Yield final rows with the metrics that they lack, or that other code has computed."""
    hashes = {metric: task.score_hash(metric) for metric in task.fit_metrics}
    for row in run_folder.load_rows("final", task.key):
        if row.status != "ok":
            continue
        stale: list[MetricName] = []
        for metric, current in hashes.items():
            # a refused score is tried again: its cause may lie outside the code that is hashed
            if row.score_hashes.get(str(metric)) != current or str(metric) in row.refusals:
                stale.append(metric)
        if stale:
            yield row, stale
