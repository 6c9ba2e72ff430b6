"""Which splits to run."""

from collections.abc import Iterable
from itertools import groupby

from bdl.errors import InputError, short

_MOST = 1_000_000
"""Splits that are listed one by one."""
_DIGITS = 18
"""Of a number that can be that of a split."""


def parse_splits(text: str, n: int) -> tuple[int, ...]:
    """Read which of the splits 0 to n - 1 to run.

    Parameters
    ----------
    text
        A count, which stands for the first so many; or split numbers and ranges, ``0,3,5-7``. A single
        split is written as a range, ``4-4``.
    n
        Number of splits that there are.

    Returns
    -------
    tuple of int
        Split numbers, ascending, each once.

    Raises
    ------
    InputError
        If the text is neither, is empty, or names a split that does not exist.
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
