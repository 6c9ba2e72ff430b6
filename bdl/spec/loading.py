"""Load benchmarks by name or path, and apply a profile and overrides; the schema for editors."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bdl.errors import InputError, abbreviate, unknown_name_error
from bdl.registry import shipped_benchmarks
from bdl.spec.checks import iterate_labels
from bdl.spec.code_names import trust_code
from bdl.spec.fields import CHECKED_CONTEXT, Slug, SpecSection, explain
from bdl.spec.labels import DatasetName
from bdl.spec.schema import Benchmark
from bdl.spec.values import nest, overlay, parse_yaml


def parse_override(text: str) -> dict[str, Any]:
    """Turn ``a.b=value`` into ``{a: {b: value}}``.

    `InputError` if the text has no path, or the value is not YAML.

    What follows ``sweep.`` is the path of one axis.
    """
    path, equals, value = text.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise InputError(f"--set {abbreviate(text)}: give path.to.field=value, for example seed=1")
    if keys[0] == "sweep" and len(keys) > 1:
        keys = ["sweep", ".".join(keys[1:])]
    changes: dict[str, Any] = nest(keys, parse_yaml(value, f"--set {abbreviate(text)}"))
    return changes


def _parse_overrides(overrides: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Turn overrides into changes; single axes add up to one sweep, in place of the benchmark's."""
    axes: dict[str, Any] = {}
    for text in overrides:
        change = parse_override(text)
        if text.strip().startswith("sweep."):
            axes |= change["sweep"]
            change = {"sweep": {**axes}}
        elif isinstance(change.get("sweep"), Mapping):
            axes = {**change["sweep"]}
        yield change


def list_uncertified_overrides(benchmark: Benchmark) -> list[str]:
    """List the overrides that allow references whose draws broke a rule.

    `InputError` if no entry has such a reference.
    """
    overrides = []
    for name, entry in benchmark.entries.items():
        if entry.reference and "uncertified" in entry.reference.settings:
            overrides.append(f"entries.{name}.reference.uncertified=true")
    if not overrides:
        raise InputError(
            f"--uncertified: {benchmark.name} has no reference that may break a rule: leave it out"
        )
    return overrides


class _ProfilesSection(SpecSection):
    profiles: dict[Slug, dict[str, Any]]


def list_benchmarks() -> list[tuple[str, str]]:
    """List the benchmarks that come with the package, sorted by name, each with its title."""
    return [
        (name, _parse_mapping(path, _read_text(path), is_shipped=True)["title"])
        for name, path in shipped_benchmarks().items()
    ]


def list_profiles(name_or_path: str) -> list[str]:
    """List the profiles of a benchmark; arguments and errors as in `load_benchmark`."""
    path = _find_file(name_or_path)
    return list(_parse_profiles(_parse_mapping(path, _read_text(path)).get("profiles", {}), path))


def load_benchmark(
    name_or_path: str,
    profile: str = "paper",
    overrides: Sequence[str] = (),
    *,
    checked: bool = False,
) -> Benchmark:
    """Load and check a benchmark, with one of its profiles; ``"paper"`` always exists.

    The argument is the name of a benchmark that comes with the package, or a path, which has a
    ``/`` or ends in ``.yaml`` or ``.yml``. Overrides, written ``path.to.field=value``, are applied
    after the profile, in order. `InputError` if the file cannot be read, or the file, its profile
    or an override is not allowed. With `checked`, a file of the package without overrides counts
    as checked before: no component is imported, nor PyTorch with it.
    """
    path = _find_file(name_or_path)
    is_shipped = path in shipped_benchmarks().values()
    if checked and is_shipped and not overrides:
        return _load_checked(path, _read_text(path), profile)
    # a file of the user's may change between two calls, as may the code that it names
    load_profiles = _load_shipped_profiles if is_shipped else _load_profiles
    benchmarks = load_profiles(path, _read_text(path))
    if profile not in benchmarks:
        raise unknown_name_error("profile", profile, benchmarks)
    benchmark = benchmarks[profile]
    if overrides:
        source = " ".join(f"--set {abbreviate(text)}" for text in overrides)
        changes = _parse_overrides(overrides)
        new_entries = _list_whole_entries(overrides)
        labels = benchmarks["paper"].labels
        benchmark = _apply_changes(benchmark, changes, profile, source, labels, new_entries)
    if overrides or not is_shipped:
        # the rows that it makes name this code, too, and a table need not import it
        trust_code(benchmark.model_dump(mode="json"))
    return benchmark


def _list_whole_entries(overrides: Sequence[str]) -> set[str]:
    """List the entries that overrides give as a whole, by ``entries.name={...}``: they may be new.

    A path that goes on, such as ``entries.name.hyper.momentum``, changes an entry that is there,
    so that a name misspelt in it is an error rather than a new entry.
    """
    paths = [text.partition("=")[0].strip().split(".") for text in overrides]
    return {path[1] for path in paths if len(path) == 2 and path[0] == "entries"}


def _find_file(name_or_path: str) -> Path:
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        return Path(name_or_path)
    paths = shipped_benchmarks()
    if name_or_path not in paths:
        raise unknown_name_error("benchmark", name_or_path, paths)
    return paths[name_or_path]


def _load_profiles(path: Path, text: str) -> dict[str, Benchmark]:
    """Return the benchmark of a file under each profile; the paper's is the first.

    All are checked, so that a mistake in one is reported whichever is loaded.
    """
    content = _parse_mapping(path, text)
    profiles = _parse_profiles(content.pop("profiles", {}), path)
    paper = _validate(content, "paper", str(path))
    benchmarks = {"paper": paper}
    for name, changes in profiles.items():
        source = f"{path}, profile {name}"
        benchmarks[name] = _apply_changes(paper, [changes], name, source, paper.labels)
    return benchmarks


@lru_cache(maxsize=64)
def _load_checked(path: Path, text: str, profile: str) -> Benchmark:
    """Return the benchmark of a file that was checked before under a profile, and under no other.

    `InputError` if there is no such profile.
    """
    content = _parse_mapping(path, text, is_shipped=True)
    profiles = _parse_profiles(content.pop("profiles", {}), path)
    if profile not in profiles:
        raise unknown_name_error("profile", profile, profiles)
    benchmark = _validate(content, "paper", str(path), CHECKED_CONTEXT)
    if profile == "paper":
        return benchmark
    content = benchmark.model_dump(mode="json", exclude={"profile"})
    return _validate(overlay(content, profiles[profile]), profile, str(path), CHECKED_CONTEXT)


def _apply_changes(
    benchmark: Benchmark,
    steps: Iterable[Mapping[str, Any]],
    profile: str,
    source: str,
    labels: frozenset[str],
    new_entries: Collection[str] = (),
) -> Benchmark:
    """Apply changes to a benchmark, one after the other.

    They add no entries but `new_entries`, and nothing for data sets that the benchmark lacks.
    """
    content = benchmark.model_dump(mode="json", exclude={"profile"})
    for changes in steps:
        entries = changes.get("entries")
        for name in entries if isinstance(entries, Mapping) else ():
            if name not in benchmark.entries and name not in new_entries:
                raise InputError(
                    f"{source}: entries: {unknown_name_error('entry', name, benchmark.entries)}"
                )
        content = overlay(content, changes)
    changed = _validate(content, profile, source, {"labels": labels})
    # references of before may be to data sets that a profile leaves out; only new ones are checked
    labels_before = {*iterate_labels(benchmark)}
    for reference in iterate_labels(changed):
        path, kind, label = reference
        is_added = reference not in labels_before
        if is_added and kind is DatasetName and label not in changed.labels | labels:
            problem = unknown_name_error("data set", label, changed.datasets)
            raise InputError(f"{source}: {'.'.join(map(str, path))}: {problem}")
    return changed


_load_shipped_profiles = lru_cache(maxsize=64)(_load_profiles)
"""As `_load_profiles`, cached: benchmarks of the package rest on no file that could change."""


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"cannot read benchmark {abbreviate(path)}: {reason}") from None


_FOLDER_NAMES = {"store", "variants", "figures", "references", "posteriors", "rows"}
"""Folders within those of results, beside those of profiles."""


def _parse_mapping(path: Path, text: str, *, is_shipped: bool = False) -> dict[str, Any]:
    content = parse_yaml(text, str(path), is_shipped=is_shipped)
    if not isinstance(content, dict):
        raise InputError(
            f"{path}: a benchmark is a mapping with a name, datasets, entries; see docs/spec.md"
        )
    return content


def _parse_profiles(content: Any, path: Path) -> dict[str, dict[str, Any]]:
    try:
        profiles = _ProfilesSection.model_validate({"profiles": content}).profiles
    except ValidationError as error:
        raise InputError(f"{path}: {explain(error)}") from None
    for name in profiles:
        if name in _FOLDER_NAMES or name.startswith("seed-"):
            raise InputError(
                f"{path}: profiles.{name}: results have a folder of that name: call it otherwise"
            )
    return {"paper": {}} | profiles


def _validate(
    content: Mapping[str, Any], profile: str, source: str, context: Mapping[str, Any] | None = None
) -> Benchmark:
    """Check the content of a file.

    The context may be that of a file that was checked before, or have `labels` that the content
    may refer to as well.
    """
    if "profile" in content:
        raise InputError(f"{source}: profile is not a field of the file: remove it")
    try:
        return Benchmark.model_validate({**content, "profile": profile}, context=context)
    except ValidationError as error:
        raise InputError(f"{source}: {explain(error)}") from None


def build_json_schema() -> dict[str, Any]:
    """Describe a benchmark file, profiles included: JSON Schema, draft 2020-12."""
    schema = Benchmark.model_json_schema()
    fields = schema["properties"]
    del fields["profile"]
    fields["profiles"] = {
        "type": "object",
        "description": "Changes by profile name, laid over the file; lists are replaced.",
        "additionalProperties": {"type": "object", "propertyNames": {"enum": [*fields]}},
    }
    entry = schema["$defs"]["Entry"]["properties"]
    names = [name for name in entry if name not in ("by_dataset", "datasets", "evaluation")]
    for changes in (entry["by_dataset"], fields["by_dataset"]):
        changes["additionalProperties"] |= {"propertyNames": {"enum": names}}
    schema["description"] = "A benchmark of bdl-bench."
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
