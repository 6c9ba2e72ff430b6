"""Scores of a fit: every metric of the benchmark is a function of one lazy evaluation."""

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from math import isfinite, nan
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bdl.data.conversion import Inputs
from bdl.errors import InputError
from bdl.metrics.evaluation import Evaluation, Examples
from bdl.plan.cell import Cell
from bdl.plan.fingerprint import score_hash
from bdl.plan.reference import truth
from bdl.posteriors.base import Posterior
from bdl.rng import trial_keys
from bdl.runtime import one_thread
from bdl.search.study import Setting
from bdl.spec.labels import MetricName
from bdl.training.trials import fitted_scaling

Buffers = Mapping[str, Tensor]


def evaluation(cell: Cell, split: int, posterior: Posterior, buffers: Buffers, hyper: Setting) -> Evaluation:
    """Make what scores are functions of; nothing is computed before a score asks for it.

    Parameters
    ----------
    cell, split
        Whose test rows, training rows and reference are meant.
    posterior, buffers
        What the fit has left.
    hyper
        Its hyper-parameters, in original units.
    """
    streams = cell.settings.streams
    return Evaluation(
        posterior=posterior,
        problem=None if streams else cell.problem,
        hyper=hyper,
        test=partial(_examples, cell, split, "test"),
        training=partial(_examples, cell, split, "train"),
        samples=cell.benchmark.evaluation_of(cell.entry).samples,
        key=trial_keys([(*cell.identity, split, "final")], "predict")[0],
        buffers=buffers,
        truth=partial(truth, cell, split),
    )


class Scored(NamedTuple):
    """Scores of a fit."""

    values: dict[str, float]
    """By metric; what a score gives beside its value stands under ``<name>_<suffix>``."""
    refused: str | None = None
    """Why a score could not be computed, whose value is then NaN."""


def scores(evaluated: Evaluation, metrics: Iterable[MetricName]) -> Scored:
    """Compute metrics; one that refuses the fit does not stop the others."""
    values: dict[str, float] = {}
    refused = None
    for metric in metrics:
        try:
            with nullcontext() if metric.info.kind == "predictive" else one_thread():
                value = metric.build()(evaluated)
        except InputError as error:
            value, refused = nan, refused or f"{metric}: {error}"
        parts = value if isinstance(value, Mapping) else {"": value}
        values |= {f"{metric}_{suffix}" if suffix else str(metric): float(part) for suffix, part in parts.items()}
    return Scored(values, refused)


def computed(cell: Cell) -> list[MetricName]:
    """List the metrics of a cell's benchmark that are computed from a fit, rather than timed."""
    return [metric for metric in cell.benchmark.metrics if metric.info.kind != "time"]


def codes(cell: Cell, names: Iterable[str]) -> dict[str, str]:
    """Return the score hash of each metric, and of what it gives beside its value."""
    hashes = {str(metric): score_hash(cell, metric) for metric in computed(cell)}
    owners = {name: [own for own in hashes if name == own or name.startswith(f"{own}_")] for name in names}
    return {name: hashes[max(own, key=len)] for name, own in owners.items() if own}


def finite(values: Mapping[str, float]) -> dict[str, float | None]:
    """Replace what is not finite by None."""
    return {name: value if isfinite(value) else None for name, value in values.items()}


def examples(cell: Cell, split: int, x: Inputs, y: NDArray[np.float64]) -> Examples:
    """Standardise rows, of the data set or new ones, as the trial of a split does.

    Parameters
    ----------
    cell, split
        Whose training rows the scaling is fitted on.
    x, y
        Inputs and targets in original units, of the shapes that the data set has.
    """
    scaling = fitted_scaling(cell.data, [cell.rows(split).train])
    inputs = np.asarray((x.reshape(len(x), -1) - scaling.x_mean[0]) / scaling.x_scale[0], dtype=np.float64)
    return Examples(torch.from_numpy(inputs), torch.from_numpy(y), float(scaling.y_scale[0]), float(scaling.y_mean[0]))


def _examples(cell: Cell, split: int, part: Literal["train", "test"]) -> Examples:
    rows = getattr(cell.rows(split), part)
    return examples(cell, split, cell.data.x[rows], cell.data.y[rows])
