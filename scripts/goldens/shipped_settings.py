"""The settings that the shipped benchmarks use, as many as select different branches of code.

Numbers that only measure something do not: of two settings that differ in a learning rate, one
stands for both. Names, switches, what is null, and whether a number is 0, 1 or another do.
"""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from bdl.methods.guest import Guest
from bdl.registry import shipped_benchmarks
from bdl.spec import Benchmark, Entry
from bdl.spec.components import Component, resolve_settings
from bdl.spec.loading import list_profiles, load_benchmark
from goldens.case import REGISTRIES

Settings = dict[str, Any]

SIZES = {
    "hidden": 3,
    "cycle_epochs": 3,
    "samples": 3,
    "shape": 16,
    "degrees": 10,
    "dim": 12,
    "length": 50,
    "rows": 40,
    "draws": 100,
}
"""Largest size by setting; 2 for all others, but those that are kept."""
NETWORK = {"factory": "goldens.networks:small", "settings": {}, "shape": [1, 6, 6]}
"""What stands for large networks where a method is tried; the networks have cases of their own."""
_SAMPLERS = ("importance-sampling", "moment-matching")
_MOST_DRAWS = 200
_KEPT = {"warmup", "block", "bins", "size", "seed", "chains", "splits", "layer"}
"""Sizes that stay as they are: streams need their warm-up, and the others cost nothing."""


def branches(value: Any) -> str:
    """Return a text that is the same for settings of the same branches."""
    return json.dumps(_branches(value), sort_keys=True)


def _branches(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _branches(own) for name, own in value.items()}
    if isinstance(value, list | tuple):
        return [_branches(own) for own in value]
    if value is None or isinstance(value, bool | str) or value in (0, 1):
        return value
    return "a number"


def small(settings: Mapping[str, Any]) -> Settings:
    """Return the settings of a component, a mapping with its name, with sizes that suit a small problem."""
    return {field: _small(settings.get("name"), field, value) for field, value in settings.items()}


def _small(component: Any, field: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_small(component, field, own) for own in value]
    if isinstance(value, bool) or not isinstance(value, int) or field in _KEPT:
        return value
    return min(
        value,
        _MOST_DRAWS if field == "samples" and component in _SAMPLERS else SIZES.get(field, 2),
    )


@lru_cache(maxsize=1)
def used() -> dict[str, list[Settings]]:
    """Return the distinct settings by kind, from all files, profiles, points and data sets.

    Sorted.
    """
    found: dict[str, dict[str, Settings]] = {}
    for kind, settings in _all():
        found.setdefault(kind, {}).setdefault(json.dumps(settings, sort_keys=True), settings)
    return {kind: [own[text] for text in sorted(own)] for kind, own in found.items()}


def _all() -> Iterator[tuple[str, Settings]]:
    for name in shipped_benchmarks():
        for profile in list_profiles(name):
            whole = load_benchmark(name, profile)
            for point in whole.points:
                yield from _of(whole.at(point))


def _of(benchmark: Benchmark) -> Iterator[tuple[str, Settings]]:
    for label in benchmark.metrics:
        yield "metric", small({"name": label.name, **label.settings})
    for data in benchmark.datasets:
        yield "dataset", small({"name": data.name, **data.settings})
    for dataset, name in benchmark.pairs:
        entry = benchmark.entries[name].on(dataset)
        if isinstance(entry.method.build(), Guest):  # whose digits are those of another library
            continue
        preparation = benchmark.preparation
        few = 2 if preparation.split == "other-first" else 12  # a golden split tests three rows
        rows = few if preparation.rows_of(dataset) else None
        yield (
            "preparation",
            {"split": preparation.split, "standardise": preparation.standardise, "rows": rows},
        )
        yield "method", _fit(entry)
        for kind in ("model", "likelihood", "prior", "reference"):
            if own := _component(getattr(entry, kind)):
                yield kind, own
        if entry.search:
            yield "search", _search(entry)
            yield (
                "metric",
                small({"name": entry.search.metric.name, **entry.search.metric.settings}),
            )
        for rate in _rates(entry).values():
            yield "rate", rate


def _component(component: Component[Any] | None) -> Settings | None:
    return None if component is None else small({"name": component.name, **component.settings})


def _rates(entry: Entry) -> dict[str, Settings]:
    if entry.training is None:
        return {}
    given = entry.training.schedule
    return {group: small(rate.model_dump(mode="json")) for group, rate in _by_group(given).items()}


def _by_group(given: Any) -> Mapping[str, Any]:
    return given if isinstance(given, Mapping) else {"": given}


def _fit(entry: Entry) -> Settings:
    """Return what decides the branches of a fit: method, model, likelihood, prior and how minibatches are made."""
    found: Settings = {
        kind: _component(getattr(entry, kind))
        for kind in ("method", "model", "likelihood", "prior")
    }
    if entry.streams:
        return {"method": found["method"]}
    if found["model"]["name"] == "module":
        found["model"] |= NETWORK
    if entry.training is not None:
        rates = {} if entry.training.build().constant else _rates(entry)
        found |= {
            "sampling": entry.training.sampling,
            "incomplete": entry.training.incomplete,
            "rates": rates,
        }
    return found


def _search(entry: Entry) -> Settings:
    """Return what decides the branches of a search; names and ends of ranges do not."""
    search = entry.search
    assert search is not None
    space = {
        f"h{i}": {"low": 0.01, "high": 10.0, "scale": own.scale}
        for i, own in enumerate(search.space.values())
    }
    grid = {f"h{i}": [0.1, 1.0, 4.0] for i in range(len(search.grid))}
    count = {} if grid else {"trials": 6, "startup": 3}
    kept = {
        "sampler": search.sampler,
        "folds": min(search.folds, 3),
        "refit": search.refit,
        "penalty": search.penalty,
    }
    return {**kept, **count, "metric": "nmll", "space": space, "grid": grid}


def default(kind: str, name: str) -> Settings | None:
    """Return a registered component with its defaults; None where some setting has none."""
    component = REGISTRIES[kind].get(name)
    if not isinstance(component, type) or kind == "posterior":
        return {"name": name}
    try:
        return small({"name": name, **resolve_settings(REGISTRIES[kind], name, {})})
    except ValueError:
        return None


def text(settings: Any, kind: str = "") -> str:
    """Return a readable name: the component's, and the settings that are not its defaults."""
    if isinstance(settings, Mapping) and "name" in settings:
        usual = (default(kind, settings["name"]) or {}) if kind in REGISTRIES else {}
        own = {
            field: value
            for field, value in settings.items()
            if field != "name" and usual.get(field, "") != value
        }
        return " ".join(
            [settings["name"], *(f"{field}={_plain(value)}" for field, value in own.items())]
        )
    return _plain(settings)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
