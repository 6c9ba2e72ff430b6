"""How rows differ from the protocol of their benchmark: profile, part, overrides, changed fields."""

import re
from collections.abc import Sequence

import pandas as pd

from bdl.plan.planning import list_tasks
from bdl.spec import Benchmark, Request, find_differences, load_benchmark
from bdl.spec.request import MISSING_FIELD, format_ranges, to_inline_yaml
from bdl.stored_results.results_folder import FIELDS_WITHOUT_EFFECT

_MAX_VALUE_CHARACTERS = 100
"""Characters of a value before it is cut."""
_MAX_NAMED_CELLS = 4
"""Cells that are named, rather than counted."""
_MAX_NAMED_CHANGES = 8
"""Most changes that a remark names, which stands in every row of a table: the file has all."""


def list_departures(recorded_request: Request, current_benchmark: Benchmark) -> list[str]:
    """List the overrides, and the fields that the file has changed since.

    An entry that an override adds is not among them: those of the protocol are as they were.
    """
    additions = {f"entries.{name}" for name in list_added_entries(recorded_request)}
    texts: list[str] = []
    for path, value in recorded_request.changes.items():
        if path not in additions and _concerns_what_ran(path, recorded_request):
            texts.append(f"{path}={abbreviate_value(value)}")
    # a selection leaves out entries that a profile runs on no data set
    benchmarks = current_benchmark.select(), recorded_request.benchmark.select()
    for path, (_, old_value) in find_differences(*benchmarks).items():
        if path not in FIELDS_WITHOUT_EFFECT and _concerns_what_ran(path, recorded_request):
            texts.append(
                f"{path} has come into the file since"
                if old_value == MISSING_FIELD
                else f"the file had {path}={abbreviate_value(old_value)} then"
            )
    return texts


def count_beyond_first(texts: Sequence[str]) -> list[str]:
    """Return the first changes as they are, and the number of the others, if several, as text."""
    n_others = len(texts) - _MAX_NAMED_CHANGES
    if n_others < 2:
        return [*texts]
    return [*texts[:_MAX_NAMED_CHANGES], f"and {n_others} other settings"]


def list_added_entries(recorded_request: Request) -> list[str]:
    """List the entries that overrides add to those of the file: each is one changed field."""
    paths = [path.split(".") for path in recorded_request.changes]
    return [path[1] for path in paths if len(path) == 2 and path[0] == "entries"]


def _concerns_what_ran(path: str, recorded_request: Request) -> bool:
    """Return False for a field of an entry or a data set that was not run, True for others."""
    field, _, rest = path.partition(".")
    selected_names = {
        "entries": recorded_request.entries,
        "by_dataset": recorded_request.datasets,
    }.get(field, ())
    return not selected_names or rest.partition(".")[0] in selected_names


def is_part_of_protocol(recorded_request: Request) -> bool:
    """Return whether a profile only narrows the protocol: data sets, methods and first splits.

    The first splits of a data set are the same, and so are their random numbers, however many
    follow.
    """
    protocol = _load_file(recorded_request)
    part = recorded_request.benchmark.select()
    is_known = {*part.datasets} <= {*protocol.datasets} and {*part.entries} <= {*protocol.entries}
    if not is_known or part.splits > protocol.splits:
        return False
    # what is left out on purpose is no difference
    whole = protocol.select([*part.datasets], [*part.entries])
    changed_fields: set[str] = set()
    for path in find_differences(whole, part):
        # a profile with fewer data sets may have to say so in an entry as well
        changed_fields.add(re.sub(r"^entries\.[^.]+\.datasets$", "datasets", path))
    return changed_fields <= {"profile", "splits", "datasets", *FIELDS_WITHOUT_EFFECT}


def _load_file(recorded_request: Request, profile: str = "paper") -> Benchmark:
    """Load the benchmark of recorded rows as its file is now; it was checked when they were made."""
    name = recorded_request.source or recorded_request.benchmark.name
    return load_benchmark(name, profile, checked=True)


def describe_part(recorded_request: Request) -> str:
    """Describe a profile that only narrows the protocol by what it leaves."""
    benchmark = recorded_request.benchmark
    part = recorded_request.selected_benchmark
    protocol = _load_file(recorded_request)
    texts = []
    if part.datasets != protocol.datasets:
        texts.append(", ".join(part.datasets))
    if [*part.entries] != [*protocol.entries]:
        texts.append(" and ".join(part.entries))
    if benchmark.splits != protocol.splits:
        texts.append(f"the first {benchmark.splits} of {protocol.splits} splits")
    return f"profile {benchmark.profile} ({'; '.join(texts)})"


def describe_profile(recorded_request: Request) -> str:
    """Describe a profile by its name, and the fields and values that it changes."""
    name = recorded_request.benchmark.profile
    file = _load_file(recorded_request, name)
    values = dict[str, dict[str, None]]()
    for path, (profile_value, _) in find_differences(file, _load_file(recorded_request)).items():
        if path not in (*FIELDS_WITHOUT_EFFECT, "profile") and _concerns_what_ran(
            path, recorded_request
        ):
            inner = re.sub(r"^(entries|by_dataset)\.[^.]+\.", "", path)
            values.setdefault(inner, {})[abbreviate_value(profile_value)] = None
    texts = count_beyond_first(
        [f"{inner} {' or '.join(options)}" for inner, options in values.items()]
    )
    return f"profile {name} ({', '.join(texts)})" if texts else f"profile {name}"


def abbreviate_value(value: object) -> str:
    """Write a value in short; components of a list by their labels or names."""
    text = to_inline_yaml(value)
    if isinstance(value, list):
        names = []
        for item in value:
            is_component = isinstance(item, dict)
            name = item.get("label") or item.get("name", item) if is_component else item
            names.append(to_inline_yaml(name))
        text = f"[{', '.join(names)}]"
    return text if len(text) <= _MAX_VALUE_CHARACTERS else f"{text[:_MAX_VALUE_CHARACTERS]}..."


def describe_coverage(benchmark: Benchmark, rows: pd.DataFrame) -> list[str]:
    """Describe which cells and splits there are; empty if none is missing."""
    columns = ["dataset", "entry", *benchmark.axes]
    splits_by_key: dict[object, set[int]] = {}
    for key, cell_rows in rows.groupby(columns, sort=False):
        splits_by_key[key] = set(cell_rows.split)
    expected_tasks = list_tasks(benchmark)
    labels: list[str] = []
    present_splits: list[set[int]] = []
    expected_counts: list[int] = []
    some_lack_splits = False
    for task in expected_tasks:
        splits = splits_by_key.get((str(task.dataset), task.entry, *task.point.texts.values()))
        if splits is not None:
            labels.append(task.label)
            present_splits.append(splits)
            expected_counts.append(len(task.splits))
            some_lack_splits = some_lack_splits or bool(set(task.splits) - splits)
    coverage = []
    if len(labels) < len(expected_tasks):
        names = f" ({', '.join(labels)})" if len(labels) <= _MAX_NAMED_CELLS else ""
        coverage.append(f"{len(labels)} of {len(expected_tasks)} cells{names}")
    if some_lack_splits:
        # data sets may have fewer splits than the benchmark lists
        first, n = present_splits[0], max(expected_counts)
        if all(splits == first for splits in present_splits):
            coverage.append(f"{len(first)} of {n} splits ({format_ranges(first)})")
        else:
            coverage.append(f"not all of {n} splits")
    return coverage
