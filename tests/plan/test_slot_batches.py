"""Which splits have places side by side: from the spec, whichever of them run."""

from dataclasses import replace

import pytest

from bdl.plan import workload
from bdl.plan.planning import plan_tasks
from bdl.plan.workload import (
    count_fits_per_batch,
    count_slot_rows,
    count_splits_per_batch,
    find_slot_batch,
    is_stage_compiled,
)
from bdl.spec import load_benchmark


def cell(*overrides, entry="slang-nn", splits=(0, 1, 2), profile="check"):
    (found,) = plan_tasks(
        load_benchmark("uci-regression", profile, overrides).select([], [entry]), splits=splits
    )
    return found


def numbers(monkeypatch, count):
    monkeypatch.setattr(workload, "NUMBERS_PER_UPDATE", {"cpu": count})


def test_few_small_fits_are_one_lane():
    """A network 10-50-1 has 601 parameters: 7 splits of 4 x 601 numbers, times 3 folds in a round of the search."""
    found = cell("splits=7")
    assert find_slot_batch(found, "final", 0) == find_slot_batch(found, "search", 6) == range(7)
    assert (count_fits_per_batch(found, "final"), count_fits_per_batch(found, "search")) == (7, 21)


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (7, range(4, 7)),
        (4, range(4, 8)),
        (3, range(3, 6)),
        (2, range(4, 6)),
        (1, range(4, 6)),
        (0.1, range(4, 5)),
    ],
)
def test_lanes_are_as_wide_as_numbers_allow_and_equally_wide(monkeypatch, most, expected):
    """Split 4 of 7, where a batch may have so many.

    Two at least, unless a fit alone is more than a batch should be;
    and the last batch is as wide as the others."""
    found = cell("splits=7")
    numbers(monkeypatch, most * workload.count_update_numbers(found))
    if most == 7:
        expected = range(7)
    assert find_slot_batch(found, "final", 4) == expected
    assert workload.count_min_slots(found) == (1 if most < 1 else 2)


def test_on_a_gpu_one_split_trains_alone():
    assert workload.count_min_slots(replace(cell(), device="cuda")) == 1


def test_activations_count_where_they_are_more_than_parameters(monkeypatch):
    """100 rows of 50 outputs are more than 601 parameters: an update has 5000 numbers for each 601."""
    found = cell("splits=7", "entries.slang-nn.training.batch_size=100")
    each = workload.count_update_numbers(found) * 5000 // 601
    numbers(monkeypatch, 4 * each - 1)
    assert count_splits_per_batch(found, "final") == 3
    numbers(monkeypatch, 4 * each)
    assert count_splits_per_batch(found, "final") == 4


@pytest.mark.parametrize(("samples", "expected"), [(1, 100 * 10), (1000, 1000 * 100)])
def test_the_inputs_of_a_linear_model_count_once_for_all_samples(samples, expected):
    """100 rows of 10 inputs.

    From 1000 samples, whose 11 parameters are fewer than 100 outputs, as many outputs.
    """
    model = "entries.slang-nn.model={name: linear}"
    found = cell(
        model,
        "entries.slang-nn.training.batch_size=100",
        f"entries.slang-nn.method.samples={samples}",
    )
    assert workload.count_update_numbers(found) == samples * found.problem.dim
    assert workload._count_numbers(found) == expected


@pytest.mark.parametrize(("trials", "own"), [(11, True), (10, False)])
def test_many_settings_of_a_random_search_are_a_lane_by_themselves(trials, own):
    """From 32 fits; fewer share one with other splits, as on a GPU."""
    found = cell(f"entries.vifa-nn.search.trials={trials}", entry="vifa-nn")
    assert find_slot_batch(found, "search", 2) == (range(2, 3) if own else range(3))
    assert count_fits_per_batch(found, "search") == trials * 3 * (1 if own else 3)
    assert find_slot_batch(replace(found, device="cuda"), "search", 2) == range(3)


def test_nothing_depends_on_the_splits_that_run():
    every, one = cell(), cell(splits=(1,))
    for stage in ("search", "final"):
        assert find_slot_batch(one, stage, 1) == find_slot_batch(every, stage, 1)
        assert count_slot_rows(one, stage, 1) == count_slot_rows(every, stage, 1)
        assert (count_fits_per_batch(one, stage), is_stage_compiled(one, stage)) == (
            count_fits_per_batch(every, stage),
            is_stage_compiled(every, stage),
        )


def test_a_split_that_does_not_exist_has_the_rows_of_the_last(monkeypatch):
    """442 rows, of which 398 are for training; split 5 is none of the 5."""
    found = cell("splits=5")
    numbers(monkeypatch, 2 * workload.count_update_numbers(found))
    assert count_slot_rows(found, "final", 4) == {4: 398, 5: 398}


CONVOLUTION = """
from torch import nn

def network(shape, d_out):
    return nn.Sequential(nn.Conv2d(1, 2, 1), nn.Flatten(), nn.Linear(20, d_out))
"""


@pytest.mark.parametrize(
    ("shape", "device", "wanted"),
    [("[1,5,2]", "cpu", False), ("[1,5,2]", "cuda", True), (None, "cpu", True)],
)
def test_networks_of_images_are_not_compiled_on_a_cpu(
    monkeypatch, tmp_path, shape, device, wanted
):
    monkeypatch.setattr(workload, "compilation_pays", lambda *_: True)
    (tmp_path / "net.py").write_text(CONVOLUTION, "utf-8")
    module = f"{{name: module, factory: '{tmp_path}/net.py:network', shape: {shape}}}"
    found = replace(
        cell(*([f"entries.vifa-nn.model={module}"] if shape else []), entry="vifa-nn"),
        device=device,
    )
    assert is_stage_compiled(found, "final") is wanted
