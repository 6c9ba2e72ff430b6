"""Requests: a benchmark, the overrides that change it, and the part of it that is run.

The protocol is the whole file under a profile. Any other request is a variant of it, whose results
have a folder of their own.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from bdl.errors import InputError, abbreviate, parse_json
from bdl.files import DEFAULT_RESULTS
from bdl.spec.code_names import require_trusted_code
from bdl.spec.fields import (
    CHECKED_CONTEXT,
    explain,
    select_names,
    sha256,
    to_canonical_json,
)
from bdl.spec.loading import list_uncertified_overrides, load_benchmark
from bdl.spec.schema import Benchmark

MISSING_FIELD = "(not there)"
"""Value of a field that one of two benchmarks lacks."""

_MAX_NAME_LENGTH = 60


@dataclass(frozen=True)
class Request:
    """A benchmark with profile and overrides applied, and the part of it that a command runs.

    `changes` maps the dotted path of each field that the overrides change to its new value; data
    sets, entries and splits are the part that is run, empty for all; `source` is the name or path
    by which the benchmark was loaded.
    """

    benchmark: Benchmark
    changes: Mapping[str, Any] = field(default_factory=dict)
    datasets: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    splits: tuple[int, ...] = ()
    source: str = ""

    @property
    def selected_benchmark(self) -> Benchmark:
        """The benchmark with the data sets and entries that are run."""
        return self.benchmark.select(self.datasets, self.entries)

    @property
    def split_numbers(self) -> Sequence[int]:
        """The splits that are run; a range where all are, which may be too many to list."""
        return self.splits or range(self.benchmark.splits)

    @property
    def is_narrowed(self) -> bool:
        """Whether only a part of the benchmark is run."""
        return bool(self.datasets or self.entries or self.splits)

    @property
    def full_request(self) -> "Request":
        """The same benchmark and overrides, run as a whole."""
        return replace(self, datasets=(), entries=(), splits=())

    @property
    def replicate_seed(self) -> int | None:
        """The seed of a replicate: the benchmark under another seed, and nothing else changed.

        None for anything else.
        """
        return self.changes["seed"] if [*self.changes] == ["seed"] else None

    @property
    def folder_name(self) -> str:
        """Name of the folder of its results; empty for the protocol.

        It is readable up to a length, and ends in a digest.
        """
        if not (self.changes or self.is_narrowed):
            return ""
        words = [*self.datasets, *self.entries]
        if self.splits:
            words.append(f"splits-{self._splits_text}")
        for path, value in self.changes.items():
            words.append(f"{path.rpartition('.')[2]}-{to_inline_yaml(value)}")
        # letters that every file system takes, and tells apart
        slug = re.sub(r"[^a-z0-9-]+", "_", "_".join(words).lower())
        readable = slug[:_MAX_NAME_LENGTH].strip("_-")
        # the digest tells requests apart whose readable names are cut or alike
        return f"{readable}-{sha256({'changes': dict(self.changes), **self._selection})[:8]}"

    @property
    def command_arguments(self) -> str:
        """The benchmark and the options that select it on the command line."""
        words = [self.source or self.benchmark.name]
        if self.benchmark.profile != "paper":
            words += ["--profile", self.benchmark.profile]
        for dataset in self.datasets:
            words += ["--dataset", dataset]
        for entry in self.entries:
            words += ["--method", entry]
        if self.splits:
            words += ["--splits", self._splits_text]
        for path, value in self._overrides.items():
            words += ["--set", f"{path}={to_inline_yaml(value)}"]
        return shlex.join(words)

    @property
    def _overrides(self) -> dict[str, Any]:
        """The changes as overrides make them: a list in which an item changes is given whole."""
        spec = self.benchmark.model_dump(mode="json") if self.changes else {}
        overrides: dict[str, Any] = {}
        for path, value in self.changes.items():
            changed_list = _find_list(spec, path.split("."))
            list_path, content = changed_list or (path, value)
            overrides[list_path] = content
        return overrides

    def format_command(self, command: str, results: Path, *options: str) -> str:
        """Write a command for the request, such as ``run``, in a folder of results."""
        words = ["bdl-bench", command, self.command_arguments, *options]
        return " ".join(words) + results_option(results)

    def dump(self) -> dict[str, Any]:
        """Return the request as JSON values."""
        return {
            "spec": self.benchmark.model_dump(mode="json"),
            "overrides": dict(self.changes),
            "narrowed_to": self._selection if self.is_narrowed else None,
        }

    @classmethod
    def parse(cls, text: str, source: str) -> Self:
        """Read the JSON of the values that `dump` returns; other keys are ignored.

        `InputError`, which names the source, if it is not that, or this version of the package has
        no such benchmark.
        """
        try:
            content = parse_json(text)
            # before the validation, which imports the code that a spec names
            require_trusted_code(content["spec"], source)
            benchmark = Benchmark.model_validate(content["spec"], context=CHECKED_CONTEXT)
            selection = content["narrowed_to"] or {}
            return cls(
                benchmark,
                content["overrides"],
                datasets=tuple(selection.get("datasets", ())),
                entries=tuple(selection.get("entries", ())),
                splits=tuple(selection.get("splits", ())),
            )
        except InputError:
            raise
        except ValidationError as error:
            raise InputError(
                f"{source}: the spec of these rows is not one of this version: {explain(error)}"
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{source} is damaged ({error!r}); remove it and run again") from None

    @property
    def _splits_text(self) -> str:
        first, last = self.splits[0], self.splits[-1]
        if first == 0 and last == len(self.splits) - 1:
            return f"{len(self.splits)}"
        if last - first == len(self.splits) - 1:
            return f"{first}-{last}"
        return ",".join(map(str, self.splits))

    @property
    def _selection(self) -> dict[str, list[Any]]:
        return {
            "datasets": list(self.datasets),
            "entries": list(self.entries),
            "splits": list(self.splits),
        }


def load_request(
    name_or_path: str,
    profile: str = "paper",
    overrides: Sequence[str] = (),
    datasets: Sequence[str] = (),
    entries: Sequence[str] = (),
    splits: str | None = None,
    uncertified: bool = False,
    *,
    checked: bool = False,
) -> Request:
    """Load the benchmark of a command, and select the part of it that is run.

    A selection of everything is none, and an override that changes nothing is dropped.

    The benchmark is as `load_benchmark` takes it; the part of it that is run is given by names or
    patterns such as ``vifa*``, and splits as `parse_splits` takes them; all by default. References
    may be `uncertified`: those whose draws broke a rule are used. `checked` is as `load_benchmark`
    takes it. `InputError` as these say.
    """
    checked = checked and not overrides and not uncertified
    protocol = load_benchmark(name_or_path, profile, checked=checked)
    overrides = [*overrides, *(list_uncertified_overrides(protocol) if uncertified else ())]
    benchmark = load_benchmark(name_or_path, profile, overrides) if overrides else protocol
    # for its refusals alone, of names that do not exist and of a selection without a cell
    benchmark.select(datasets, entries)
    numbers = () if splits is None else parse_splits(splits, benchmark.splits)
    return Request(
        benchmark,
        {path: new for path, (_, new) in find_differences(protocol, benchmark).items()},
        _select_part("dataset", datasets, tuple(map(str, benchmark.datasets))),
        _select_part("method", entries, tuple(benchmark.entries)),
        () if len(numbers) == benchmark.splits else numbers,
        name_or_path,
    )


MAX_SPLITS = 1_000_000
"""Splits that may be listed one by one."""
_MAX_DIGITS = 18
"""Digits of a split number at most."""


def parse_splits(text: str, n: int) -> tuple[int, ...]:
    """Read which of the splits 0 to n - 1 to run; return their numbers, ascending, each once.

    The text is a count, which stands for the first so many; or split numbers and ranges,
    ``0,3,5-7``. A single split is written as a range, ``4-4``. `InputError` if it is neither, is
    empty, or names a split that does not exist.
    """
    quoted = abbreviate(text)
    bounds: list[tuple[int, int]] = []
    for range_text in text.split(","):
        words = [bound.strip() for bound in range_text.split("-")]
        # Python takes seconds to convert numbers of many thousands of digits, or refuses to
        is_range = len(words) <= 2
        for bound in words:
            is_range = is_range and bound.isdecimal() and len(bound) <= _MAX_DIGITS
        if not is_range:
            raise InputError(
                f"splits '{quoted}': give a count such as 3, or numbers and ranges such as 0,3,5-7"
            )
        bounds.append((int(words[0]), int(words[-1])))
    is_count = "," not in text and "-" not in text
    if is_count:
        bounds = [(0, int(text) - 1)]
    for low, high in bounds:
        if low > high:
            raise InputError(
                f"splits '{quoted}': that is no split at all; give a count from 1 up, or low-high"
            )
        if high >= n:
            raise InputError(
                f"splits '{quoted}': there are {n} splits, 0 to {n - 1}; choose among them"
            )
    count = sum(high - low + 1 for low, high in bounds)
    if count > MAX_SPLITS:
        raise InputError(
            f"splits '{quoted}': {count:,} splits are too many to list; "
            f"choose at most {MAX_SPLITS:,}"
        )
    numbers: set[int] = set()
    for low, high in bounds:
        numbers.update(range(low, high + 1))
    return tuple(sorted(numbers))


def format_ranges(splits: Iterable[int]) -> str:
    """Write split numbers in order, consecutive ones as a range: ``0, 3, 5-7``."""
    ranges: list[list[int]] = []
    for number in sorted(splits):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    texts = []
    for numbers in ranges:
        first, last = numbers[0], numbers[-1]
        texts.append(f"{first}" if first == last else f"{first}-{last}")
    return ", ".join(texts)


def find_differences(before: Benchmark, after: Benchmark) -> dict[str, tuple[Any, Any]]:
    """Map the fields in which two benchmarks differ to both values.

    The value of a field that one benchmark lacks is `MISSING_FIELD`. A component of another name
    is one value, and so is a list of other components.
    """
    return dict(
        _iterate_differences(before.model_dump(mode="json"), after.model_dump(mode="json"), "")
    )


def _iterate_differences(
    before: Any, after: Any, path: str
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    # an override replaces a sweep as a whole
    mappings = isinstance(before, Mapping) and isinstance(after, Mapping) and path != "sweep"
    if mappings and (not path or before.get("name") == after.get("name")):
        for key in dict.fromkeys((*before, *after)):
            yield from _iterate_differences(
                before.get(key, MISSING_FIELD),
                after.get(key, MISSING_FIELD),
                f"{path}.{key}" if path else key,
            )
    elif _same_components(before, after):
        for i, (component_before, component_after) in enumerate(zip(before, after, strict=True)):
            yield from _iterate_differences(component_before, component_after, f"{path}.{i}")
    elif before != after:
        yield path, (before, after)


def _find_list(spec: Any, keys: Sequence[str]) -> tuple[str, list[Any]] | None:
    """Return the path and the content of the list that a path goes through; None without one.

    A label may have dots in it, so that not every key need be there.
    """
    for number, key in enumerate(keys):
        if isinstance(spec, list):
            return ".".join(keys[:number]), spec
        if not isinstance(spec, Mapping) or key not in spec:
            return None
        spec = spec[key]
    return None


def _same_components(before: Any, after: Any) -> bool:
    """Return whether two lists have the same components, which may differ in their settings."""
    if not (isinstance(before, list) and isinstance(after, list)):
        return False
    names = _component_names(before)
    return names == _component_names(after) and None not in names


def _component_names(components: list[Any]) -> list[Any]:
    return [
        component.get("name") if isinstance(component, Mapping) else None
        for component in components
    ]


def _select_part(kind: str, patterns: Sequence[str], names: tuple[str, ...]) -> tuple[str, ...]:
    """Select names by patterns, in the order of the benchmark; return none if all are selected."""
    selected = select_names(kind, patterns, names)
    return () if selected == names else selected


def results_option(results: Path) -> str:
    """Write the option that names a folder of results; nothing for the default one."""
    return "" if results == DEFAULT_RESULTS else f" --results {shlex.quote(str(results))}"


def to_inline_yaml(value: Any) -> str:
    """Write a JSON value as YAML on one line; text has quotes only where YAML needs them."""
    # a colon before a blank or the end would make a mapping of it
    is_text = isinstance(value, str) and re.fullmatch(r"[A-Za-z_(](?:[\w./() -]|:(?=\S))*", value)
    return (
        value if is_text and value not in ("null", "true", "false") else to_canonical_json(value)
    )
