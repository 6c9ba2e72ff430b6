"""Fits of arrays of one's own."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import PlainValidator, ValidationError
from torch import nn

from bdl.api import automatic
from bdl.api.fitted import Fitted
from bdl.data import Dataset, Split, Standardise
from bdl.data.conversion import Array, Inputs, check_aligned, columns_of, inputs, targets
from bdl.errors import InputError
from bdl.execution.details import is_finite
from bdl.methods.base import MinibatchMethod
from bdl.models.base import Model
from bdl.models.modules import GivenModule
from bdl.models.problem import Problem
from bdl.plan import Cell
from bdl.plan.initial_check import check as check_start
from bdl.plan.planning import check, check_device
from bdl.plan.programs import compiles, final_fitting
from bdl.search.crossval import failure
from bdl.spec import Benchmark
from bdl.spec.components import LikelihoodComponent, MethodComponent, PriorComponent
from bdl.spec.fields import checked, explain
from bdl.spec.labels import DatasetName
from bdl.training.fitting import finished

Component = str | Mapping[str, Any]
"""A registered name, or a mapping with a name and settings, as in a benchmark file."""


def _read_hyper(given: Any) -> Any:
    if not isinstance(given, Mapping) and not (isinstance(given, str) and given == "auto"):
        raise ValueError("should be a mapping of names to numbers, or 'auto'")
    return given


HyperParameters = Annotated[Mapping[str, Any] | Literal["auto"], PlainValidator(_read_hyper)]
"""Numbers by name, in original units, or ``"auto"`` for what is chosen."""

_NAME = "arrays"


@dataclass(frozen=True, eq=False)
class ArrayCell(Cell):
    """A cell whose data set is at hand, and perhaps its model."""

    arrays: Dataset = field(kw_only=True)
    network: Model | None = field(kw_only=True, default=None)

    @property
    def data(self) -> Dataset:
        """The data set."""
        return self.arrays

    @cached_property
    def problem(self) -> Problem:
        """Model, likelihood and prior."""
        found = super().problem
        return found if self.network is None else replace(found, model=self.network)


@checked
def fit(
    method: Component,
    model: Component | nn.Module,
    likelihood: Component,
    X: Any,
    y: Any,
    hyper: HyperParameters = "auto",
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
        A component as in an entry of a benchmark file: ``"vifa"``, or ``{"name": "vifa",
        "latent_dim": 3}``.
    model
        The model, likewise; or a `torch.nn.Module` that maps (n, d) to (n, outputs), of which a
        copy is taken. Its parameters start as `bdl.models.modules.Module` says, and for
        ``"laplace"`` where they are.
    likelihood
        The likelihood, likewise; it says whether targets are numbers or labels.
    X
        Inputs in original units, (n, d): an array, a frame, a tensor or lists of numbers, or of
        true and false; or images of uint8, (n, H, W) or (n, C, H, W). The names of a frame's
        columns are kept for predictions.
    y
        Targets in original units, or labels 0 to C - 1; (n,) or (n, 1).
    hyper
        Every hyper-parameter by name, in original units; ``"auto"`` for one, or for all, is chosen
        on the rows of `X`: by the evidence for a linear model, else by a short search.
    prior
        The prior, as the method.
    training
        ``{"epochs": ..., "batch_size": ...}``; None for a method without minibatches, and else for
        some 500 updates.
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
    check_device(device)
    check_aligned(X, y)
    x, numbers = inputs(X, "X"), targets(y, "y")
    if len(x) != len(numbers):
        raise InputError(f"X has {len(x)} rows and y {len(numbers)}: give one target a row")
    named = {"method": method, "likelihood": likelihood, "prior": prior}
    entry: dict[str, Any] = {kind: _component(given) for kind, given in named.items()}
    given = (
        dict.fromkeys(hyper_names(method, likelihood, prior), "auto")
        if isinstance(hyper, str)
        else dict(hyper)
    )
    wanted = [name for name, value in given.items() if isinstance(value, str) and value == "auto"]
    automatic.check_names(wanted)
    network = {"name": "module", "factory": type(model).__name__}  # described by its name alone
    entry |= {
        "model": network if isinstance(model, nn.Module) else _component(model),
        "hyper": given | dict.fromkeys(wanted, 1.0),
    }
    if training is None and isinstance(made := built(MethodComponent, method), MinibatchMethod):
        training = automatic.training_for(len(x), made.batches_per_step)
    entry["training"] = training
    with _plain_words():
        spec = _spec(entry, samples, seed)
        data = _data(x, numbers, columns_of(X), spec, standardise)
        own = spec, spec.datasets[0], _NAME, (0,)
        cell = ArrayCell(
            *own, device=device, compile=compile, arrays=data, network=_network(model, data)
        )
        check(cell)
        if wanted:
            kept = {
                name: value for name, value in cell.settings.hyper.items() if name not in wanted
            }
            entry["hyper"] = automatic.choose(cell, kept, wanted)
            cell = replace(cell, benchmark=_spec(entry, samples, seed))
            check(cell)
        check_start([cell])
        return _fitted(cell)


def hyper_names(
    method: Component, likelihood: Component, prior: Component = "gaussian"
) -> tuple[str, ...]:
    """Name the hyper-parameters of components.

    None where a component is wrong, which `fit` tells.
    """
    given = ((MethodComponent, method), (PriorComponent, prior), (LikelihoodComponent, likelihood))
    made = [built(kind, own) for kind, own in given]
    if any(own is None for own in made):
        return ()
    return tuple(
        name for own in made for name in getattr(own, "hyper", ())
    )  # what learns from a stream has none


def built(
    kind: type[MethodComponent | PriorComponent | LikelihoodComponent], given: Component
) -> Any:
    """Build a component; None where it is wrong, which `fit` tells."""
    try:
        return kind.model_validate(_component(given)).build()
    except (InputError, TypeError, ValueError):  # a ValidationError is a ValueError
        return None


def _component(given: Component) -> dict[str, Any]:
    return {"name": given} if isinstance(given, str) else dict(given)


def _fitted(cell: ArrayCell) -> Fitted:
    hyper = cell.settings.hyper
    work = final_fitting([(cell, 0)], [hyper], compiles(cell, "final"), alone=True)
    end = finished(work)
    posterior = work.posterior(end, 0)
    if reason := failure(int(end.diverged[0]), 0.0 if is_finite(posterior) else float("nan")):
        raise InputError(
            f"the fit failed ({reason}): lower the learning rate, or change other hyper-parameters"
        )
    return Fitted(
        cell, 0, posterior, {name: value[0] for name, value in end.buffers.items()}, dict(hyper)
    )


@contextmanager
def _plain_words() -> Iterator[None]:
    """Leave out of messages where a benchmark file would have what is wrong."""
    try:
        yield
    except InputError as error:
        raise InputError(
            str(error).replace(f"entries.{_NAME}.", "").replace(f"entries.{_NAME}: ", "")
        ) from None


def _network(model: Component | nn.Module, data: Dataset) -> Model | None:
    if not isinstance(model, nn.Module):
        return None
    row = data.x.shape[1:]
    return GivenModule(network=model, shape=((1,) * (3 - len(row)) + row) if data.images else None)


def _spec(entry: Mapping[str, Any], samples: int, seed: int) -> Benchmark:
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
        raise InputError(explain(error)) from None


def _data(
    x: Inputs, y: Array, columns: tuple[str, ...], spec: Benchmark, standardise: Standardise
) -> Dataset:
    (entry,) = spec.entries.values()
    assert entry.likelihood is not None, "only streams lack one"
    return Dataset(
        _NAME,
        x,
        y,
        "regression" if entry.likelihood.build().fits(0) else "classification",
        splits=1,
        published=partial(_all_rows, len(y)),
        standardise=standardise,
        columns=columns,
    )


def _all_rows(n: int, index: int) -> Split:
    rows = np.arange(n, dtype=np.int64)
    return Split(rows, rows[:0])
