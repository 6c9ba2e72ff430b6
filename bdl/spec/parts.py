"""Parts of a benchmark: the points of a sweep, splits, and names that are kept."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Any

from bdl.errors import InputError, short, unknown
from bdl.spec.fields import canonical


class Point(Mapping[str, Any]):
    """Path of each axis to its JSON value there, in the order of the axes; immutable, equal if the values are."""

    def __init__(self, values: Mapping[str, Any] = {}) -> None:
        self._texts = {path: canonical(value) for path, value in values.items()}

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


_MOST = 1_000_000
"""Splits that are listed one by one."""
_DIGITS = 18
"""Of a number that can be that of a split."""


def parse_splits(text: str, n: int) -> tuple[int, ...]:
    """Read which of the splits 0 to n - 1 to run; return their numbers, ascending, each once.

    The text is a count, which stands for the first so many; or split numbers and ranges, ``0,3,5-7``. A single split is
    written as a range, ``4-4``. `InputError` if it is neither, is empty, or names a split that does not exist.
    """
    shown = short(text)
    parts = [tuple(part.strip() for part in part.split("-")) for part in text.split(",")]
    if not all(len(part) <= 2 and all(bound.isdecimal() for bound in part) for part in parts):
        raise InputError(f"splits '{shown}': give a count such as 3, or numbers and ranges such as 0,3,5-7")
    if any(len(bound) > _DIGITS for part in parts for bound in part):
        raise InputError(f"splits '{shown}': there are {n} splits, 0 to {n - 1}; choose among them")
    is_count = len(parts) == len(parts[0]) == 1
    bounds = [(0, int(text) - 1)] if is_count else [(int(part[0]), int(part[-1])) for part in parts]
    for low, high in bounds:
        if low > high:
            raise InputError(f"splits '{shown}': that is no split at all; give a count from 1 up, or low-high")
        if high >= n:
            raise InputError(f"splits '{shown}': there are {n} splits, 0 to {n - 1}; choose among them")
    if (count := sum(high - low + 1 for low, high in bounds)) > _MOST:
        raise InputError(f"splits '{shown}': {count:,} splits are too many to list; choose at most {_MOST:,}")
    return tuple(sorted({number for low, high in bounds for number in range(low, high + 1)}))


def listed(splits: Iterable[int]) -> str:
    """Write split numbers in order, those that follow one another as a range: ``0, 3, 5-7``."""
    runs = [[number for _, number in run] for _, run in groupby(enumerate(sorted(splits)), lambda own: own[1] - own[0])]
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def keep(kind: str, wanted: Sequence[str], known: Iterable[str]) -> tuple[str, ...]:
    """Select those of the known names, in their order, that are wanted, by name or by a pattern such as ``vifa*``.

    All are if none is wanted. `InputError`, with the kind of the names, if nothing is called so.
    """
    known = tuple(known)
    found = set(known) if not wanted else set[str]()
    for name in wanted:
        own = {name} & {*known} or {each for each in known if fnmatchcase(each, name)}
        if not own:
            raise unknown(kind, name, known)
        found |= own
    return tuple(name for name in known if name in found)
