"""The planner held against published rows: a ratio by hand, and rows that do not say how they were made."""

import bench_planner
import pandas as pd
import pytest

from bdl.plan.planning import cells_of
from bdl.plan.programs import compiles, rough_seconds, updates_of, width
from bdl.spec import load_benchmark


@pytest.fixture
def cell():
    found = cells_of(load_benchmark("uci-regression", "quick"))
    return next(one for one in found if one.entry == "vifa-lr")


def test_a_stage_that_took_twice_as_long(cell):
    stage = "final"
    known = updates_of(cell, stage), width(cell, stage), compiles(cell, stage)
    estimated = 3 * rough_seconds(cell, *known)
    row = {"dataset": str(cell.dataset), "entry": cell.entry, "stage": stage, "seconds": 2 * estimated}
    row |= dict(zip(("updates", "width", "compiled"), known, strict=True))
    other = row | {"entry": "another", "seconds": 1e6}
    (found,) = bench_planner.stages(cell, 3.0, pd.DataFrame([row, row, other]))
    assert found.measured == pytest.approx(4 * estimated)
    assert found.estimated == pytest.approx(2 * estimated)


def test_fits_that_failed_before_they_began_say_nothing(cell):
    row = {"dataset": str(cell.dataset), "entry": cell.entry, "stage": "final", "seconds": 0.0}
    rows = pd.DataFrame([row | {"updates": 10.0, "width": 1.0, "compiled": False}])
    assert list(bench_planner.stages(cell, 3.0, rows)) == []
