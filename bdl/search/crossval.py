"""k-fold cross-validation of many settings as one program."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import isfinite, nan
from statistics import fmean
from typing import NamedTuple

import torch
from torch.utils._pytree import tree_map

from bdl.data import folds
from bdl.data.splits import Rows, Split
from bdl.errors import in_one_line
from bdl.methods.base import ExternalMethod
from bdl.metrics import Score
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.predictions import Predictions
from bdl.metrics.targets import Examples
from bdl.rng import trial_keys
from bdl.runtime import OverLimit
from bdl.search import Setting
from bdl.training.checkpoint import Checkpoint
from bdl.training.direct import TrainingData
from bdl.training.fitting import Progress, Snapshot, finished
from bdl.training.program import Program
from bdl.training.slots import SlotBatch
from bdl.training.trials import Trials


class FoldScore(NamedTuple):
    """Outcome of one setting on one fold of one split."""

    split: int
    trial: int
    fold: int
    hyper: Setting
    score: float
    """Validation metric; NaN if the trial failed."""
    reason: str | None
    """Why it failed."""
    updates: int


def cross_validate(
    program: Program,
    splits: Mapping[int, Split],
    settings: Mapping[int, Mapping[int, Setting]],
    *,
    slot_batch: Mapping[int, int],
    k: int,
    score: Score,
    identity: Sequence[object],
    compile: bool,
    progress: Progress,
    checkpoint: Checkpoint | None = None,
) -> list[FoldScore]:
    """Score every setting of every split on every fold, all trained together.

    In the order split, trial, fold.

    `settings` are by split and number of the trial, as many of each split. `slot_batch` has the
    splits that may train side by side, those that do among them, with the number of their training
    rows: scores depend on it to the last bit, and not on which of its splits train. `k` is the
    number of folds of the training rows, contiguous, without shuffling; 1 stands for the split's
    validation rows. The lower a score is, the better. (split, trial, fold) is appended to
    `identity`. `compile`, `progress` and `checkpoint` are as for
    `bdl.training.engine.MinibatchFitting`.
    """
    parts = {number: _parts(rows, k) for number, rows in splits.items()}
    names = [
        (split, trial, fold)
        for split, proposed in settings.items()
        for trial in proposed
        for fold in range(k)
    ]
    trials = program.trials(
        [(*identity, *name) for name in names],
        [parts[split][fold][0] for split, _, fold in names],
        [settings[split][trial] for split, trial, _ in names],
    )
    if isinstance(program.method, ExternalMethod):
        alone = (
            _alone(program, trials, i, parts[split][fold][1], score, progress)
            for i, (split, _, fold) in enumerate(names)
        )
        return [
            FoldScore(*name, settings[name[0]][name[1]], *own)
            for name, own in zip(names, alone, strict=True)
        ]
    fitting = program.fitting(
        trials, compile=compile, slot_batch=_places(names, settings, slot_batch, k)
    )
    end = finished(fitting, progress, checkpoint)
    found = dict[int, float]()
    for split, pairs in parts.items():
        for fold, (_, validation) in enumerate(pairs):
            index = [i for i, name in enumerate(names) if name[0] == split and name[2] == fold]
            evaluations = _evaluations(program, trials, end, index, validation, score)
            found |= {
                i: _value(score, evaluation)
                for i, evaluation in zip(index, evaluations, strict=True)
            }
    return [
        FoldScore(*name, settings[name[0]][name[1]], found[i], failure(epoch, found[i]), updates)
        for i, (name, epoch, updates) in enumerate(
            zip(names, end.diverged.tolist(), end.updates.tolist(), strict=True)
        )
    ]


def _parts(split: Split, k: int) -> list[tuple[Rows, Rows]]:
    if k == 1:
        return [(split.train, split.validation)]
    return [
        (split.train[training], split.train[held]) for training, held in folds(len(split.train), k)
    ]


def _places(
    names: Sequence[tuple[int, int, int]],
    settings: Mapping[int, Mapping[int, Setting]],
    slot_batch: Mapping[int, int],
    k: int,
) -> SlotBatch:
    """Return every fold of each split of a slot batch a place, and find those of the folds that train."""
    orders = {split: list(proposed) for split, proposed in settings.items()}
    count = max(map(len, orders.values()))
    sizes = [size for rows in slot_batch.values() for size in _sizes(rows, k) * count]
    first = {split: position * count * k for position, split in enumerate(slot_batch)}
    return SlotBatch(
        sizes,
        [first[split] + orders[split].index(trial) * k + fold for split, trial, fold in names],
    )


def _sizes(rows: int, k: int) -> list[int]:
    return [rows] if k == 1 else [len(own) for own, _ in folds(rows, k)]


def _evaluations(
    program: Program, trials: Trials, end: Snapshot, index: list[int], rows: Rows, score: Score
) -> Iterator[Evaluation]:
    """Yield what some trials are scored by: predictions of rows that they share, unless the score is of posteriors."""
    if score.info.kind != "predictive":  # there may be no rows to predict
        yield from (_evaluation(program, trials, end, i, rows) for i in index)
        return
    predictions = program.predict(trials, end, index, rows)
    for place, i in enumerate(index):
        yield _evaluation(
            program, trials, end, i, rows, Predictions(*(field[place] for field in predictions))
        )


def _evaluation(
    program: Program,
    trials: Trials,
    end: Snapshot,
    i: int,
    rows: Rows,
    predicted: Predictions | None = None,
) -> Evaluation:
    """Return what a trial is scored by on the rows of its fold."""
    training = trials.rows[i]
    return Evaluation(
        posterior=program.method.posterior(tree_map(lambda leaf: leaf[i], end.state)),
        problem=program.problem,
        hyper={name: float(value[i]) for name, value in trials.hyper.items()},
        test=partial(_examples, program, training, rows),
        training=partial(_examples, program, training, training),
        samples=program.samples,
        key=trial_keys([trials.identities[i]], "predict")[0],
        buffers={name: value[i] for name, value in end.buffers.items()},
        predicted=predicted,
    )


def _alone(
    program: Program, trials: Trials, i: int, validation: Rows, score: Score, progress: Progress
) -> tuple[float, str | None, int]:
    """Fit and score one trial of a method that yields its posteriors.

    What it raises is why the trial failed.
    """
    own = trials.take([i])
    try:
        end = finished(program.fitting(own, asked=[validation]), progress)
        found = _value(score, _evaluation(program, own, end, 0, validation))
    except OverLimit:
        raise
    except (Exception, SystemExit) as error:
        return nan, in_one_line(error), 0
    return found, failure(0, found), int(end.updates[0])


def _examples(program: Program, training: Rows, rows: Rows) -> Examples:
    """Standardise rows as a trial does that is trained on others."""
    data = TrainingData.of(program.dataset, training, rows)
    y, numbers = torch.from_numpy(program.dataset.y[rows]), torch.from_numpy(rows)
    return Examples(data.x.float(), y, data.y_unit, data.y_origin, numbers)


def _value(score: Score, evaluation: Evaluation) -> float:
    value = score(evaluation)
    return value[""] if isinstance(value, Mapping) else value


def failure(diverged: int, score: float) -> str | None:
    """Describe why a trial failed: the epoch in which its state became non-finite, or its metric.

    Or None.
    """
    if diverged:
        return f"non-finite parameters in epoch {diverged}"
    return None if isfinite(score) else "non-finite metric"


def best_setting(scores: Sequence[FoldScore]) -> Setting | None:
    """Choose the setting of one split with the lowest mean score.

    None if none finished all its folds.
    """
    finished = [
        own for own in _by_trial(scores).values() if not any(score.reason for score in own)
    ]
    best = min(finished, key=lambda own: fmean(score.score for score in own), default=None)
    return None if best is None else best[0].hyper


def told(scores: Sequence[FoldScore], penalty: float | None) -> list[tuple[Setting, float]]:
    """Sum up the trials of one split for the study that proposes the next: the mean over the folds of each.

    `penalty` is the score of a failed fold; None stands for the worst score of a finished one, NaN
    if there is none.
    """
    if penalty is None:
        penalty = max((score.score for score in scores if not score.reason), default=nan)
    return [
        (own[0].hyper, fmean(penalty if score.reason else score.score for score in own))
        for own in _by_trial(scores).values()
    ]


def _by_trial(scores: Sequence[FoldScore]) -> dict[int, list[FoldScore]]:
    by_trial: dict[int, list[FoldScore]] = {}
    for score in scores:
        by_trial.setdefault(score.trial, []).append(score)
    return by_trial
