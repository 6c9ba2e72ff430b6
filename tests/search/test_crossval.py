"""Cross-validation of many settings at once against one fit at a time."""

from math import inf, nan

import numpy as np
import pytest
import torch
from scipy import special, stats
from sklearn.model_selection import KFold

from bdl.data import Dataset, Split
from bdl.methods.vifa import Vifa
from bdl.metrics import METRICS
from bdl.metrics.elbo import NegElbo
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.targets import Examples
from bdl.models.likelihoods import GaussianLikelihood
from bdl.models.networks import LinearModel
from bdl.models.problem import Problem
from bdl.rng import random_normals, trial_keys
from bdl.search.choice import choose_best_setting, summarise_trials
from bdl.search.crossval import FoldScore, cross_validate, describe_failure
from bdl.training.direct import TrainingData
from bdl.training.fitting import run_to_end
from bdl.training.schedule import Schedule
from bdl.training.setup import TrainingSetup
from bdl.training.trials import Pool

HYPER = {"learning_rate": 0.05, "prior_precision": 0.5, "noise_precision": 0.01}
SETTINGS = {
    4: {0: HYPER, 1: HYPER | {"learning_rate": 0.2}, 2: HYPER | {"noise_precision": 0.02}},
    1: {7: HYPER | {"prior_precision": 5.0}},
}
"""Three first trials of one split, and the eighth of another."""
TRAINING = {4: np.arange(49, 2, -1), 1: np.arange(0, 50, 2)}
"""47 and 25 training rows: in three folds they leave 31, 31, 32 and 16, 17, 17."""


NO_ROWS = np.arange(0)


@pytest.fixture(scope="module")
def program() -> TrainingSetup:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(50, 2))
    data = Dataset("toy", x, 100 + 10 * (x @ [1.0, -2.0] + 0.3 * generator.normal(size=50)))
    return TrainingSetup(
        data,
        Pool.load(data),
        Problem(LinearModel(), GaussianLikelihood(), d_in=2),
        Vifa(gradients_per_update=2),
        Schedule(epochs=6, batch_size=8),
        samples=20,
    )


def scored(
    program: TrainingSetup, splits: dict, settings: dict, k: int, metric: str = "nmll"
) -> list[FoldScore]:
    return cross_validate(
        program,
        splits,
        settings,
        slot_batch={split: Split(rows, NO_ROWS) for split, rows in TRAINING.items()},
        k=k,
        score=METRICS.build(metric, {}),
        identity=("b", 7),
        compile=False,
        progress=lambda minibatches: None,
    )


def validated(program: TrainingSetup, settings: dict) -> list[FoldScore]:
    return scored(
        program, {split: Split(TRAINING[split], NO_ROWS) for split in settings}, settings, 3
    )


@pytest.fixture(scope="module")
def healthy(program) -> list[FoldScore]:
    return validated(program, SETTINGS)


def alone(program: TrainingSetup, split: int, trial: int, fold: int) -> float:
    """Train one setting on the other folds, as scikit-learn cuts them, and score this one."""
    rows, setting, data = TRAINING[split], SETTINGS[split][trial], program.dataset
    train, validation = (rows[part] for part in list(KFold(3).split(rows))[fold])
    identity = [("b", 7, split, trial, fold)]
    fitting = program.fitting(program.trials(identity, [train], [setting]))
    posterior = fitting.posterior(run_to_end(fitting), 0)
    pairs = (20 * posterior.noise_dim + 1) // 2
    halves = random_normals(
        trial_keys(identity, "predict"), torch.zeros((), dtype=torch.int32), pairs
    )
    theta = (
        posterior.sample(torch.cat(halves, 1)[0, : 20 * posterior.noise_dim].view(20, -1))
        .double()
        .numpy()
    )
    x, y = data.x[train], data.y[train]
    design = np.append(
        (data.x[validation] - x.mean(0)) / x.std(0), np.ones((len(validation), 1)), axis=1
    )
    law = stats.norm(y.mean() + y.std() * theta @ design.T, setting["noise_precision"] ** -0.5)
    return np.log(20) - special.logsumexp(law.logpdf(data.y[validation]), axis=0).mean()


def test_every_setting_is_scored_on_every_fold_as_if_it_were_alone(program, healthy):
    """Rows, identity, setting and noise precision are the trial's own: nothing is exchanged."""
    names = [
        (split, trial, fold) for split in (4, 1) for trial in SETTINGS[split] for fold in range(3)
    ]
    assert [(score.split, score.trial, score.fold) for score in healthy] == names
    # 31 or 32 rows make 3 or 4 minibatches of 8, 16 or 17 make 2: six epochs, two minibatches an
    # update
    assert [score.updates for score in healthy] == [9, 9, 12] * 3 + [6] * 3
    for score in healthy:
        assert score.hyper == SETTINGS[score.split][score.trial]
        assert score.reason is None
        assert score.score == pytest.approx(
            alone(program, score.split, score.trial, score.fold), rel=1e-4
        )


def test_one_fold_trains_on_the_training_rows_and_scores_validation_rows(program):
    """They are named so that the first of two folds has the same rows."""
    held, kept = TRAINING[4][:24], TRAINING[4][24:]
    (alone,) = scored(program, {4: Split(kept, NO_ROWS, held)}, {4: {0: SETTINGS[4][0]}}, 1)
    first, _ = scored(program, {4: Split(TRAINING[4], NO_ROWS)}, {4: {0: SETTINGS[4][0]}}, 2)
    assert (alone.updates, alone.fold) == (first.updates, 0)
    assert alone.score == pytest.approx(first.score, rel=1e-5)


def test_one_fold_scored_by_the_posterior_needs_no_other_rows(program):
    """Settings are held against the rows that they are trained on: all of them, and no others."""
    rows = TRAINING[4]
    found, again = (
        scored(program, {4: Split(rows, NO_ROWS, *held)}, {4: SETTINGS[4]}, 1, "neg_elbo")
        for held in ((), (np.array([0]),))
    )
    assert found == again
    assert all(score.reason is None and score.updates == 15 for score in found)
    identity = [("b", 7, 4, 0, 0)]
    fitting, data = (
        program.fitting(program.trials(identity, [rows], [HYPER])),
        TrainingData.of(program.dataset, rows),
    )
    seen = Examples(data.x, torch.from_numpy(program.dataset.y[rows]), data.y_unit, data.y_origin)
    posterior, key = fitting.posterior(run_to_end(fitting), 0), trial_keys(identity, "predict")[0]
    alone = NegElbo()(
        Evaluation(posterior, program.problem, HYPER, lambda: seen, lambda: seen, 20, key)
    )
    assert found[0].score == pytest.approx(alone[""], rel=1e-4)


def test_a_failed_setting_says_why_and_spoils_no_other(program, healthy):
    bad = {**SETTINGS, 4: SETTINGS[4] | {1: HYPER | {"learning_rate": nan}}}
    found = validated(program, bad)
    for score, other in zip(found, healthy, strict=True):
        if (score.split, score.trial) == (4, 1):
            assert score.reason == "non-finite parameters in epoch 1"
            assert np.isnan(score.score)
        else:
            assert score == other
    assert choose_best_setting([score for score in found if score.split == 4]) in (
        SETTINGS[4][0],
        SETTINGS[4][2],
    )


def score(trial: int, fold: int, value: float, reason: str | None = None) -> FoldScore:
    return FoldScore(0, trial, fold, {"learning_rate": float(trial)}, value, reason, 5)


FINISHED = [score(1, 0, 3.0), score(1, 1, 3.0)]
FAILED = [score(0, 0, -9.0), score(0, 1, nan, "non-finite metric")]


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([score(0, 0, 0.0), score(0, 1, 8.0), *FINISHED], 1),
        (FAILED + FINISHED, 1),
        (FAILED, None),
        ([], None),
    ],
)
def test_the_best_setting_has_the_lowest_mean_and_no_failed_fold(scores, best):
    expected = None if best is None else {"learning_rate": best}
    assert choose_best_setting(scores) == choose_best_setting(scores[::-1]) == expected


@pytest.mark.parametrize(("penalty", "expected"), [(None, (3 + 7) / 2), (5.0, 4.0), (-1.0, 1.0)])
def test_a_failed_fold_counts_as_the_penalty_or_as_the_worst_that_finished(penalty, expected):
    """Whether the failed fold holds a number or not, and whether the worst fold comes before or after it."""
    for value in (nan, inf, 1e9):
        failed = [score(1, 0, 3.0), score(1, 1, value, "why")]
        others = [score(0, 0, 7.0), score(0, 1, 1.0)], [score(2, 0, 6.0), score(2, 1, 6.0)]
        found = summarise_trials([*others[0], *failed, *others[1]], penalty)
        assert found == [
            ({"learning_rate": trial}, mean) for trial, mean in enumerate((4.0, expected, 6.0))
        ]


def test_without_a_finished_fold_there_is_nothing_to_tell_but_the_penalty():
    failed = [score(0, 0, nan, "why"), score(0, 1, nan, "why")]
    assert np.isnan(summarise_trials(failed, None)[0][1])
    assert summarise_trials(failed, 5.0) == [({"learning_rate": 0.0}, 5.0)]


@pytest.mark.parametrize(
    ("diverged", "is_finite", "reason"),
    [
        (0, True, None),
        (3, False, "non-finite parameters in epoch 3"),
        (0, False, "non-finite metric"),
    ],
)
def test_why_a_trial_failed(diverged, is_finite, reason):
    assert describe_failure(diverged, is_finite, "metric") == reason
