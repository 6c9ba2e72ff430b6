"""Fit a posterior to arrays that the caller brings."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import PlainValidator, ValidationError
from torch import nn

from bdl.api import automatic
from bdl.api.fitted import Fitted
from bdl.data import Dataset, Split, Standardise
from bdl.data.conversion import Inputs, as_inputs, as_targets, check_row_labels, column_names
from bdl.errors import InputError
from bdl.execution.scoring import is_finite
from bdl.methods.base import MinibatchMethod
from bdl.models.base import Model
from bdl.models.modules import NetworkModule
from bdl.models.problem import Problem
from bdl.plan.fittings import build_final_fitting
from bdl.plan.initial_check import check_initial_likelihood, check_initial_posterior
from bdl.plan.task import Task
from bdl.plan.task_checks import check_device, check_task
from bdl.plan.workload import is_stage_compiled
from bdl.search.crossval import describe_failure
from bdl.spec import Benchmark
from bdl.spec.components import LikelihoodComponent, MethodComponent, PriorComponent
from bdl.spec.fields import explain, validate_arguments
from bdl.spec.labels import DatasetName
from bdl.training.fitting import run_to_end
from bdl.types import Array

Component = str | Mapping[str, Any]
"""A registered name, or a mapping with a name and settings, as in a benchmark file."""


def _check_hyper(hyper: Any) -> Any:
    if not isinstance(hyper, Mapping) and not (isinstance(hyper, str) and hyper == "auto"):
        raise ValueError("should be a mapping of names to numbers, or 'auto'")
    return hyper


HyperParameters = Annotated[Mapping[str, Any] | Literal["auto"], PlainValidator(_check_hyper)]
"""Numbers by name, in original units; ``"auto"`` for those to be chosen on the rows."""

_NAME = "arrays"


@dataclass(frozen=True, eq=False)
class ArrayTask(Task):
    """A task whose data set is in memory, and whose model may be as well."""

    arrays: Dataset = field(kw_only=True)
    network: Model | None = field(kw_only=True, default=None)

    @property
    def data(self) -> Dataset:
        """The data set."""
        return self.arrays

    @cached_property
    def problem(self) -> Problem:
        """Model, likelihood and prior."""
        problem = super().problem
        return problem if self.network is None else replace(problem, model=self.network)


@validate_arguments
@torch.inference_mode(False)  # which no gradient leaves
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
        on the rows of `X`: the precisions of a linear model by the evidence, all else by a
        short search. For a network 8 settings are compared on a fifth of the rows that is held out, by their NMLL at
        the noise that suits each best. The best one is then fitted to the rows without each fifth
        in turn, and the noise precision of predictions set so that central 90 % intervals cover
        90 % of the rows held out. It is `Fitted.noise_precision`, and leaves the final fit, to all
        rows, as it is. Of a linearised model 8 ratios of prior and noise precision are compared,
        and both are scaled together, which leaves its mode as it is, and scales the variance of
        predictions.
    prior
        The prior, likewise.
    training
        ``{"epochs": ..., "batch_size": ...}``; None for a method without minibatches, and else for
        some 2000 updates, in which the learning rate falls to 0, or stays where iterates are
        gathered. Settings of `method` that its mapping leaves out suit this training: VIFA on a
        network starts at posterior standard deviations of 0.03, and a warm-up that is longer than
        the training takes half of it.
    standardise
        The arrays that are scaled for the model: inputs and targets, the inputs alone, or none.
    samples
        Posterior draws of a prediction that is not exact (`Fitted.predict_distribution`).
    seed
        Seed of every random number.
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
    check_row_labels(X, y)
    x, target_values = as_inputs(X, "X"), as_targets(y, "y")
    if len(x) != len(target_values):
        raise InputError(f"X has {len(x)} rows and y {len(target_values)}: give one target a row")
    components = {"method": method, "likelihood": likelihood, "prior": prior}
    entry: dict[str, Any] = {
        kind: _as_mapping(component) for kind, component in components.items()
    }
    if isinstance(hyper, str):
        names = hyper_names(method, likelihood, prior)
        hyper_values: dict[str, Any] = dict.fromkeys(names, "auto")
    else:
        hyper_values = _with_python_numbers(dict(hyper))
    automatic_names = [
        name
        for name, value in hyper_values.items()
        if isinstance(value, str) and value == "auto"  # an array compares entry by entry
    ]
    automatic.check_automatic_names(automatic_names)
    # the spec describes a module by the name of its class; ArrayTask.problem puts it in
    module_component = {"name": "module", "factory": type(model).__name__}
    entry |= {
        "model": module_component if isinstance(model, nn.Module) else _as_mapping(model),
        # the spec needs a number for each; those of automatic_names are replaced below
        "hyper": hyper_values | {name: automatic.DEFAULTS[name] for name in automatic_names},
    }
    if training is None:
        built_method = build_component(MethodComponent, method)
        if isinstance(built_method, MinibatchMethod):
            training = automatic.default_training(len(x), built_method, entry["method"])
            model_name = entry["model"].get("name", "")
            entry["method"] |= automatic.default_settings(
                built_method, entry["method"], model_name, training["epochs"]
            )
    entry["training"] = _with_python_numbers(training)
    with _without_entry_paths():
        spec = _build_spec(entry, samples, seed)
        # copies: predictions read the data again, and callers may fill their arrays anew
        data = _build_dataset(x.copy(), target_values.copy(), column_names(X), spec, standardise)
        task = ArrayTask(
            spec,
            spec.datasets[0],
            _NAME,
            (0,),
            device=device,
            compile=compile,
            arrays=data,
            network=_as_model(model, data),
        )
        check_task(task)
        noise_precision: float | None = None
        if automatic_names:
            check_initial_posterior(task)
            fixed_hyper = {
                name: value
                for name, value in task.settings.hyper.items()
                if name not in automatic_names
            }
            choice = automatic.choose_hyper(task, fixed_hyper, automatic_names)
            entry["hyper"], noise_precision = choice
            task = replace(task, benchmark=_build_spec(entry, samples, seed))
            check_task(task)
        check_initial_likelihood([task])
        return _fit_task(task, noise_precision)


def hyper_names(
    method: Component, likelihood: Component, prior: Component = "gaussian"
) -> tuple[str, ...]:
    """Return the names of the hyper-parameters of components.

    There are none where a component is wrong, which `fit` reports.
    """
    components = [
        build_component(MethodComponent, method),
        build_component(PriorComponent, prior),
        build_component(LikelihoodComponent, likelihood),
    ]
    if any(component is None for component in components):
        return ()
    names: list[str] = []
    for component in components:
        names += getattr(component, "hyper", ())  # a method that learns from a stream has none
    return tuple(names)


def build_component(
    kind: type[MethodComponent | PriorComponent | LikelihoodComponent], component: Component
) -> Any:
    """Build a component; None where it is wrong, which `fit` reports."""
    try:
        return kind.model_validate(_as_mapping(component)).build()
    except (InputError, TypeError, ValueError):  # a ValidationError is a ValueError
        return None


def _as_mapping(component: Component) -> dict[str, Any]:
    if isinstance(component, str):
        return {"name": component}
    mapping: dict[str, Any] = _with_python_numbers(dict(component))
    return mapping


def _with_python_numbers(settings: Any) -> Any:
    """Replace the numbers of NumPy in settings, at any depth: a spec has those of Python and JSON."""
    if isinstance(settings, Mapping):
        return {name: _with_python_numbers(value) for name, value in settings.items()}
    if isinstance(settings, list | tuple):
        return [_with_python_numbers(value) for value in settings]
    if isinstance(settings, np.generic):
        return settings.item()
    return settings


def _fit_task(task: ArrayTask, noise_precision: float | None) -> Fitted:
    hyper = task.settings.hyper
    fitting = build_final_fitting(
        [(task, 0)], [hyper], is_stage_compiled(task, "final"), alone=True
    )
    snapshot = run_to_end(fitting)
    posterior = fitting.posterior(snapshot, 0)
    reason = describe_failure(int(snapshot.diverged[0]), is_finite(posterior), "posterior")
    if reason:
        raise InputError(
            f"the fit failed ({reason}): lower the learning rate, or change other hyper-parameters"
        )
    buffers = {name: stacked[0] for name, stacked in snapshot.buffers.items()}
    return Fitted(task, 0, posterior, buffers, dict(hyper), True, noise_precision)


@contextmanager
def _without_entry_paths() -> Iterator[None]:
    """Raise refusals without the path in a benchmark file, of which the caller has none."""
    try:
        yield
    except InputError as error:
        text = str(error)
        for path in (f"entries.{_NAME}.", f"entries.{_NAME}: ", f"on {_NAME} "):
            text = text.replace(path, "")
        raise InputError(text) from None


def _as_model(model: Component | nn.Module, data: Dataset) -> Model | None:
    if not isinstance(model, nn.Module):
        return None
    row_shape = data.x.shape[1:]
    if not data.images:
        return NetworkModule(network=model, shape=None)
    channels_first = (1,) * (3 - len(row_shape)) + row_shape  # (H, W) is one channel
    return NetworkModule(network=model, shape=channels_first)


def _build_spec(entry: Mapping[str, Any], samples: int, seed: int) -> Benchmark:
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


def _build_dataset(
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
