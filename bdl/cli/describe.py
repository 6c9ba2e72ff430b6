"""Descriptions of benchmarks and registered components, as text for people."""

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from bdl.data import DATASETS, describe_dataset
from bdl.errors import InputError, unknown_name_error
from bdl.methods import METHODS
from bdl.metrics import METRICS
from bdl.models import LIKELIHOODS, MODELS, PRIORS
from bdl.references import REFERENCES
from bdl.registry import Registry, shipped_benchmarks
from bdl.spec import Entry, list_profiles, load_benchmark
from bdl.spec.components import Component
from bdl.spec.fields import to_canonical_json
from bdl.spec.sections import Record, Training
from bdl.spec.values import iterate_leaves
from bdl.training.schedule import RATES

REGISTRIES = (DATASETS, MODELS, LIKELIHOODS, PRIORS, RATES, METHODS, REFERENCES, METRICS)
"""Registries of all components that a benchmark file names."""
_DIRECTIONS = {
    "lower": "lower is better",
    "higher": "higher is better",
    "none": "neither lower nor higher is better",
    "ratio": "a duration, shown as paper / ours",
}
_HYPER_MEANINGS = {
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


def describe_by_name(name: str) -> str:
    """Describe a benchmark or a component as lines of text, the first with its name and kind.

    The name is one that ``bdl-bench list`` shows, the path of a benchmark file, or that of a
    component, ``path/to/file.py:Class`` or ``module:Class``; one of two kinds is described as
    both. `InputError` if nothing has that name, or a path leads to no component.
    """
    if name.endswith(".py"):
        raise InputError(f"{name} is a file: say which class or function of it, as {name}:NAME")
    if ":" in name and not name.endswith((".yaml", ".yml")):
        return "\n".join(_describe_path(name))
    if "/" in name or name.endswith((".yaml", ".yml")):
        return "\n".join([f"{name} (benchmark)", *_benchmark_lines(name)])
    lines: list[str] = []
    if name in shipped_benchmarks():
        lines += [f"{name} (benchmark)", *_benchmark_lines(name)]
    for registry in REGISTRIES:
        if name in registry.targets:
            kind = "data set" if registry is DATASETS else registry.kind
            lines += [f"{name} ({kind})", *_component_lines(registry, name)]
    if not lines:
        candidates = set(shipped_benchmarks())
        candidates.update(*(registry.targets for registry in REGISTRIES))
        raise unknown_name_error("name", name, candidates)
    return "\n".join(lines)


def _describe_path(path: str) -> list[str]:
    """Describe a component by its path, as the kind whose contract it follows."""
    component = Registry("component", {}).get(path)
    if isinstance(component, type) and is_dataclass(component):
        for registry in REGISTRIES[1:]:  # any function or class may make a data set
            if registry.missing_members(component) is None:
                return [f"{path} ({registry.kind})", *_component_lines(registry, path)]
    if not callable(component) or (
        isinstance(component, type) and "__call__" not in dir(component)
    ):
        raise InputError(f"{path} is no component: it follows no contract of docs/extending.md")
    return [f"{path} (data set)", _first_paragraph(component), *_setting_lines(component)]


def _benchmark_lines(name: str) -> list[str]:
    benchmark = load_benchmark(name, checked=True)
    papers = dict.fromkeys(
        f"{paper.paper}, {' and '.join(paper.tables)}" for paper in benchmark.papers
    )
    splits = f"{benchmark.splits} splits of each"
    for dataset, count in benchmark.preparation.splits.items():
        splits += f", of {dataset} {count}"
    lines = [
        benchmark.title,
        f"data sets: {', '.join(benchmark.datasets)}; {splits}",
        f"metrics: {', '.join(benchmark.metrics)}",
        f"papers: {'; '.join(papers) or 'none'}",
        f"profiles: {', '.join(list_profiles(name))}",
    ]
    preparation = benchmark.preparation
    exclude = set() if preparation.rows else {"rows"}
    if unusual := preparation.model_dump(mode="json", exclude_defaults=True, exclude=exclude):
        lines.append(f"preparation: {_assignments(unusual)}")
    lines += [
        f"sweep: {path} in {', '.join(map(to_canonical_json, values))}"
        for path, values in benchmark.sweep.items()
    ]
    lines += _record_lines(benchmark.record)
    lines += [
        f"on {dataset}: {_assignments(dict(iterate_leaves(changes)))}"
        for dataset, changes in benchmark.by_dataset.items()
    ]
    for entry, settings in benchmark.entries.items():
        lines += [f"entry {entry}", *(f"  {line}" for line in _entry_lines(settings))]
    return lines


def _entry_lines(entry: Entry) -> list[str]:
    components = {"model": entry.model, "likelihood": entry.likelihood, "method": entry.method}
    lines = [
        f"{kind}: {_component_text(component)}"
        for kind, component in components.items()
        if component  # an entry of a stream has a method alone
    ]
    if entry.datasets:
        lines.append(f"data sets: {', '.join(entry.datasets)}")
    if entry.reference:
        lines.append(f"reference: {_component_text(entry.reference)}")
    default_prior = Entry.model_fields["prior"].get_default(call_default_factory=True)
    if entry.prior.model_dump() != default_prior.model_dump():
        lines.append(f"prior: {_component_text(entry.prior)}")
    if entry.training:
        lines.append(f"training: {_training_text(entry.training)}")
    lines += _record_lines(entry.record)
    lines += [
        f"on {dataset}: {_assignments(dict(iterate_leaves(changes)))}"
        for dataset, changes in entry.by_dataset.items()
    ]
    if entry.hyper:
        lines.append(f"fixed: {_assignments(entry.hyper)}")
    if search := entry.search:
        startup = "" if "startup" in search.idle else f", {search.startup} at random first"
        lines.append(
            f"search: {search.sampler}, {search.trials} trials{startup}, "
            f"{search.folds} folds, by {search.metric}"
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


def _training_text(training: Training) -> str:
    unusual = training.model_dump(
        mode="json", exclude={"epochs", "batch_size", "schedule"}, exclude_defaults=True
    )
    schedule = training.schedule
    rates = {"rate": schedule} if isinstance(schedule, Component) else schedule
    phrases = [f"{training.epochs} epochs", f"batches of {training.batch_size}"]
    for name, rate in rates.items():
        if rate.name != "constant":
            phrases.append(f"{name} {_component_text(rate)}")
    if unusual:
        phrases.append(_assignments(unusual))
    return ", ".join(phrases)


def _record_lines(record: Record | None) -> list[str]:
    if record is None:
        return []
    if record.log:
        return [f"looked at after 1, 2, 5, 10, ... {record.unit}, from {record.first} on"]
    return [f"looked at every {record.every} {record.unit}"]


def _component_text(component: Component[Any]) -> str:
    if not component.settings:
        return component.name
    return f"{component.name} ({_assignments(component.settings)})"


def _assignments(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _component_lines(registry: Registry, name: str) -> Sequence[str]:
    declaration = registry.declaration(name)
    return declaration.description if declaration else describe_component(registry, name)


def describe_component(registry: Registry, name: str) -> list[str]:
    """Describe a component by its class and docstrings, as lines of text."""
    component = registry.get(name)
    if registry is DATASETS:
        settings = _setting_lines(component) if isinstance(component, type) else []
        return [*map(without_code_marks, describe_dataset(name)), *settings]
    if registry is METRICS:
        info = component.info
        return [
            f"{info.label}, {info.unit}; {_DIRECTIONS[info.direction]}",
            *_setting_lines(component),
        ]
    summary = _first_paragraph(component)
    if registry is METHODS:
        # the docstring of a method's file has the algorithm, that of its class the settings
        summary = _first_paragraph(inspect.getmodule(component)) or summary
    return [summary, *_hyper_lines(component), *_setting_lines(component)]


def _hyper_lines(component: Any) -> list[str]:
    # names and limits may be properties, which need an instance but no settings
    instance = object.__new__(component) if isinstance(component, type) else component
    limits = {side: getattr(instance, f"hyper_{side}", {}) for side in ("above", "below")}
    lines = []
    for name in getattr(instance, "hyper", ()):
        bounds = [f"{side} {limits[side][name]:g}" for side in limits if name in limits[side]]
        line = f"  {name}"
        if bounds:
            line += f", {' and '.join(bounds)}"
        if name in _HYPER_MEANINGS:
            line += f": {_HYPER_MEANINGS[name]}"
        lines.append(line)
    return ["hyper-parameters, fixed or searched:", *lines] if lines else []


def _setting_lines(component: Any) -> list[str]:
    """Describe the settings of a component: their defaults and their docstrings."""
    if not is_dataclass(component):
        return []
    docs = _parameter_docs(component)
    lines = []
    for setting in fields(component):
        if not setting.init:
            continue
        line = f"  {setting.name}={_default_text(setting)}"
        if setting.name in docs:
            line += f": {without_code_marks(docs[setting.name])}"
        lines.append(line)
    return ["settings:", *lines] if lines else []


def _parameter_docs(component: Any) -> dict[str, str]:
    """Read the numpydoc sections on parameters of a class and its bases, by parameter."""
    docs: dict[str, str] = {}
    component_class = component if isinstance(component, type) else type(component)
    for cls in reversed(inspect.getmro(component_class)):  # a class overrides its bases
        _, _, section = inspect.cleandoc(cls.__doc__ or "").partition("Parameters\n----------\n")
        names: list[str] = []  # "a, b" documents several parameters
        for line in section.splitlines():
            if not line.strip() or line.startswith("---"):
                break
            if not line.startswith(" "):
                names = [name.strip() for name in line.partition(" : ")[0].split(",")]
                docs |= dict.fromkeys(names, "")
            else:
                docs |= {name: f"{docs[name]} {line.strip()}".strip() for name in names}
    return docs


def _default_text(field: Field[Any]) -> object:
    if field.default is MISSING:
        return "(required)" if field.default_factory is MISSING else field.default_factory()
    return field.default


def _first_paragraph(component: object) -> str:
    paragraph = (inspect.getdoc(component) or "").split("\n\n")[0]
    return without_code_marks(" ".join(paragraph.split()))


def without_code_marks(text: str) -> str:
    """Remove the backticks around code from a text of a docstring."""
    return re.sub(r"(`{1,2})([^`]+)\1", r"\2", text)
