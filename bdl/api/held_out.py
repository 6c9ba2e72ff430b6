"""Choose one of several settings by rows that are held out, and calibrate its predictions there."""

import warnings
from collections.abc import Mapping, Sequence

import numpy as np

from bdl.api.spread import CalibratedNmll, Choice
from bdl.data.splits import Rows, Split
from bdl.errors import InputError
from bdl.metrics import Score
from bdl.metrics.likelihoods import Nmll
from bdl.plan.fittings import build_training_setup
from bdl.plan.initial_check import check_range
from bdl.plan.task import Task
from bdl.plan.task_checks import check_last_minibatch
from bdl.search.choice import choose_best_setting
from bdl.search.crossval import FoldScore, cross_validate
from bdl.search.proposals import Setting
from bdl.training.fitting import ignore_progress

_FOLDS = 5
"""Parts of the rows that are held out, each in turn."""
_RATE_ROUNDS, _RATE_FACTOR = 3, 1 / 30
"""Rounds in which settings are tried, and the factor of the learning rate from one to the next.

The steps of some methods, such as SGD, grow with the noise precision, and diverge at most rates
that suit others.
"""
_POOR_MARGIN = 0.5
"""Nats a row by which predictions may be worse than a constant before a warning says so."""


def choose_on_held_out_rows(
    task: Task,
    rows: Rows,
    candidates: Sequence[Setting],
    names: Sequence[str],
) -> Choice:
    """Choose the candidate with the best predictions of a fifth of the rows, and calibrate it.

    All train side by side on the other rows. If the noise precision is among the `names`, they are
    compared by `CalibratedNmll`, since the noise under which a candidate was trained says little
    about its errors on other rows. The best one is then fitted to the rows without each fifth in
    turn, and calibrated by the errors there: those of one fit would be those of a lucky or an
    unlucky start. A candidate of which one of these fits fails is left out, and the next best is
    calibrated. Of a single candidate the errors of the first fit serve.
    """
    if task.settings.training is not None:
        check_range(task, candidates)
        for held_out in (len(rows) // _FOLDS, -(-len(rows) // _FOLDS)):
            check_last_minibatch(task, len(rows) - held_out)
    shuffled = np.random.default_rng(task.benchmark.seed).permutation(rows)
    n_held_out = len(rows) // _FOLDS
    split = Split(shuffled[n_held_out:], rows[:0], shuffled[:n_held_out])
    chooses_noise = "noise_precision" in names
    calibrated = CalibratedNmll(target_variance(task, rows), has_both_precisions(names))
    score: Score = calibrated if chooses_noise else Nmll()
    finished = _search(task, split, candidates, score, "learning_rate" in names)
    _warn_of_poor_predictions(task, split, min(trial.score for trial in finished), names)
    if chooses_noise and len(candidates) == 1:
        return calibrated.calibrate(finished[0].hyper)
    while best := choose_best_setting(finished):
        if not chooses_noise:
            return Choice(best)
        calibrated = CalibratedNmll(target_variance(task, rows), has_both_precisions(names))
        all_rows = Split(shuffled, rows[:0], rows[:0])
        folds = _cross_validate(task, {0: best}, all_rows, _FOLDS, calibrated, "calibration")
        if not any(fold.reason for fold in folds):
            return calibrated.calibrate(best)
        finished = [trial for trial in finished if trial.hyper != best]
    raise InputError(
        "hyper: every trial that finished failed without a fifth of the rows: give the values"
    )


def _search(
    task: Task, split: Split, candidates: Sequence[Setting], score: Score, may_lower_rate: bool
) -> list[FoldScore]:
    """Score candidates on the rows that validate, and return the trials that finished.

    While most trials have failed, those that did are made again at a lower learning rate, if that
    may be chosen. `InputError` if all fail.
    """
    settings = dict(enumerate(candidates))
    finished: list[FoldScore] = []
    for _ in range(_RATE_ROUNDS if may_lower_rate else 1):
        trials = _cross_validate(task, settings, split, 1, score, "search")
        finished += [trial for trial in trials if not trial.reason]
        if 2 * len(finished) >= len(candidates):
            break
        settings = {
            len(candidates) + trial.trial: {
                **trial.hyper,
                "learning_rate": _RATE_FACTOR * trial.hyper["learning_rate"],
            }
            for trial in trials
            if trial.reason
        }
    if not finished:
        raise InputError(
            f"hyper: every trial of the search failed ({trials[0].reason}): give the values"
        )
    return finished


def has_both_precisions(names: Sequence[str]) -> bool:
    """Return whether prior and noise precision are among the names."""
    return {"prior_precision", "noise_precision"} <= {*names}


def _warn_of_poor_predictions(task: Task, split: Split, nmll: float, names: Sequence[str]) -> None:
    """Warn where a constant, the law of the training targets, predicts the held-out rows better."""
    training, held_out = task.data.y[split.train], task.data.y[split.validation]
    if task.data.classes:
        counts = 1 + np.bincount(training.astype(int), minlength=task.data.classes)
        constant = float(-np.log(counts / counts.sum())[held_out.astype(int)].mean())
    else:
        variance = target_variance(task, split.train)
        squares = np.square(held_out - training.mean()) / variance
        constant = float(np.mean(squares + np.log(2 * np.pi * variance)) / 2)
    if nmll > constant + _POOR_MARGIN:
        warnings.warn(
            f"{task.settings.method.name}: the automatic settings predict rows held out worse than "
            f"a constant does, by {nmll - constant:.2g} nats a row: give {', '.join(names)}, or "
            "a longer training",
            UserWarning,
            stacklevel=2,
        )


def _cross_validate(
    task: Task, settings: Mapping[int, Setting], split: Split, k: int, score: Score, stage: str
) -> list[FoldScore]:
    """Score settings by number on `k` folds, or on the validation rows, side by side."""
    return cross_validate(
        build_training_setup(task),
        {0: split},
        {0: {number: dict(setting) for number, setting in settings.items()}},
        slot_batch={0: split},
        k=k,
        score=score,
        identity=(*task.identity, stage),
        compile=False,
        progress=ignore_progress,
    )


def target_variance(task: Task, rows: Rows) -> float:
    """Compute the variance of the targets, 1 if they are constant."""
    targets = task.data.y[rows]
    # rounding alone would give constant targets a variance
    return float(np.var(targets)) if np.ptp(targets) else 1.0
