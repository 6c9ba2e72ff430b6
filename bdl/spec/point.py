"""A point of a sweep: one value for each of its axes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Self

from bdl.spec.canonical import canonical


class Point(Mapping[str, Any]):
    """Dotted path of each axis to its value there, in the order of the axes; immutable, equal if the values are.

    Parameters
    ----------
    values
        JSON values by path; none without a sweep.
    """

    def __init__(self, values: Mapping[str, Any] = {}) -> None:
        self._texts = {path: canonical(value) for path, value in values.items()}

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `text` writes; the axes are then in alphabetical order."""
        return cls(json.loads(text))

    @property
    def text(self) -> str:
        """Canonical JSON, ``{}`` without a sweep."""
        return canonical(dict(self))

    @property
    def texts(self) -> dict[str, str]:
        """Path of each axis to the canonical JSON of its value, as tables have it."""
        return dict(self._texts)

    def __getitem__(self, path: str) -> Any:
        return json.loads(self._texts[path])

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and self._texts == other._texts

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Point({self.text})"


def points(sweep: Mapping[str, Sequence[Any]]) -> tuple[Point, ...]:
    """List every combination of values, the last axis fastest; one empty point if there is no axis."""
    return tuple(Point(dict(zip(sweep, values, strict=True))) for values in product(*sweep.values()))
