"""Choose the hyper-parameters and the training that a caller leaves out.

The choice rests on the training rows alone, and does not depend on their units.
"""

from collections.abc import Mapping, Sequence
from math import ceil, exp, log
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from bdl.data import Dataset
from bdl.data.splits import Rows, Split
from bdl.errors import InputError
from bdl.methods.laplace import Laplace
from bdl.metrics.likelihoods import Nmll
from bdl.models.likelihoods import GaussianLikelihood
from bdl.models.linear import best_precisions
from bdl.models.networks import LinearModel
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem, full_batch, log_joint
from bdl.plan import Task
from bdl.plan.fittings import build_training_setup
from bdl.runtime import one_thread
from bdl.search import propose
from bdl.search.crossval import choose_best_setting, cross_validate
from bdl.spec.entry import Search
from bdl.training.direct import TrainingData
from bdl.training.fitting import ignore_progress

_UPDATES, _BATCH = 500, 100
"""Updates of a fit, and rows of a minibatch, where the caller leaves both out."""
_EVIDENCE_ROWS = 10_000
"""Rows, drawn at random, that the evidence is computed from.

More would change one or two numbers little.
"""
_LAPLACE_PARAMETERS = 300
"""Parameters up to which Laplace's evidence is computed in seconds."""
_SEARCH_PARAMETERS = 50_000
"""Parameters up to which a search is made."""
_SEARCH_ROWS = 20
"""Rows from which on a search is made; with fewer, too few would be held out."""
_TRIALS = 16
_RANGES = {
    "prior_precision": (1e-2, 1e2),
    "noise_precision": (1.0, 1e3),
    "learning_rate": (1e-3, 1e-1),
    "dropout_rate": (0.01, 0.5),
}
"""Bounds of a search on a logarithmic scale; a noise precision in 1 / variance of the targets."""
_DEFAULTS = {"prior_precision": 1.0, "learning_rate": 0.03, "dropout_rate": 0.1}
"""Values where a search would cost too much, or is not needed.

The standardised inputs of a linear model have one scale.
"""


def default_training(rows: int, batches_per_step: int) -> dict[str, Any]:
    """Return a training of about 500 updates, given the rows and the minibatches of an update."""
    batch = max(1, min(_BATCH, rows // 2))
    return {"epochs": ceil(_UPDATES * batches_per_step / (rows // batch)), "batch_size": batch}


def check_automatic_names(names: Sequence[str]) -> None:
    """Raise `InputError` if a hyper-parameter is not one of those that can be chosen."""
    for name in names:
        if name not in _RANGES:
            raise InputError(f"hyper.{name}: there is no automatic choice: give a number")


def choose_hyper(
    task: Task, fixed_hyper: Mapping[str, float], names: Sequence[str]
) -> dict[str, float]:
    """Choose the hyper-parameters `names` on the training rows of the task's only split.

    Return them with the `fixed` ones, all in original units.

    The evidence chooses where it is in closed form or near it: for linear models. Those of
    networks are searched on a fifth of the rows that is held out, all trials side by side; where
    that would take too long, the noise is that of the best linear model, and the others are
    constants in standardised units. `InputError` if every trial of the search fails.
    """
    rows, problem = task.rows(task.splits[0]).train, task.problem
    values = dict(fixed_hyper) | _choose_by_evidence(task.data, problem, rows, fixed_hyper, names)
    remaining_names = [name for name in names if name not in values]
    if not remaining_names:
        return values
    needs_no_search = isinstance(problem.model, LinearModel) or task.settings.training is None
    if not needs_no_search and problem.dim <= _SEARCH_PARAMETERS and len(rows) >= _SEARCH_ROWS:
        return _search_hyper(task, rows, values, remaining_names)
    values |= {name: _DEFAULTS[name] for name in remaining_names if name != "noise_precision"}
    if "noise_precision" in remaining_names:
        values |= _maximise_linear_evidence(task.data, problem, rows, {}, {"noise_precision"})
    return values


def _choose_by_evidence(
    data: Dataset,
    problem: Problem,
    rows: Rows,
    fixed_hyper: Mapping[str, float],
    names: Sequence[str],
) -> dict[str, float]:
    """Choose the precisions of a linear model by its evidence; empty for other models.

    They are in original units, as those that are `fixed`.
    """
    precisions = {"prior_precision", "noise_precision"} & {*names}
    if (
        not precisions
        or not isinstance(problem.model, LinearModel)
        or not isinstance(problem.prior, GaussianPrior)
    ):
        return {}
    if isinstance(problem.likelihood, GaussianLikelihood):
        return _maximise_linear_evidence(data, problem, rows, fixed_hyper, precisions)
    if fixed_hyper.keys() >= {*problem.likelihood.hyper} and problem.dim <= _LAPLACE_PARAMETERS:
        training = TrainingData.of(data, _subsample(rows))
        return {"prior_precision": _maximise_laplace_evidence(training, problem, fixed_hyper)}
    return {}


def _maximise_linear_evidence(
    data: Dataset, problem: Problem, rows: Rows, fixed_hyper: Mapping[str, float], names: set[str]
) -> dict[str, float]:
    """Maximise the evidence of a linear model of the inputs over the precisions `names`.

    The problem's own model may be another one.
    """
    training = TrainingData.of(data, _subsample(rows))
    linear = problem.model if isinstance(problem.model, LinearModel) else LinearModel()
    fixed_scaled = problem.likelihood.to_model_units(dict(fixed_hyper), training.y_unit)
    design, y = linear.design(training.x).numpy(), training.y.numpy()
    with one_thread():
        precisions = best_precisions(
            design, y, fixed_scaled.get("prior_precision"), fixed_scaled.get("noise_precision")
        )
    chosen = dict(zip(("prior_precision", "noise_precision"), precisions, strict=True))
    original = problem.likelihood.to_original_units(chosen, training.y_unit)
    return {name: original[name] for name in names}


def _maximise_laplace_evidence(
    training: TrainingData, problem: Problem, fixed_hyper: Mapping[str, float]
) -> float:
    """Maximise Laplace's approximation of the evidence over the prior precision.

    It is log p(D, mode) - log q(mode).
    """
    batch = full_batch(training.x, training.y)

    def negative_evidence(log_precision: float) -> float:
        hyper = training.hyper({**fixed_hyper, "prior_precision": exp(log_precision)}, problem)
        posterior = Laplace().fit(problem, training.x, training.y, hyper)
        mode = posterior.mean()
        return float(
            posterior.log_prob(mode)
            - log_joint(mode.unsqueeze(0), problem, batch, hyper).squeeze(0)
        )

    with one_thread():
        optimum = minimize_scalar(
            negative_evidence,
            bounds=(log(1e-3), log(1e3)),
            method="bounded",
            options={"xatol": 0.05},
        )
    return exp(optimum.x)


def _search_hyper(
    task: Task, rows: Rows, values: Mapping[str, float], names: Sequence[str]
) -> dict[str, float]:
    """Train candidates side by side on four fifths of the rows, and return the best one.

    It is the one with the best predictions of the other fifth.
    """
    shuffled = np.random.default_rng(task.benchmark.seed).permutation(rows)
    n_held_out = len(rows) // 5
    split = Split(shuffled[n_held_out:], rows[:0], shuffled[:n_held_out])
    variance = float(np.var(task.data.y[rows])) or 1.0  # of constant targets it is 0
    low, high = _RANGES["noise_precision"]
    ranges = _RANGES | {"noise_precision": (low / variance, high / variance)}
    space = {
        name: {"low": ranges[name][0], "high": ranges[name][1], "scale": "log"} for name in names
    }
    search = {
        "sampler": "random",
        "trials": _TRIALS,
        "folds": 1,
        "metric": "nmll",
        "space": space,
    }
    candidates = [
        {**values, **setting}
        for setting in propose(Search.model_validate(search), task.benchmark.seed, ())
    ]
    scores = cross_validate(
        build_training_setup(task),
        {0: split},
        {0: dict(enumerate(candidates))},
        slot_batch={0: split},
        k=1,
        score=Nmll(),
        identity=(*task.identity, "search"),
        compile=False,
        progress=ignore_progress,
    )
    best = choose_best_setting(scores)
    if best is None:
        raise InputError(
            f"hyper: every trial of the search failed ({scores[0].reason}): give the values"
        )
    return best


def _subsample(rows: Rows) -> Rows:
    if len(rows) <= _EVIDENCE_ROWS:
        return rows
    return np.sort(np.random.default_rng(0).permutation(rows)[:_EVIDENCE_ROWS])
