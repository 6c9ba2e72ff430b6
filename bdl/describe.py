"""What a benchmark, data set, model, likelihood, method, reference or metric is, as text for people."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from bdl.data import DATASETS, about
from bdl.errors import unknown
from bdl.methods import METHODS
from bdl.metrics import INFO
from bdl.models import LIKELIHOODS, MODELS
from bdl.references import REFERENCES
from bdl.spec import Entry, list_benchmarks, list_profiles, load_benchmark
from bdl.spec.components import Component
from bdl.spec.merging import leaves

_DIRECTIONS = {
    "lower": "lower is better",
    "higher": "higher is better",
    "ratio": "a duration, shown as paper / ours",
}


def describe(name: str) -> str:
    """Describe a benchmark, data set, model, likelihood, method, reference posterior or metric.

    Parameters
    ----------
    name
        A name that ``bdl-bench list`` shows.

    Returns
    -------
    str
        Lines of text; the first says the name and the kind. A name of two kinds is described as both.

    Raises
    ------
    InputError
        If nothing has that name.
    """
    kinds: dict[str, tuple[Iterable[str], Callable[[str], list[str]]]] = {
        "benchmark": ([benchmark for benchmark, _ in list_benchmarks()], _benchmark),
        "data set": (DATASETS.names(), about),
        "model": (MODELS.names(), lambda name: _component(MODELS.get(name))),
        "likelihood": (LIKELIHOODS.names(), lambda name: _component(LIKELIHOODS.get(name))),
        "method": (METHODS.names(), _method),
        "reference": (REFERENCES.names(), lambda name: _component(REFERENCES.get(name))),
        "metric": (INFO, _metric),
    }
    found = [[f"{name} ({kind})", *lines(name)] for kind, (names, lines) in kinds.items() if name in names]
    if not found:
        raise unknown("name", name, [known for names, _ in kinds.values() for known in names])
    return "\n".join(line for section in found for line in section)


def _benchmark(name: str) -> list[str]:
    benchmark = load_benchmark(name)
    papers = dict.fromkeys(f"{paper.paper}, {' and '.join(paper.tables)}" for paper in benchmark.papers)
    lines = [
        benchmark.title,
        f"data sets: {', '.join(benchmark.datasets)}; {benchmark.splits} splits of each",
        f"metrics: {', '.join(benchmark.metrics)}",
        f"papers: {'; '.join(papers) or 'none'}",
        f"profiles: {', '.join(list_profiles(name))}",
    ]
    if unusual := benchmark.preparation.model_dump(mode="json", exclude_defaults=True):
        lines.append(f"preparation: {_assigned(unusual)}")
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
    if entry.training:
        lines.append(f"training: {entry.training.epochs} epochs, batches of {entry.training.batch_size}")
    lines += [f"on {dataset}: {_assigned(dict(leaves(changes)))}" for dataset, changes in entry.by_dataset.items()]
    if entry.hyper:
        lines.append(f"fixed: {_assigned(entry.hyper)}")
    if search := entry.search:
        first = "" if "startup" in search.idle else f", {search.startup} at random first"
        lines.append(
            f"search: {search.sampler}, {search.trials} trials{first}, {search.folds} folds, by {search.metric}"
        )
        lines += [f"  {name}: {space.low:g} to {space.high:g}, {space.scale}" for name, space in search.space.items()]
        lines += [f"  {name}: {', '.join(f'{value:g}' for value in values)}" for name, values in search.grid.items()]
    return lines


def _named(component: Component[Any]) -> str:
    return f"{component.name} ({_assigned(component.settings)})" if component.settings else component.name


def _assigned(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _method(name: str) -> list[str]:
    """A method has a file of its own, whose docstring says more than that of its settings."""
    return [_paragraph(inspect.getmodule(METHODS.get(name))), *_settings(METHODS.get(name))]


def _component(component: type) -> list[str]:
    return [_paragraph(component), *_settings(component)]


def _settings(component: Any) -> list[str]:
    defaults = {field.name: "(required)" if field.default is MISSING else field.default for field in fields(component)}
    return [f"settings: {_assigned(defaults)}"] if defaults else []


def _metric(name: str) -> list[str]:
    info = INFO[name]
    return [f"{info.label}, {info.unit}; {_DIRECTIONS[info.direction]}"]


def _paragraph(documented: object) -> str:
    """First paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split())
