"""The clock of fits, which the compiler does not run on."""

import time
from dataclasses import replace

import pytest
import torch

from bdl.execution.details import Stopwatch
from bdl.execution.groups import Chosen, FinalGroup, SearchGroup

DELAY = 0.5
COMPILED = []
"""One list, since programs that are made for one test are found again by the next."""


@pytest.fixture
def slow_compiler(monkeypatch):
    """Compile by waiting for a while; gives the list of what was compiled."""
    compiled, found = torch.compile, COMPILED
    found.clear()

    def backend(graph, inputs, **_):
        found.append(graph)
        time.sleep(DELAY)
        return graph.forward

    monkeypatch.setattr(torch, "compile", lambda function, **_: compiled(function, backend=backend))
    monkeypatch.setattr(torch._inductor, "compile", backend)
    torch._dynamo.reset()
    return found


def test_it_stands_still_between_pause_and_resume(monkeypatch):
    now = iter([0, 1, 3, 10, 11, 12])
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    clock = Stopwatch()
    told = [clock.now()]
    clock.pause("of some compilation")
    clock.resume("of some compilation")
    told.append(clock.now())
    clock.pause()
    clock.resume()
    assert told == [0, 10 - (3 - 1)]


@pytest.mark.parametrize("stage", ["search", "final"])
def test_fits_do_not_pay_for_the_compilation_of_their_program(tiny, slow_compiler, stage):
    cell = replace(tiny(entries=["random"], splits=(0,))[0], compile=True)
    hyper = {"learning_rate": 0.001, "prior_precision": 1.0, "noise_precision": 0.001}
    group = SearchGroup(cell, {0: ()}) if stage == "search" else FinalGroup((Chosen(cell, 0, hyper),))
    wall = time.perf_counter()
    rows = [outcome.row for outcome in group.run(lambda _: None)]
    elapsed = time.perf_counter() - wall
    assert all(row.status == "ok" and row.details["compiled"] for row in rows)
    assert slow_compiler
    assert elapsed > DELAY * len(slow_compiler)
    seconds = rows[0].seconds * rows[0].details["width"]
    assert 0 < seconds < elapsed - DELAY * len(slow_compiler)
