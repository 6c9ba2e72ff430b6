"""Write the tables that benchmark files decide anew, in docs/spec.md and docs/standing.md.

    python scripts/spec_tables.py

A table of the fields of a section follows a line such as ``<!-- fields: Training -->``, one of the lengths and
searches of a benchmark's entries ``<!-- searches: uci-contenders -->``.
"""

import re
from pathlib import Path
from typing import Any, Literal, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from bdl.plan.planning import list_tasks
from bdl.spec import Benchmark, Entry, Search, load_request
from bdl.spec.components import Component
from bdl.spec.sections import Training

DOCS = Path(__file__).parents[1] / "docs"
PAGES = (DOCS / "spec.md", DOCS / "standing.md")
TABLES: dict[str, type[BaseModel]] = {
    own.__name__: own for own in (Benchmark, Entry, Training, Search)
}
APART = {"profile"}
"""Fields that a file does not have."""
LENGTHS = ("steps", "descent", "warmup", "draws", "thinning", "chains", "rounds", "trees")
"""Settings of guests that say how long they train."""


def filled(page: str) -> str:
    """Return a page with its tables as the schema and the benchmarks have them."""
    page = re.sub(
        r"(<!-- fields: (\w+) -->\n\n)(?:\|.*\n)*",
        lambda match: match[1] + table_of_fields(TABLES[match[2]]),
        page,
    )
    return re.sub(
        r"(<!-- searches: ([\w-]+) -->\n\n)(?:\|.*\n)*",
        lambda match: match[1] + table_of_searches(load_request(match[2]).benchmark),
        page,
    )


def table_of_searches(benchmark: Benchmark) -> str:
    """Write what each entry trains and searches as a table; the reasons are its notes."""
    settings: dict[str, dict[str, Entry]] = {}
    for task in list_tasks(benchmark):
        settings.setdefault(task.entry, {})[task.dataset] = task.settings
    rows = []
    for entry, by_dataset in settings.items():
        notes = " ".join(note.text for note in benchmark.notes if note.entry == entry)
        rows.append(f"| `{entry}` | {_length(by_dataset)} | {_space(by_dataset)} | {notes} |\n")
    return "".join(["| Method | Length | Searched | Why |\n|---|---|---|---|\n", *rows])


def _length(by_dataset: dict[str, Entry]) -> str:
    """Write the epochs of an entry, those of single data sets apart, or a guest's settings."""
    first, *_ = by_dataset.values()
    if first.training is None:
        settings = first.method.settings
        return ", ".join(f"{name} {settings[name]:,}" for name in LENGTHS if name in settings)
    datasets: dict[int, list[str]] = {}
    for dataset, of_dataset in by_dataset.items():
        assert of_dataset.training is not None, "an entry trains on all data sets or on none"
        datasets.setdefault(of_dataset.training.epochs, []).append(dataset)
    usual = max(datasets, key=lambda epochs: len(datasets[epochs]))
    others = [
        f"{' and '.join(datasets[epochs])} {epochs:,}" for epochs in datasets if epochs != usual
    ]
    return "; ".join([f"{usual:,} epochs", *others])


def _space(by_dataset: dict[str, Entry]) -> str:
    """Write the ranges of a search; those of the noise are of the data set."""
    first, *_ = by_dataset.values()
    if first.search is None:
        return "nothing"
    ranges = []
    for name, bounds in first.search.space.items():
        limits = f"{bounds.low:g} to {bounds.high:g}"
        ranges.append(name if name == "noise_precision" else f"{name} {limits}")
    return ", ".join(ranges)


def table_of_fields(settings: type[BaseModel]) -> str:
    """Write the fields of a section as a table: name, default, meaning."""
    rows = [
        f"| `{name}` | {_default(field)} | {_meaning(field)} |\n"
        for name, field in settings.model_fields.items()
        if name not in APART
    ]
    return "".join(["| Field | Default | Meaning |\n|---|---|---|\n", *rows])


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, BaseModel):
        value = value.model_dump(
            mode="json", exclude_defaults=isinstance(value, Component), exclude_none=True
        )
        value = {name: own for name, own in value.items() if own != {}}
    if value in ({}, ()):
        return "none"
    text = (
        yaml.safe_dump(value, default_flow_style=True, sort_keys=False)
        .removesuffix("...\n")
        .strip()
    )
    return f"`{text}`"


def _meaning(field: FieldInfo) -> str:
    text = " ".join((field.description or "").split())
    return f"{text} {_choices(field.annotation)}".strip()


def _choices(annotation: Any) -> str:
    if get_origin(annotation) is not Literal:
        return ""
    *others, last = (f"`{choice}`" for choice in annotation.__args__)
    return f"{', '.join(others)} or {last}."


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
