"""Hyper-parameters and training that a caller leaves out: chosen on the training rows, whatever the units."""

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
from bdl.models.likelihoods import Gaussian
from bdl.models.linear import best_precisions
from bdl.models.networks import Linear
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem, log_joint, whole
from bdl.plan import Cell
from bdl.plan.programs import program
from bdl.runtime import one_thread
from bdl.search import propose
from bdl.search.crossval import best_setting, cross_validate
from bdl.spec.entry import Search
from bdl.training.direct import TrainingData
from bdl.training.fitting import silent

_UPDATES, _BATCH = 500, 100
"""Updates of a fit, and rows of a minibatch, where the caller leaves both out."""
_ROWS = 10_000
"""Rows, drawn at random, that the evidence is computed from; more change little in one or two
numbers.
"""
_LAPLACE = 300
"""Parameters up to which Laplace's evidence is computed in seconds."""
_SEARCHED = 50_000
"""Parameters up to which a search is made."""
_LEAST_ROWS = 20
"""Rows from which some are held out for a search."""
_TRIALS = 16
_RANGES = {
    "prior_precision": (1e-2, 1e2),
    "noise_precision": (1.0, 1e3),
    "learning_rate": (1e-3, 1e-1),
    "dropout_rate": (0.01, 0.5),
}
"""Where the rest is searched, on a logarithmic scale; the noise precision over 1 / variance of
the targets.
"""
_RELATIVE = {"prior_precision": 1.0, "learning_rate": 0.03, "dropout_rate": 0.1}
"""What is taken where a search would cost too much, or is not needed: a linear model's inputs
have one scale.
"""


def training_for(rows: int, batches_per_step: int) -> dict[str, Any]:
    """Return a training of about 500 updates, for so many rows and minibatches an update."""
    batch = max(1, min(_BATCH, rows // 2))
    return {"epochs": ceil(_UPDATES * batches_per_step / (rows // batch)), "batch_size": batch}


def check_names(names: Sequence[str]) -> None:
    """Raise `InputError` if a hyper-parameter is not one of those that can be chosen."""
    for name in names:
        if name not in _RANGES:
            raise InputError(f"hyper.{name}: there is no automatic choice: give a number")


def choose(cell: Cell, given: Mapping[str, float], wanted: Sequence[str]) -> dict[str, float]:
    """Choose hyper-parameters (`wanted`) on the training rows of the cell's only split.

    Return all, in original units.

    The evidence chooses where it is in closed form or near it: for linear models. What networks
    need is searched on a fifth of the rows that is held out, all trials side by side; where that
    would take too long, the noise is that of the best linear model, and the rest is fixed in
    standardised units. The others are `given`, in original units. `InputError` if every trial of
    the search fails.
    """
    rows, problem = cell.rows(cell.splits[0]).train, cell.problem
    values = dict(given) | _by_evidence(cell.data, problem, rows, given, wanted)
    rest = [name for name in wanted if name not in values]
    if not rest:
        return values
    alone = isinstance(problem.model, Linear) or cell.settings.training is None
    if not alone and problem.dim <= _SEARCHED and len(rows) >= _LEAST_ROWS:
        return _searched(cell, rows, values, rest)
    values |= {name: _RELATIVE[name] for name in rest if name != "noise_precision"}
    if "noise_precision" in rest:
        values |= _of_linear(cell.data, problem, rows, {}, {"noise_precision"})
    return values


def _by_evidence(
    data: Dataset, problem: Problem, rows: Rows, given: Mapping[str, float], wanted: Sequence[str]
) -> dict[str, float]:
    """Return those of a linear model that the evidence decides, original units."""
    names = {"prior_precision", "noise_precision"} & {*wanted}
    if (
        not names
        or not isinstance(problem.model, Linear)
        or not isinstance(problem.prior, GaussianPrior)
    ):
        return {}
    if isinstance(problem.likelihood, Gaussian):
        return _of_linear(data, problem, rows, given, names)
    if given.keys() >= {*problem.likelihood.hyper} and problem.dim <= _LAPLACE:
        return {"prior_precision": _of_laplace(TrainingData.of(data, _some(rows)), problem, given)}
    return {}


def _of_linear(
    data: Dataset, problem: Problem, rows: Rows, given: Mapping[str, float], names: set[str]
) -> dict[str, float]:
    """Maximise the evidence of the linear model of the inputs, whatever the problem's own model is."""
    seen = TrainingData.of(data, _some(rows))
    linear = problem.model if isinstance(problem.model, Linear) else Linear()
    own = problem.likelihood.to_model_units(dict(given), seen.y_unit)
    design, y = linear.design(seen.x).numpy(), seen.y.numpy()
    with one_thread():
        found = best_precisions(design, y, own.get("prior_precision"), own.get("noise_precision"))
    chosen = dict(zip(("prior_precision", "noise_precision"), found, strict=True))
    original = problem.likelihood.to_original_units(chosen, seen.y_unit)
    return {name: original[name] for name in names}


def _of_laplace(seen: TrainingData, problem: Problem, given: Mapping[str, float]) -> float:
    """Maximise Laplace's approximation of the evidence, log p(D, mode) - log q(mode), over the prior precision."""
    batch = whole(seen.x, seen.y)

    def cost(logarithm: float) -> float:
        hyper = seen.hyper({**given, "prior_precision": exp(logarithm)}, problem)
        posterior = Laplace().fit(problem, seen.x, seen.y, hyper)
        mode = posterior.mean()
        return float(
            posterior.log_prob(mode)
            - log_joint(mode.unsqueeze(0), problem, batch, hyper).squeeze(0)
        )

    with one_thread():
        found = minimize_scalar(
            cost, bounds=(log(1e-3), log(1e3)), method="bounded", options={"xatol": 0.05}
        )
    return exp(found.x)


def _searched(
    cell: Cell, rows: Rows, values: Mapping[str, float], rest: Sequence[str]
) -> dict[str, float]:
    """Train some settings side by side, and return that with the best predictions of the rows that are held out."""
    mixed = np.random.default_rng(cell.benchmark.seed).permutation(rows)
    held = len(rows) // 5
    split = Split(mixed[held:], rows[:0], mixed[:held])
    unit = float(np.var(cell.data.y[rows])) or 1.0
    low, high = _RANGES["noise_precision"]
    ranges = _RANGES | {"noise_precision": (low / unit, high / unit)}
    space = {
        name: {"low": ranges[name][0], "high": ranges[name][1], "scale": "log"} for name in rest
    }
    content = {
        "sampler": "random",
        "trials": _TRIALS,
        "folds": 1,
        "metric": "nmll",
        "space": space,
    }
    own = [
        {**values, **setting}
        for setting in propose(Search.model_validate(content), cell.benchmark.seed, ())
    ]
    scores = cross_validate(
        program(cell),
        {0: split},
        {0: dict(enumerate(own))},
        slot_batch={0: len(split.train)},
        k=1,
        score=Nmll(),
        identity=(*cell.identity, "search"),
        compile=False,
        progress=silent,
    )
    best = best_setting(scores)
    if best is None:
        raise InputError(
            f"hyper: every trial of the search failed ({scores[0].reason}): give the values"
        )
    return best


def _some(rows: Rows) -> Rows:
    return (
        rows if len(rows) <= _ROWS else np.sort(np.random.default_rng(0).permutation(rows)[:_ROWS])
    )
