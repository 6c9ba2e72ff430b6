"""Names of code in a spec: who gives the file has named the code, and who reads rows has not."""

from collections.abc import Iterator
from typing import Any

from bdl.trusted_code import require_trusted, trust

_TEXTS = {"title", "text", "source", "label", "notes"}
"""Fields of a spec that are for people."""
_TABLES = {"csv", "parquet", "openml"}
"""Data sets whose settings are texts of the user's own tables."""


def require_trusted_code(spec: Any, source: str) -> None:
    """Refuse a recorded spec, as JSON values, that names code which its reader has not named."""
    for name in _iterate_code_names(spec):
        require_trusted(name, source)


def trust_code(spec: Any) -> None:
    """Trust the code that a spec of the user's names, which may be imported much later."""
    for name in _iterate_code_names(spec):
        trust(name)


def _iterate_code_names(settings: Any) -> Iterator[str]:
    """Yield the texts that name code: ``module:attribute`` or ``path/to/file.py:attribute``."""
    if isinstance(settings, dict):
        for name, value in settings.items():
            if name == "datasets" and isinstance(value, list):
                # settings of tables are names of columns and values, which may have colons
                yield from _iterate_code_names([item for item in value if not _is_table(item)])
            elif name not in _TEXTS:
                yield from _iterate_code_names(value)
    elif isinstance(settings, list):
        for value in settings:
            yield from _iterate_code_names(value)
    elif isinstance(settings, str):
        location, _, attribute = settings.rpartition(":")
        if location and attribute.isidentifier():
            yield settings


def _is_table(dataset: Any) -> bool:
    return isinstance(dataset, dict) and dataset.get("name") in _TABLES
