"""Write the tables of fields in docs/spec.md anew, from the schema of benchmark files.

    python scripts/spec_tables.py

A table follows a line such as ``<!-- fields: Training -->``.
"""

import re
from pathlib import Path
from typing import Any, Literal, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from bdl.spec import Benchmark, Entry, Search
from bdl.spec.components import Component
from bdl.spec.sections import Training

PAGE = Path(__file__).parents[1] / "docs" / "spec.md"
TABLES: dict[str, type[BaseModel]] = {
    own.__name__: own for own in (Benchmark, Entry, Training, Search)
}
APART = {"profile"}
"""Fields that a file does not have."""


def filled(page: str) -> str:
    """Return a page with its tables as the schema has them."""
    return re.sub(
        r"(<!-- fields: (\w+) -->\n\n)(?:\|.*\n)*",
        lambda found: found[1] + table(TABLES[found[2]]),
        page,
    )


def table(settings: type[BaseModel]) -> str:
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
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
