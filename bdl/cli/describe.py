"""What a benchmark or a registered component is, as text for people."""

import inspect
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from bdl.data import DATASETS, about
from bdl.errors import InputError, unknown
from bdl.methods import METHODS
from bdl.metrics import METRICS
from bdl.models import LIKELIHOODS, MODELS, PRIORS
from bdl.references import REFERENCES
from bdl.registry import Registry, shipped
from bdl.spec import Entry, list_profiles, load_benchmark
from bdl.spec.components import Component
from bdl.spec.fields import canonical
from bdl.spec.sections import Record, Training
from bdl.spec.values import leaves
from bdl.training.schedule import RATES

REGISTRIES = (DATASETS, MODELS, LIKELIHOODS, PRIORS, RATES, METHODS, REFERENCES, METRICS)
"""Of everything that a benchmark file names."""
_DIRECTIONS = {
    "lower": "lower is better",
    "higher": "higher is better",
    "none": "neither lower nor higher is better",
    "ratio": "a duration, shown as paper / ours",
}
_HYPER = {
    "learning_rate": "size of a step, which the schedule of the training may change",
    "prior_precision": "1 / variance of every parameter under the prior",
    "noise_precision": "1 / variance of a target's noise, in 1 / target units squared",
    "dropout_rate": "share of the units that are left out",
    "kl_weight": "factor of the divergence from the prior; 1 is Bayes' rule",
    "prior_scale": "scale of every parameter under the prior",
    "slab_share": "share of the wide component of the prior",
    "slab_scale": "standard deviation of the wide component",
    "spike_scale": "standard deviation of the narrow component",
    "initial_precision": "multiple of the identity at which the precision of the posterior starts",
    "global_scale": "scale of all local scales",
}


def describe(name: str) -> str:
    """Describe a benchmark or a component as lines of text, of which the first says the name and the kind.

    The name is one that ``bdl-bench list`` shows, the path of a benchmark file, or that of a
    component, ``path/to/file.py:Class`` or ``module:Class``; one of two kinds is described as
    both. `InputError` if nothing has that name, or what it leads to is no component.
    """
    if name.endswith(".py"):
        raise InputError(f"{name} is a file: say which class or function of it, as {name}:NAME")
    if ":" in name and not name.endswith((".yaml", ".yml")):
        return "\n".join(_given(name))
    if "/" in name or name.endswith((".yaml", ".yml")):
        return "\n".join([f"{name} (benchmark)", *_benchmark(name)])
    found = [f"{name} (benchmark)", *_benchmark(name)] if name in shipped() else []
    for registry in REGISTRIES:
        if name in registry.targets:
            kind = "data set" if registry is DATASETS else registry.kind
            found += [f"{name} ({kind})", *_component(registry, name)]
    if not found:
        raise unknown(
            "name",
            name,
            {*shipped(), *(known for registry in REGISTRIES for known in registry.targets)},
        )
    return "\n".join(found)


def _given(path: str) -> list[str]:
    """Describe what a benchmark file may name by its path, as the kind whose contract it follows."""
    component = Registry("component", {}).get(path)
    if isinstance(component, type) and is_dataclass(component):
        for registry in REGISTRIES[1:]:  # any function or class may make a data set
            if registry.lacking(component) is None:
                return [f"{path} ({registry.kind})", *_component(registry, path)]
    if not callable(component) or (
        isinstance(component, type) and "__call__" not in dir(component)
    ):
        raise InputError(f"{path} is no component: it follows no contract of docs/extending.md")
    return [f"{path} (data set)", _paragraph(component), *_settings(component)]


def _benchmark(name: str) -> list[str]:
    benchmark = load_benchmark(name)
    papers = dict.fromkeys(
        f"{paper.paper}, {' and '.join(paper.tables)}" for paper in benchmark.papers
    )
    fewer = "".join(f", of {name} {count}" for name, count in benchmark.preparation.splits.items())
    lines = [
        benchmark.title,
        f"data sets: {', '.join(benchmark.datasets)}; {benchmark.splits} splits of each{fewer}",
        f"metrics: {', '.join(benchmark.metrics)}",
        f"papers: {'; '.join(papers) or 'none'}",
        f"profiles: {', '.join(list_profiles(name))}",
    ]
    preparation = benchmark.preparation
    exclude = set() if preparation.rows else {"rows"}
    if unusual := preparation.model_dump(mode="json", exclude_defaults=True, exclude=exclude):
        lines.append(f"preparation: {_assigned(unusual)}")
    lines += [
        f"sweep: {path} in {', '.join(map(canonical, values))}"
        for path, values in benchmark.sweep.items()
    ]
    lines += _record(benchmark.record)
    lines += [
        f"on {dataset}: {_assigned(dict(leaves(changes)))}"
        for dataset, changes in benchmark.by_dataset.items()
    ]
    for entry, settings in benchmark.entries.items():
        lines += [f"entry {entry}", *(f"  {line}" for line in _entry(settings))]
    return lines


def _entry(entry: Entry) -> list[str]:
    parts = {"model": entry.model, "likelihood": entry.likelihood, "method": entry.method}
    lines = [f"{kind}: {_named(component)}" for kind, component in parts.items() if component]
    if entry.datasets:
        lines.append(f"data sets: {', '.join(entry.datasets)}")
    if entry.reference:
        lines.append(f"reference: {_named(entry.reference)}")
    if (
        entry.prior.model_dump()
        != Entry.model_fields["prior"].get_default(call_default_factory=True).model_dump()
    ):
        lines.append(f"prior: {_named(entry.prior)}")
    if entry.training:
        lines.append(f"training: {_training(entry.training)}")
    lines += _record(entry.record)
    lines += [
        f"on {dataset}: {_assigned(dict(leaves(changes)))}"
        for dataset, changes in entry.by_dataset.items()
    ]
    if entry.hyper:
        lines.append(f"fixed: {_assigned(entry.hyper)}")
    if search := entry.search:
        first = "" if "startup" in search.idle else f", {search.startup} at random first"
        lines.append(
            f"search: {search.sampler}, {search.trials} trials{first}, {search.folds} folds, by {search.metric}"
        )
        lines += [
            f"  {name}: {space.low:g} to {space.high:g}, {space.scale}"
            for name, space in search.space.items()
        ]
        lines += [
            f"  {name}: {', '.join(f'{value:g}' for value in values)}"
            for name, values in search.grid.items()
        ]
    return lines


def _training(training: Training) -> str:
    unusual = training.model_dump(
        mode="json", exclude={"epochs", "batch_size", "schedule"}, exclude_defaults=True
    )
    schedule = training.schedule
    rates = {"rate": schedule} if isinstance(schedule, Component) else schedule
    told = [f"{training.epochs} epochs", f"batches of {training.batch_size}"]
    told += [f"{name} {_named(rate)}" for name, rate in rates.items() if rate.name != "constant"]
    return ", ".join([*told, *([_assigned(unusual)] if unusual else [])])


def _record(record: Record | None) -> list[str]:
    if record is None:
        return []
    if record.log:
        return [f"looked at after 1, 2, 5, 10, ... {record.unit}, from {record.first} on"]
    return [f"looked at every {record.every} {record.unit}"]


def _named(component: Component[Any]) -> str:
    return (
        f"{component.name} ({_assigned(component.settings)})"
        if component.settings
        else component.name
    )


def _assigned(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _component(registry: Registry, name: str) -> list[str]:
    component = registry.get(name)
    if registry is DATASETS:
        return [
            *map(plain, about(name)),
            *(_settings(component) if isinstance(component, type) else []),
        ]
    if registry is METRICS:
        info = component.info
        return [f"{info.label}, {info.unit}; {_DIRECTIONS[info.direction]}", *_settings(component)]
    # a method has a file of its own, whose docstring says more than that of its settings
    told = (registry is METHODS and _paragraph(inspect.getmodule(component))) or _paragraph(
        component
    )
    return [told, *_hyper(component), *_settings(component)]


def _hyper(component: Any) -> list[str]:
    bare = object.__new__(component) if isinstance(component, type) else component
    limits = {side: getattr(bare, f"hyper_{side}", {}) for side in ("above", "below")}
    lines = []
    for name in getattr(bare, "hyper", ()):
        bounds = [f"{side} {limits[side][name]:g}" for side in limits if name in limits[side]]
        told = _HYPER.get(name, "")
        lines.append(
            f"  {name}"
            + (f", {' and '.join(bounds)}" if bounds else "")
            + (f": {told}" if told else "")
        )
    return ["hyper-parameters, fixed or searched:", *lines] if lines else []


def _settings(component: Any) -> list[str]:
    """Return the settings of a component with their defaults, and what its docstrings say of them."""
    given = [field for field in fields(component) if field.init] if is_dataclass(component) else []
    told = _meanings(component) if given else {}
    lines = [
        f"  {field.name}={_default(field)}"
        + (f": {plain(told[field.name])}" if field.name in told else "")
        for field in given
    ]
    return ["settings:", *lines] if lines else []


def _meanings(component: Any) -> dict[str, str]:
    """Read what a class and its bases say of their parameters: numpydoc, ``a, b`` for several."""
    found: dict[str, str] = {}
    for cls in reversed(
        inspect.getmro(component if isinstance(component, type) else type(component))
    ):
        _, _, section = (inspect.cleandoc(cls.__doc__ or "")).partition("Parameters\n----------\n")
        names: list[str] = []
        for line in section.splitlines():
            if not line.strip() or line.startswith("---"):
                break
            if not line.startswith(" "):
                names = [name.strip() for name in line.partition(" : ")[0].split(",")]
                found |= dict.fromkeys(names, "")
            else:
                found |= {name: f"{found[name]} {line.strip()}".strip() for name in names}
    return found


def _default(field: Field[Any]) -> object:
    if field.default is MISSING:
        return "(required)" if field.default_factory is MISSING else field.default_factory()
    return field.default


def _paragraph(documented: object) -> str:
    return plain(" ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split()))


def plain(text: str) -> str:
    """Take the marks of code out of a text of a docstring."""
    return re.sub(r"(`{1,2})([^`]+)\1", r"\2", text)
