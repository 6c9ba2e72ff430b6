"""Choose the hyper-parameters and the training that a caller leaves out.

The choice rests on the training rows alone, and does not depend on their units.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil, exp, log
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from bdl.api.held_out import choose_on_held_out_rows, has_both_precisions, target_variance
from bdl.api.spread import SCORED_ROWS, Choice
from bdl.data import Dataset
from bdl.data.splits import Rows
from bdl.errors import InputError
from bdl.methods.base import MinibatchMethod
from bdl.methods.langevin import CyclicalSgmcmc
from bdl.methods.laplace import Laplace
from bdl.methods.last_layer_laplace import LastLayerLaplace
from bdl.methods.vifa import Vifa
from bdl.models.likelihoods import GaussianLikelihood
from bdl.models.linear import best_precisions, remove_mean
from bdl.models.modules import NetworkModule
from bdl.models.networks import LinearModel
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem, full_batch, log_joint
from bdl.plan.task import Task
from bdl.runtime import one_thread
from bdl.search.proposals import propose
from bdl.spec.entry import Search
from bdl.training.direct import TrainingData

_UPDATES, _BATCH = 2000, 32
"""Updates of a fit, and rows of a minibatch, where the caller leaves both out.

After 500 updates of 100 rows VIFA and BBB are still on their way: on the table yacht the RMSE of
VIFA is twice that after 2000, and 90 % intervals cover less than 80 %.
"""
_NETWORK_START = 0.03
"""Standard deviations of VIFA's first posterior of a network's weights.

From those of 1, the method's own, the outputs of a network are noise, and where the signal is in
inputs of small variance, as on the table naval, the fit ends at a constant: its RMSE is 0.93
standard deviations of the target, and 0.38 from these.
"""
_LAPLACE_PARAMETERS = 300
"""Parameters up to which Laplace's evidence is computed in seconds."""
_SEARCH_PARAMETERS = 50_000
"""Parameters up to which more than one setting is tried."""
_SEARCH_ROWS = 20
"""Rows from which on a search is made; with fewer, too few would be held out."""
_MAX_VARIANCE = 1e95
"""Variance of targets that still has a noise precision; its inverse is the least one."""
_TRIALS = 8
_RANGES = {
    "prior_precision": (1e-2, 1e2),
    "noise_precision": (1.0, 1e3),
    "learning_rate": (3e-3, 1e-1),
    "dropout_rate": (0.01, 0.5),
}
"""Bounds of a search on a logarithmic scale; a noise precision in 1 / variance of the targets."""
_LINEAR_GRIDS = {
    "learning_rate": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3),
    "prior_precision": (0.1, 1.0, 10.0, 100.0, 1000.0),
}
"""What is tried of a linear model where the evidence chooses all else."""
_GRID_ROWS = 100, 500
"""Rows from which on a grid is searched, and the most of a method without a training.

Few held-out rows would choose by chance, and such a fit to many takes long.
"""
_PRECISION_RATIOS = (1e-4, 10.0)
"""Bounds of prior over noise precision, in standardised units, of a linearised model.

Its predictions depend on this ratio and a scale, which is fitted. Of eight random pairs of
precisions none may have a ratio that keeps a fit from following the noise of the targets.
"""
_RATIO_NOISE_PRECISION = 100.0
"""Noise precision at which the ratios are compared, in 1 / variance of the targets."""
DEFAULTS = {
    "prior_precision": 1.0,
    "noise_precision": 1.0,
    "learning_rate": 0.03,
    "dropout_rate": 0.1,
}
"""Values where a search would cost too much, or is not needed.

The standardised inputs of a linear model have one scale. The noise precision stands for none: it
is always chosen.
"""


def default_training(
    rows: int, method: MinibatchMethod, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a training of about 2000 updates, after a warm-up that `settings` give the method.

    `rows` is the number of training rows. The learning rate falls to 0, unless the method gathers
    iterates, which would become equal.
    """
    batch = max(1, min(_BATCH, rows // 2))
    epochs = ceil(_UPDATES * method.batches_per_step / (rows // batch))
    if {"warmup_epochs", "descent_epochs"} & settings.keys():
        epochs += method.idle_epochs
    elif method.idle_epochs:
        # so that some are left before and after; members of an ensemble take turns
        epochs = max(epochs, 2 * getattr(method, "members", 1))
    training: dict[str, Any] = {"epochs": epochs, "batch_size": batch}
    if "learning_rate" in method.hyper and not hasattr(method, "warmup_epochs"):
        training["schedule"] = {"name": "linear"}
    return training


def default_settings(
    method: MinibatchMethod, settings: Mapping[str, Any], model: str, epochs: int
) -> dict[str, Any]:
    """Return settings of a method that suit a training, where the caller leaves them out.

    VIFA starts at a narrow posterior on a network. Descent takes all epochs but the last, where the
    method says how many it takes. A warm-up that would take all epochs takes half of them; where
    there are cycles, a quarter of the epochs is one. One that would take all of a cycle takes half.

    Parameters
    ----------
    method
        The method.
    settings
        The settings that the caller gives.
    model
        The name of the model.
    epochs
        Epochs of the training.
    """
    fitting_settings: dict[str, Any] = {}
    if isinstance(method, Vifa) and model != "linear":
        fitting_settings["initial_std"] = _NETWORK_START
    if isinstance(method, LastLayerLaplace):
        fitting_settings["descent_epochs"] = max(1, epochs - 1)
    elif isinstance(method, CyclicalSgmcmc):
        if method.warmup_epochs >= min(method.cycle_epochs, epochs):
            cycle_epochs = settings.get("cycle_epochs", max(2, epochs // 4))
            fitting_settings["cycle_epochs"] = cycle_epochs
            fitting_settings["warmup_epochs"] = cycle_epochs // 2
    elif hasattr(method, "warmup_epochs") and method.idle_epochs >= epochs:
        fitting_settings["warmup_epochs"] = epochs // 2
    return {name: value for name, value in fitting_settings.items() if name not in settings}


def check_automatic_names(names: Sequence[str]) -> None:
    """Raise `InputError` if a hyper-parameter is not one of those that can be chosen."""
    for name in names:
        if name not in _RANGES:
            raise InputError(f"hyper.{name}: there is no automatic choice: give a number")


def choose_hyper(task: Task, fixed_hyper: Mapping[str, float], names: Sequence[str]) -> Choice:
    """Choose the hyper-parameters `names` on the training rows of the task's only split.

    Return them with `fixed_hyper`, all in original units.

    The evidence chooses where it is in closed form or near it: for linear models, of classes up to
    300 parameters. Settings that it leaves open are compared on a fifth of the rows that is held
    out, all trials side by side, and there the predictions are calibrated. A large network has one
    setting, of constants in standardised units and the noise of the best linear model. So has a
    method without minibatches, but for `Laplace`, which in turn starts at the weights of a network
    at hand: it has seen the rows that would be held out. Their noise stays. `InputError` if every
    trial fails.
    """
    rows, problem = task.rows(task.splits[0]).train, task.problem
    if "noise_precision" in names:
        _check_unit(target_variance(task, rows))
    values = dict(fixed_hyper) | _choose_by_evidence(task.data, problem, rows, fixed_hyper, names)
    remaining_names = [name for name in names if name not in values]
    if not remaining_names:
        return Choice(values)
    # a training by epochs has its updates of all rows
    if task.settings.training is None and _searches_grid(task, remaining_names):
        rows = _subsample(rows, _GRID_ROWS[1])
    can_hold_out = _can_hold_out(task, rows)
    if can_hold_out and problem.dim <= _SEARCH_PARAMETERS:
        candidates = _propose_settings(task, rows, values, remaining_names)
        return choose_on_held_out_rows(task, rows, candidates, remaining_names)
    constants = values | {
        name: DEFAULTS[name] for name in remaining_names if name != "noise_precision"
    }
    if "noise_precision" not in remaining_names:
        return Choice(constants)
    constants |= _maximise_linear_evidence(task.data, problem, rows, {}, {"noise_precision"})
    if can_hold_out:
        return choose_on_held_out_rows(task, rows, [constants], remaining_names)
    return Choice(constants)


def _check_unit(variance: float) -> None:
    """Refuse a variance of targets that no noise precision describes."""
    if not 1 / _MAX_VARIANCE <= variance <= _MAX_VARIANCE:
        raise InputError(
            f"y has a standard deviation of {variance**0.5:.3g}: give it in a unit that brings this "
            "nearer to 1"
        )


def _searches_grid(task: Task, names: Sequence[str]) -> bool:
    """Return whether one number of a linear model is left open, of which there is a grid."""
    is_linear = isinstance(task.problem.model, LinearModel)
    return is_linear and len(names) == 1 and names[0] in _LINEAR_GRIDS


def _can_hold_out(task: Task, rows: Rows) -> bool:
    """Return whether fits without some of the rows show how a fit predicts."""
    is_linear = isinstance(task.problem.model, LinearModel)
    if len(rows) < (_GRID_ROWS[0] if is_linear else _SEARCH_ROWS):
        return False
    if task.settings.training is not None:
        return True
    return isinstance(task.settings.method.build(), Laplace) and not isinstance(
        task.problem.model, NetworkModule
    )


def _choose_by_evidence(
    data: Dataset,
    problem: Problem,
    rows: Rows,
    fixed_hyper: Mapping[str, float],
    names: Sequence[str],
) -> dict[str, float]:
    """Choose the precisions of a linear model by its evidence; empty for other models.

    They are in original units, as `fixed_hyper` are.
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
    if getattr(problem.prior, "bias_precision", None) is not None and linear.bias and len(y) > 1:
        # a bias with a precision of its own says nothing of that of the weights
        design, y = remove_mean(design[:, :-1]), remove_mean(y)
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

    # a precision of weights grows with the square of the inputs that they multiply, and is that of
    # the bias as well
    squares = training.x.square().mean(0)
    units = [1.0, *squares[squares > 0].tolist()]
    low, high = log(1e-3 * min(units)), log(1e3 * max(units))
    # in parts of six decades, since the evidence over more of them may have several maxima
    edges = np.linspace(low, high, 1 + max(1, round((high - low) / log(1e6))))
    with one_thread():
        optima = [
            minimize_scalar(
                negative_evidence, bounds=bounds, method="bounded", options={"xatol": 0.05}
            )
            for bounds in pairwise(edges.tolist())
        ]
    return exp(min(optima, key=lambda optimum: optimum.fun).x)


def _propose_settings(
    task: Task, rows: Rows, values: Mapping[str, float], names: Sequence[str]
) -> list[dict[str, float]]:
    """Draw settings at random, with the `values` that stay.

    Those of a linearised model are a grid of ratios of prior and noise precision. Of linear models
    that differ in a learning rate or a prior precision alone they are a grid of it.
    """
    if _searches_grid(task, names):
        (name,) = names
        return [{**values, name: value} for value in _LINEAR_GRIDS[name]]
    variance = target_variance(task, rows)
    method = task.settings.method.build()
    if isinstance(method, Laplace) and method.linearised and has_both_precisions(names):
        prior_precisions = _RATIO_NOISE_PRECISION * np.geomspace(*_PRECISION_RATIOS, _TRIALS)
        noise_precision = _RATIO_NOISE_PRECISION / variance
        return [
            {**values, "prior_precision": prior_precision, "noise_precision": noise_precision}
            for prior_precision in prior_precisions.tolist()
        ]
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
    return [
        {**values, **setting}
        for setting in propose(Search.model_validate(search), task.benchmark.seed, ())
    ]


def _subsample(rows: Rows, most: int = SCORED_ROWS) -> Rows:
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(0).permutation(rows)[:most])
