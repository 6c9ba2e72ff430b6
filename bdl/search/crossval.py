"""Scores of settings by k-fold cross-validation, all trained as one program.

`bdl.search.choice` chooses the best of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from math import isfinite, nan
from typing import NamedTuple

import torch
from torch.utils._pytree import tree_map

from bdl.data import Dataset
from bdl.data.splits import Rows, Split
from bdl.errors import summarise_error
from bdl.methods.base import ExternalMethod
from bdl.metrics import Score
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.predictions import Predictions
from bdl.metrics.targets import Examples
from bdl.rng import trial_keys
from bdl.runtime import OverLimit
from bdl.search.proposals import Setting
from bdl.training.checkpoint import Checkpoint
from bdl.training.direct import TrainingData
from bdl.training.fitting import Progress, Snapshot, run_to_end
from bdl.training.setup import TrainingSetup
from bdl.training.slots import SlotBatch
from bdl.training.trials import Trials


class FoldScore(NamedTuple):
    """Score of one setting on one fold of one split."""

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
    setup: TrainingSetup,
    splits: Mapping[int, Split],
    settings: Mapping[int, Mapping[int, Setting]],
    *,
    slot_batch: Mapping[int, Split],
    k: int,
    score: Score,
    identity: Sequence[object],
    compile: bool,
    progress: Progress,
    checkpoint: Checkpoint | None = None,
) -> list[FoldScore]:
    """Score every setting of every split on every fold, all trained together.

    Return the scores in the order split, trial, fold.

    `settings` are by split and number of the trial, as many of each split. `slot_batch` has the
    splits that may train side by side, those that do among them: scores depend on the sizes of
    their folds to the last bit, and not on which of them train. `k` is the number of folds of the
    training rows, for which see `bdl.data.Dataset.folds`; 1 stands for the split's validation
    rows. The lower a score is, the better. (split, trial, fold) is appended to
    `identity`. `compile`, `progress` and `checkpoint` are as for
    `bdl.training.engine.MinibatchFitting`.
    """
    fold_rows = {number: _split_folds(setup.dataset, rows, k) for number, rows in splits.items()}
    coordinates: list[tuple[int, int, int]] = []
    for split, split_settings in settings.items():
        for trial, fold in product(split_settings, range(k)):
            coordinates.append((split, trial, fold))
    trials = setup.trials(
        [(*identity, *trial_coordinates) for trial_coordinates in coordinates],
        [fold_rows[split][fold][0] for split, _, fold in coordinates],
        [settings[split][trial] for split, trial, _ in coordinates],
    )
    fold_scores = []
    if isinstance(setup.method, ExternalMethod):
        # One by one: such a method trains by itself, out of reach of the batched program.
        for i, (split, trial, fold) in enumerate(coordinates):
            validation = fold_rows[split][fold][1]
            number, reason, updates = _score_external_trial(
                setup, trials, i, validation, score, progress
            )
            hyper = settings[split][trial]
            fold_scores.append(FoldScore(split, trial, fold, hyper, number, reason, updates))
        return fold_scores
    fold_sizes: dict[int, list[int]] = {}
    for split, rows in slot_batch.items():
        folds = _split_folds(setup.dataset, rows, k)
        fold_sizes[split] = [len(training) for training, _ in folds]
    batch = _make_slot_batch(coordinates, settings, fold_sizes, k)
    fitting = setup.fitting(trials, compile=compile, slot_batch=batch)
    end = run_to_end(fitting, progress, checkpoint)
    numbers = dict[int, float]()
    for split, folds_of_split in fold_rows.items():
        for fold, (_, validation) in enumerate(folds_of_split):
            # trials of a fold share their validation rows, which are predicted at once
            index = [i for i, (s, _, f) in enumerate(coordinates) if (s, f) == (split, fold)]
            evaluations = _iterate_evaluations(setup, trials, end, index, validation, score)
            for i, evaluation in zip(index, evaluations, strict=True):
                numbers[i] = _compute_score(score, evaluation)
    epochs, updates_of_trials = end.diverged.tolist(), end.updates.tolist()
    for i, (split, trial, fold) in enumerate(coordinates):
        reason = describe_failure(epochs[i], isfinite(numbers[i]), "metric")
        hyper = settings[split][trial]
        fold_scores.append(
            FoldScore(split, trial, fold, hyper, numbers[i], reason, updates_of_trials[i])
        )
    return fold_scores


def _split_folds(dataset: Dataset, split: Split, k: int) -> list[tuple[Rows, Rows]]:
    """Return training and validation rows of each fold."""
    return [(split.train, split.validation)] if k == 1 else dataset.folds(split.train, k)


def _make_slot_batch(
    coordinates: Sequence[tuple[int, int, int]],
    settings: Mapping[int, Mapping[int, Setting]],
    fold_sizes: Mapping[int, Sequence[int]],
    k: int,
) -> SlotBatch:
    """Reserve a slot for every fold of each split of a slot batch, and find those that train.

    `fold_sizes` are the training rows of each fold, by split. Splits that do not train now have
    slots as well, so that numbers do not depend on them.
    """
    trial_numbers = {split: list(split_settings) for split, split_settings in settings.items()}
    count = max(map(len, trial_numbers.values()))
    sizes: list[int] = []
    for sizes_of_split in fold_sizes.values():
        sizes += [*sizes_of_split] * count
    first_slots = {split: i * count * k for i, split in enumerate(fold_sizes)}
    slots = [
        first_slots[split] + trial_numbers[split].index(trial) * k + fold
        for split, trial, fold in coordinates
    ]
    return SlotBatch(sizes, slots)


def _iterate_evaluations(
    setup: TrainingSetup,
    trials: Trials,
    end: Snapshot,
    index: list[int],
    rows: Rows,
    score: Score,
) -> Iterator[Evaluation]:
    """Yield an evaluation for each of some trials that share their rows.

    Where the score is of predictions, all are predicted at once.
    """
    if score.info.kind != "predictive":  # there may be no rows to predict
        yield from (_make_evaluation(setup, trials, end, i, rows) for i in index)
        return
    predictions = setup.predict(trials, end, index, rows)
    for position, i in enumerate(index):
        trial_predictions = Predictions(*(field[position] for field in predictions))
        yield _make_evaluation(setup, trials, end, i, rows, trial_predictions)


def _make_evaluation(
    setup: TrainingSetup,
    trials: Trials,
    end: Snapshot,
    i: int,
    rows: Rows,
    predicted: Predictions | None = None,
) -> Evaluation:
    """Return the evaluation of a trial on the rows of its fold."""
    training = trials.rows[i]
    return Evaluation(
        posterior=setup.method.posterior(tree_map(lambda leaf: leaf[i], end.state)),
        problem=setup.problem,
        hyper={name: float(value[i]) for name, value in trials.hyper.items()},
        test=partial(_standardise_rows, setup, training, rows),
        training=partial(_standardise_rows, setup, training, training),
        samples=setup.samples,
        key=trial_keys([trials.identities[i]], "predict")[0],
        buffers={name: value[i] for name, value in end.buffers.items()},
        predicted=predicted,
    )


def _score_external_trial(
    setup: TrainingSetup,
    trials: Trials,
    i: int,
    validation: Rows,
    score: Score,
    progress: Progress,
) -> tuple[float, str | None, int]:
    """Fit one trial of an external method; return its score, reason of failure and updates.

    An exception is the reason of failure.
    """
    trial = trials.take([i])
    try:
        end = run_to_end(setup.fitting(trial, rows_to_predict=[validation]), progress)
        number = _compute_score(score, _make_evaluation(setup, trial, end, 0, validation))
    # The time is that of the group: its end says nothing of this trial.
    except OverLimit:
        raise
    except (Exception, SystemExit) as error:
        return nan, summarise_error(error), 0
    return number, describe_failure(0, isfinite(number), "metric"), int(end.updates[0])


def _standardise_rows(setup: TrainingSetup, training: Rows, rows: Rows) -> Examples:
    """Standardise rows as a trial does that trains on the training rows."""
    data = TrainingData.of(setup.dataset, training, rows)
    y, numbers = torch.from_numpy(setup.dataset.y[rows]), torch.from_numpy(rows)
    return Examples(data.x.float(), y, data.y_unit, data.y_origin, numbers)


def _compute_score(score: Score, evaluation: Evaluation) -> float:
    value = score(evaluation)
    return value[""] if isinstance(value, Mapping) else value


def describe_failure(diverged: int, is_finite: bool, quantity: str) -> str | None:
    """Describe why a fit failed, None if it did not.

    Its parameters became non-finite in the epoch `diverged`, 0 for never; or a quantity that comes
    of it is not finite.
    """
    if diverged:
        return f"non-finite parameters in epoch {diverged}"
    return None if is_finite else f"non-finite {quantity}"
