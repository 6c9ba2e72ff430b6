"""The tally of scripts/mutants.py, and which tests a mutant gets."""

import json
from pathlib import Path

import mutants
import pytest

TALLY = Path(__file__).parents[2] / "results/faults/mutants.json"
SOURCE = """
LEVEL = 0.05

class Score:
    bins: int = 15

    def __call__(self, x=1):
        if x > 1:
            return (
                x + 1
            )
        return [lambda y: y - x
                for _ in range(3)]
"""


def test_the_tally_is_of_enough_mutants_and_tests_kill_almost_all():
    tally = json.loads(TALLY.read_text("utf-8"))
    assert {key: tally[key] for key in tally if key != "tried"} == mutants.summary(
        0, tally["tried"]
    )
    assert tally["mutants"] >= 400
    assert tally["killed of those not equivalent"] >= 0.95
    assert {one["outcome"] for one in tally["tried"]} <= {"killed", "out of time", "survived"}
    assert all(one.get("reason") for one in tally["tried"] if one["outcome"] == "survived")


@pytest.mark.parametrize(
    ("line", "lines"),
    [(2, []), (5, []), (7, []), (8, [8]), (10, [9, 10, 11]), (12, [12, 13]), (13, [12, 13])],
)
def test_a_statement_has_lines_inside_of_functions_alone(line, lines):
    assert [*mutants.statement_of(SOURCE, line)] == lines


def test_each_mutant_changes_one_line():
    pytest.importorskip("cosmic_ray")
    found = [*mutants.mutants("bdl/metrics/__init__.py")]
    assert len({mutant.key for mutant in found}) == len(found) > 0
    for mutant in found:
        text = (mutants.ROOT / mutant.file).read_text("utf-8")
        changed = [
            number
            for number, pair in enumerate(
                zip(text.splitlines(), mutant.source.splitlines(), strict=True), 1
            )
            if pair[0] != pair[1]
        ]
        assert changed == [mutant.line]
