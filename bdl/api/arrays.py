"""Fits of arrays of one's own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch.utils._pytree import tree_leaves

from bdl.api.checking import checked
from bdl.api.fitted import Fitted
from bdl.data import Dataset, Split, Standardise
from bdl.data.conversion import check_aligned, columns_of, inputs, targets
from bdl.errors import InputError
from bdl.plan.cell import Cell
from bdl.plan.checks import check, check_device
from bdl.plan.cost import compiles
from bdl.plan.initial_check import check as check_start
from bdl.plan.programs import final_fitting
from bdl.search.crossval import failure
from bdl.spec import Benchmark
from bdl.spec.explain import explain
from bdl.spec.labels import DatasetName
from bdl.training.fitting import finished

Component = str | Mapping[str, Any]
"""A registered name, or a mapping with a name and settings, as in a benchmark file."""

_NAME = "arrays"


@dataclass(frozen=True, eq=False)
class ArrayCell(Cell):
    """A cell whose data set is at hand."""

    arrays: Dataset = field(kw_only=True)

    @property
    def data(self) -> Dataset:
        """The data set."""
        return self.arrays


@checked
def fit(
    method: Component,
    model: Component,
    likelihood: Component,
    X: Any,
    y: Any,
    hyper: Mapping[str, float],
    *,
    prior: Component = "gaussian",
    training: Mapping[str, Any] | None = None,
    standardise: Standardise = "both",
    samples: int = 100,
    seed: int = 0,
    device: str = "cpu",
    compile: bool | None = None,
) -> Fitted:
    """Fit a posterior to arrays, all of whose rows train.

    Parameters
    ----------
    method
        A component as in an entry of a benchmark file: ``"vifa"``, or ``{"name": "vifa", "latent_dim": 3}``.
    model
        The model, likewise.
    likelihood
        The likelihood, likewise; it says whether targets are numbers or labels.
    X
        Inputs in original units, (n, d): an array, a frame, a tensor or lists of numbers, or of true and false; or
        images of uint8, (n, H, W) or (n, C, H, W). The names of a frame's columns are kept for predictions.
    y
        Targets in original units, or labels 0 to C - 1; (n,) or (n, 1).
    hyper
        Every hyper-parameter by name, in original units.
    prior
        The prior, as the method.
    training
        ``{"epochs": ..., "batch_size": ...}``; None for a method without minibatches.
    standardise
        What is scaled for the model: inputs and targets, the inputs alone, or nothing.
    samples
        Posterior draws of a prediction.
    seed
        Of every random number.
    device
        ``"cpu"`` or ``"cuda"``.
    compile
        Whether to compile; None for where it pays.

    Raises
    ------
    InputError
        If something is missing or does not fit together, or the fit diverges.
    """
    entry = {"method": method, "model": model, "likelihood": likelihood, "prior": prior}
    named = {name: {"name": given} if isinstance(given, str) else dict(given) for name, given in entry.items()}
    spec = _spec({**named, "training": training, "hyper": dict(hyper)}, samples, seed)
    data = _data(X, y, spec, standardise)
    cell = ArrayCell(spec, spec.datasets[0], _NAME, (0,), device=device, compile=compile, arrays=data)
    check_device(device)
    check(cell)
    check_start([cell])
    work = final_fitting([(cell, 0)], [dict(hyper)], compiles(cell, "final"))
    end = finished(work)
    posterior = work.posterior(end, 0)
    finite = all(bool(torch.isfinite(leaf).all()) for leaf in tree_leaves(posterior))
    if reason := failure(int(end.diverged[0]), 0.0 if finite else float("nan")):
        raise InputError(f"the fit failed ({reason}): lower the learning rate, or change other hyper-parameters")
    return Fitted(cell, 0, posterior, {name: value[0] for name, value in end.buffers.items()}, dict(hyper))


def _spec(entry: Mapping[str, Any], samples: int, seed: int) -> Benchmark:
    """Check an entry as that of a benchmark file is checked."""
    content = {
        "name": _NAME,
        "title": _NAME,
        "seed": seed,
        "datasets": [DatasetName(_NAME)],
        "splits": 1,
        "entries": {_NAME: entry},
        "evaluation": {"samples": samples},
        "metrics": ["runtime"],
    }
    try:
        return Benchmark.model_validate(content)
    except ValidationError as error:
        raise InputError(explain(error).replace(f"entries.{_NAME}.", "")) from None


def _data(X: Any, y: Any, spec: Benchmark, standardise: Standardise) -> Dataset:
    (entry,) = spec.entries.values()
    assert entry.likelihood is not None, "only streams lack one"
    check_aligned(X, y)
    x, numbers = inputs(X, "X"), targets(y, "y")
    if len(x) != len(numbers):
        raise InputError(f"X has {len(x)} rows and y {len(numbers)}: give one target a row")
    return Dataset(
        _NAME,
        x,
        numbers,
        "regression" if entry.likelihood.build().fits(0) else "classification",
        splits=1,
        published=partial(_all_rows, len(numbers)),
        standardise=standardise,
        columns=columns_of(X),
    )


def _all_rows(n: int, index: int) -> Split:
    rows = np.arange(n, dtype=np.int64)
    return Split(rows, rows[:0])
