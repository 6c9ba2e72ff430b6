"""What a command asks for: a benchmark, what overrides change in it, and the part of it that is run.

The protocol is the whole file under a profile. Anything else is a variant, whose results are kept
apart.
"""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from bdl.errors import InputError, short
from bdl.spec.fields import canonical, explain, keep, sha256
from bdl.spec.loading import load_benchmark, uncertified_overrides
from bdl.spec.schema import PART, Benchmark

GONE = "(not there)"
"""Stands for the value of a field that one of two benchmarks lacks."""

_LONGEST_NAME = 60


@dataclass(frozen=True)
class Variant:
    """A benchmark, profile and overrides applied, as a command asks for it.

    `changes` maps the dotted path of what the overrides change to its new value; data sets,
    entries and splits are the part that is run, empty for all; `source` is the name or path that
    the benchmark was asked for by.
    """

    benchmark: Benchmark
    changes: Mapping[str, Any] = field(default_factory=dict)
    datasets: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    splits: tuple[int, ...] = ()
    source: str = ""

    @property
    def chosen(self) -> Benchmark:
        """The benchmark with the data sets and entries that are run."""
        return self.benchmark.select(self.datasets, self.entries)

    @property
    def numbers(self) -> Sequence[int]:
        """The splits that are run; all of them are counted rather than listed."""
        return self.splits or range(self.benchmark.splits)

    @property
    def narrowed(self) -> bool:
        """Whether a part is run."""
        return bool(self.datasets or self.entries or self.splits)

    @property
    def whole(self) -> "Variant":
        """The same without narrowing."""
        return replace(self, datasets=(), entries=(), splits=())

    @property
    def name(self) -> str:
        """Folder of its results, readable as far as it is short; empty for the protocol."""
        if not (self.changes or self.narrowed):
            return ""
        parts = [
            *self.datasets,
            *self.entries,
            *([f"splits-{self._splits}"] if self.splits else []),
        ]
        parts += [
            f"{path.rpartition('.')[2]}-{plain(value)}" for path, value in self.changes.items()
        ]
        readable = re.sub(r"[^a-z0-9-]+", "_", "_".join(parts).lower())[:_LONGEST_NAME].strip("_-")
        return f"{readable}-{sha256({'changes': dict(self.changes), **self._part})[:8]}"

    @property
    def asked(self) -> str:
        """What selects it on the command line: the benchmark and options."""
        words = [self.source or self.benchmark.name]
        words += ["--profile", self.benchmark.profile] if self.benchmark.profile != "paper" else []
        words += [word for name in self.datasets for word in ("--dataset", name)]
        words += [word for name in self.entries for word in ("--method", name)]
        words += ["--splits", self._splits] if self.splits else []
        words += [
            word
            for path, value in self.changes.items()
            for word in ("--set", f"{path}={plain(value)}")
        ]
        return shlex.join(words)

    def command(self, word: str, results: Path, *options: str) -> str:
        """Write the command that does something with it, such as ``run``, in a folder of results."""
        return " ".join(["bdl-bench", word, self.asked, *options]) + there(results)

    def dump(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {
            "spec": self.benchmark.model_dump(mode="json"),
            "overrides": dict(self.changes),
            "narrowed_to": self._part if self.narrowed else None,
        }

    @classmethod
    def parse(cls, text: str, source: str) -> Self:
        """Read the JSON of what `dump` gives, more keys aside.

        `InputError`, which names the source, if it is not that, or this version of the package has
        no such benchmark.
        """
        try:
            content = json.loads(text)
            # A part: the profile that was applied may have left out what notes are about.
            benchmark = Benchmark.model_validate(content["spec"], context=PART)
            part = content["narrowed_to"] or {}
            datasets, entries, splits = (
                tuple(part.get(name, ())) for name in ("datasets", "entries", "splits")
            )
            return cls(benchmark, content["overrides"], datasets, entries, splits)
        except ValidationError as error:
            raise InputError(
                f"{source}: the spec of these rows is not one of this version: {explain(error)}"
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{source} is damaged ({error!r}); remove it and run again") from None

    @property
    def _splits(self) -> str:
        first, last = self.splits[0], self.splits[-1]
        if first == 0 and last == len(self.splits) - 1:
            return f"{len(self.splits)}"
        return (
            f"{first}-{last}"
            if last - first == len(self.splits) - 1
            else ",".join(map(str, self.splits))
        )

    @property
    def _part(self) -> dict[str, list[Any]]:
        return {
            "datasets": list(self.datasets),
            "entries": list(self.entries),
            "splits": list(self.splits),
        }


def load_variant(
    name_or_path: str,
    profile: str = "paper",
    overrides: Sequence[str] = (),
    datasets: Sequence[str] = (),
    entries: Sequence[str] = (),
    splits: str | None = None,
    uncertified: bool = False,
) -> Variant:
    """Read what a command asks for.

    What narrows nothing, and an override that changes nothing, count for nothing.

    The benchmark is as `load_benchmark` takes it; the part of it that is run is given by names or
    patterns such as ``vifa*``, and splits as `parse_splits` takes them; all by default. References
    may be `uncertified`: those whose draws broke a rule are used. `InputError` as these say.
    """
    protocol = load_benchmark(name_or_path, profile)
    overrides = [*overrides, *(uncertified_overrides(protocol) if uncertified else ())]
    benchmark = load_benchmark(name_or_path, profile, overrides) if overrides else protocol
    benchmark.select(datasets, entries)
    numbers = () if splits is None else parse_splits(splits, benchmark.splits)
    return Variant(
        benchmark,
        {path: new for path, (_, new) in differences(protocol, benchmark).items()},
        _part("dataset", datasets, tuple(map(str, benchmark.datasets))),
        _part("method", entries, tuple(benchmark.entries)),
        () if len(numbers) == benchmark.splits else numbers,
        name_or_path,
    )


_MOST = 1_000_000
"""Splits that are listed one by one."""
_DIGITS = 18
"""Of a number that can be that of a split."""


def parse_splits(text: str, n: int) -> tuple[int, ...]:
    """Read which of the splits 0 to n - 1 to run; return their numbers, ascending, each once.

    The text is a count, which stands for the first so many; or split numbers and ranges,
    ``0,3,5-7``. A single split is written as a range, ``4-4``. `InputError` if it is neither, is
    empty, or names a split that does not exist.
    """
    shown = short(text)
    parts = [tuple(part.strip() for part in part.split("-")) for part in text.split(",")]
    if not all(
        len(part) <= 2 and all(bound.isdecimal() and len(bound) <= _DIGITS for bound in part)
        for part in parts
    ):
        raise InputError(
            f"splits '{shown}': give a count such as 3, or numbers and ranges such as 0,3,5-7"
        )
    is_count = len(parts) == len(parts[0]) == 1
    bounds = (
        [(0, int(text) - 1)] if is_count else [(int(part[0]), int(part[-1])) for part in parts]
    )
    for low, high in bounds:
        if low > high:
            raise InputError(
                f"splits '{shown}': that is no split at all; give a count from 1 up, or low-high"
            )
        if high >= n:
            raise InputError(
                f"splits '{shown}': there are {n} splits, 0 to {n - 1}; choose among them"
            )
    if (count := sum(high - low + 1 for low, high in bounds)) > _MOST:
        raise InputError(
            f"splits '{shown}': {count:,} splits are too many to list; choose at most {_MOST:,}"
        )
    return tuple(sorted({number for low, high in bounds for number in range(low, high + 1)}))


def listed(splits: Iterable[int]) -> str:
    """Write split numbers in order, those that follow one another as a range: ``0, 3, 5-7``."""
    runs = [
        [number for _, number in run]
        for _, run in groupby(enumerate(sorted(splits)), lambda own: own[1] - own[0])
    ]
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def differences(before: Benchmark, after: Benchmark) -> dict[str, tuple[Any, Any]]:
    """Map the fields in which two benchmarks differ to both values, `GONE` for one that is not there.

    A component of another name is one value, and so is a list of others.
    """
    return dict(_differences(before.model_dump(mode="json"), after.model_dump(mode="json"), ""))


def _differences(before: Any, after: Any, path: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    mappings = (
        isinstance(before, Mapping) and isinstance(after, Mapping) and path != "sweep"
    )  # replaced as a whole
    if mappings and (not path or before.get("name") == after.get("name")):
        for key in dict.fromkeys((*before, *after)):
            inner = f"{path}.{key}" if path else key
            yield from _differences(before.get(key, GONE), after.get(key, GONE), inner)
    elif _alike(before, after):
        for place, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _differences(one, other, f"{path}.{place}")
    elif before != after:
        yield path, (before, after)


def _alike(before: Any, after: Any) -> bool:
    """Return whether lists have the same components, which differ in their settings at most."""
    if not (isinstance(before, list) and isinstance(after, list)):
        return False
    names = [
        [own.get("name") if isinstance(own, Mapping) else None for own in each]
        for each in (before, after)
    ]
    return names[0] == names[1] and None not in names[0]


def _part(kind: str, wanted: Sequence[str], known: tuple[str, ...]) -> tuple[str, ...]:
    """Put names into the order of the benchmark; none if all are wanted."""
    kept = keep(kind, wanted, known)
    return () if kept == known else kept


def there(results: Path) -> str:
    """Write the option that names a folder of results, where it is not the usual one."""
    return "" if results == Path("results") else f" --results {shlex.quote(str(results))}"


def plain(value: Any) -> str:
    """Write a JSON value as YAML on one line; text without quotes where YAML takes it for text."""
    is_text = isinstance(value, str) and re.fullmatch(r"[A-Za-z_(][\w./:() -]*", value)
    return value if is_text and value not in ("null", "true", "false") else canonical(value)
