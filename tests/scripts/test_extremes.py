"""A sample of what scripts/extremes.py tries in full: every field and every option with values that nobody means."""

import random

import extremes
import pytest

from bdl.spec import build_json_schema


@pytest.mark.parametrize("kind", [extremes.of_fields, extremes.of_options])
def test_extreme_values_end_with_one_line(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tries = random.Random(0).sample([*kind()], 25)
    ends = {(one.place, one.value[:80]): extremes.ending(one, tmp_path) for one in tries}
    assert {place: end for place, end in ends.items() if not end.fine} == {}


def test_the_complete_benchmark_is_one_and_says_something_in_every_field(tmp_path, monkeypatch):
    """A field that comes into the schema is tried, or this fails."""
    monkeypatch.chdir(tmp_path)
    text = extremes.json.dumps(extremes.COMPLETE)
    assert extremes.ending(
        extremes.Try("", "", text, ("run", "probe.yaml", "--dry-run")), tmp_path
    ) == (0, "")
    said = {part for path in extremes.paths(extremes.COMPLETE) for part in path}
    schema = build_json_schema()
    fields = {
        name for own in (schema, *schema["$defs"].values()) for name in own.get("properties", ())
    }
    settings = {name.rpartition(".")[2] for name, _, _ in extremes.places()}
    assert fields - said - settings <= {"profile", "first", "log", "label"}
