"""Defaults and limits of settings, facts and descriptions of components: files and tables rest on them.

A file leaves out what is as by default, so that a changed default changes what it says. What is
meant to change is written to ``bdl/declared.json`` by ``python tests/spec/test_declared.py``.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

import pytest

import bdl
from bdl.cli.describe import describe_component
from bdl.data import DATASETS
from bdl.methods import METHODS
from bdl.metrics import METRICS
from bdl.models import LIKELIHOODS, MODELS, PRIORS
from bdl.references import REFERENCES
from bdl.training.schedule import RATES

FILE = Path(bdl.__file__).with_name("declared.json")
STORED = json.loads(FILE.read_text("utf-8"))
RENEW = "if that is meant: python tests/spec/test_declared.py"
REGISTRIES = {
    one.kind: one
    for one in (METHODS, METRICS, MODELS, LIKELIHOODS, PRIORS, REFERENCES, RATES, DATASETS)
}
LABELLED = {"csv", "parquet", "openml"}
"""Data sets that make their label themselves, from their settings: they have to be imported."""
GUESTS = [
    "bdl.guests.bayesian_ridge:BayesianRidge",
    "bdl.guests.blackjax:Mclmc",
    "bdl.guests.gaussian_process:GaussianProcess",
    "bdl.guests.laplace_torch:LaplaceTorch",
    "bdl.guests.ngboost:NgBoost",
    "bdl.guests.numpyro:AutoLowRank",
    "bdl.guests.numpyro:Nuts",
    "bdl.guests.posteriors:DiagonalVi",
    "bdl.guests.posteriors:Sghmc",
    "bdl.guests.vbll:Vbll",
    "bdl.references.network_nuts:NetworkNuts",
]
"""Methods of the package that files name by their module."""
COMPONENTS = [
    f"{kind}:{name}"
    for kind, registry in REGISTRIES.items()
    for name in registry.builtin
    if name not in LABELLED
] + [f"method:{name}" for name in GUESTS]
FACTS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "method": lambda method: {
        name: getattr(method, name) for name in ("source", "course", "retired")
    },
    "metric": lambda metric: {"info": asdict(metric.info)},
}


def bare(schema: Any) -> Any:
    """Leave out the words of a schema."""
    if isinstance(schema, dict):
        return {
            key: bare(value)
            for key, value in schema.items()
            if key not in ("title", "description")
        }
    return [bare(value) for value in schema] if isinstance(schema, list) else schema


def declared(component: str) -> dict[str, Any]:
    """Read the settings of a component from its annotations, and facts from its class."""
    kind, _, name = component.partition(":")
    registry = REGISTRIES[kind]
    definition = registry.get(name)
    settings: dict[str, Any] = {}
    if isinstance(definition, type):
        schemas = bare(registry.adapter(name).json_schema().get("properties", {}))
        for field in fields(definition):  # in their order, which is that of labels
            if field.init:
                settings[field.name] = schemas[field.name]
                if field.default_factory is not MISSING:
                    settings[field.name]["default"] = field.default_factory()
    return {
        "settings": settings,
        "facts": FACTS.get(kind, lambda _: {})(definition),
        "description": describe_component(registry, name),
    }


@pytest.mark.parametrize("component", COMPONENTS)
def test_defaults_and_limits_are_those_that_files_rest_on(component):
    assert declared(component) == STORED.get(component), RENEW
    assert [*declared(component)["settings"]] == [*STORED[component]["settings"]], RENEW


@pytest.mark.parametrize("component", COMPONENTS)
def test_settings_cannot_be_changed(component):
    kind, _, name = component.partition(":")
    definition = REGISTRIES[kind].get(name)
    assert not isinstance(definition, type) or definition.__dataclass_params__.frozen


if __name__ == "__main__":
    lines = [
        f"  {json.dumps(component)}: {json.dumps(declared(component))}" for component in COMPONENTS
    ]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
