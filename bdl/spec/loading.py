"""Benchmarks by name or path, with a profile and overrides applied; what these may change.

The schema for editors.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bdl.errors import InputError, short, unknown
from bdl.registry import shipped
from bdl.spec.checks import references
from bdl.spec.fields import Settings, Slug, explain
from bdl.spec.labels import DatasetName
from bdl.spec.schema import Benchmark
from bdl.spec.values import nested, overlay, parse_yaml


def parse_override(text: str) -> dict[str, Any]:
    """Turn ``a.b=value`` into ``{a: {b: value}}``.

    `InputError` if the text has no path, or the value is not YAML.

    What follows ``sweep.`` is the path of one axis.
    """
    path, equals, value = text.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise InputError(f"--set {short(text)}: give path.to.field=value, for example seed=1")
    if keys[0] == "sweep" and len(keys) > 1:
        keys = ["sweep", ".".join(keys[1:])]
    changes: dict[str, Any] = nested(keys, parse_yaml(value, f"--set {short(text)}"))
    return changes


def uncertified_overrides(benchmark: Benchmark) -> list[str]:
    """List the overrides that let references be used whose draws broke a rule.

    `InputError` if no entry has one.
    """
    references = {name: entry.reference for name, entry in benchmark.entries.items()}
    entries = [name for name, own in references.items() if own and "uncertified" in own.settings]
    if not entries:
        raise InputError(
            f"--uncertified: {benchmark.name} has no reference that may break a rule: leave it out"
        )
    return [f"entries.{name}.reference.uncertified=true" for name in entries]


class _Profiles(Settings):
    profiles: dict[Slug, dict[str, Any]]


def list_benchmarks() -> list[tuple[str, str]]:
    """List the benchmarks that come with the package, sorted by name, each with its title."""
    return [(name, _parsed(path, _text(path))["title"]) for name, path in shipped().items()]


def list_profiles(name_or_path: str) -> list[str]:
    """List the profiles of a benchmark; arguments and errors as in `load_benchmark`."""
    path = _find(name_or_path)
    return list(_profiles(_parsed(path, _text(path)).get("profiles", {}), path))


def load_benchmark(
    name_or_path: str, profile: str = "paper", overrides: Sequence[str] = ()
) -> Benchmark:
    """Read and check a benchmark, with one of its profiles; ``"paper"`` always exists.

    It is given by the name of one that comes with the package, or by a path, which has a ``/`` or
    ends in ``.yaml`` or ``.yml``. Overrides, written ``path.to.field=value``, are applied after
    the profile, in order. `InputError` if the file cannot be read, or it, its profile or an
    override says something that is not allowed.
    """
    path = _find(name_or_path)
    checked = _checked_once if path in shipped().values() else _checked
    found = checked(path, _text(path))
    if profile not in found:
        raise unknown("profile", profile, found)
    if not overrides:
        return found[profile]
    source = " ".join(f"--set {short(text)}" for text in overrides)
    return _changed(
        found[profile], map(parse_override, overrides), profile, source, found["paper"].labels
    )


def _find(name_or_path: str) -> Path:
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        return Path(name_or_path)
    known = shipped()
    if name_or_path not in known:
        raise unknown("benchmark", name_or_path, known)
    return known[name_or_path]


def _checked(path: Path, text: str) -> dict[str, Benchmark]:
    """Return the benchmark of a file under each profile; the paper's is the first."""
    content = _parsed(path, text)
    profiles = _profiles(content.pop("profiles", {}), path)
    whole = _validate(content, "paper", str(path))
    return {"paper": whole} | {  # a mistake in any of them is told, whichever is asked for
        name: _changed(whole, [changes], name, f"{path}, profile {name}", whole.labels)
        for name, changes in profiles.items()
    }


def _changed(
    benchmark: Benchmark,
    steps: Iterable[Mapping[str, Any]],
    profile: str,
    source: str,
    labels: frozenset[str],
) -> Benchmark:
    """Lay changes over a benchmark, one after the other.

    They add no entries, and nothing of data sets it lacks.
    """
    content = benchmark.model_dump(mode="json", exclude={"profile"})
    for changes in steps:
        entries = changes.get("entries")
        for name in entries if isinstance(entries, Mapping) else ():
            if name not in benchmark.entries:
                raise InputError(f"{source}: entries: {unknown('entry', name, benchmark.entries)}")
        content = overlay(content, changes)
    found, before = _validate(content, profile, source, labels), {*references(benchmark)}
    for place, kind, label in (own for own in references(found) if own not in before):
        if kind is DatasetName and label not in found.labels | labels:
            raise InputError(
                f"{source}: {'.'.join(map(str, place))}: {unknown('data set', label, found.datasets)}"
            )
    return found


_checked_once = lru_cache(maxsize=64)(_checked)
"""For what comes with the package, which rests on no other file that could change."""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"cannot read benchmark {short(path)}: {reason}") from None


def _parsed(path: Path, text: str) -> dict[str, Any]:
    content = parse_yaml(text, str(path))
    if not isinstance(content, dict):
        raise InputError(
            f"{path}: a benchmark is a mapping with a name, datasets, entries; see docs/spec.md"
        )
    return content


def _profiles(content: Any, path: Path) -> dict[str, dict[str, Any]]:
    try:
        given = _Profiles.model_validate({"profiles": content}).profiles
    except ValidationError as error:
        raise InputError(f"{path}: {explain(error)}") from None
    return {"paper": {}} | given


def _validate(
    content: Mapping[str, Any], profile: str, source: str, labels: frozenset[str] = frozenset()
) -> Benchmark:
    """Check a content; it may refer to the `labels` of the file, too."""
    if "profile" in content:
        raise InputError(f"{source}: profile is not a field of the file: remove it")
    try:
        return Benchmark.model_validate(
            {**content, "profile": profile}, context={"labels": labels}
        )
    except ValidationError as error:
        raise InputError(f"{source}: {explain(error)}") from None


def json_schema() -> dict[str, Any]:
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
