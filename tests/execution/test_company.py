"""The same bits alone, in any company, in a run that goes on, and in long fits."""

import pytest

from bdl.execution.groups import FinalFit, group_final_fits
from bdl.plan.planning import plan_tasks
from bdl.records.run_folder import RunFolder
from bdl.spec import load_benchmark

from .listeners import outcome, outcomes, run_here

YACHT = {"learning_rate": 0.01, "prior_precision": 1.0, "noise_precision": 0.4}
RATES = {"swag-nn": 0.002}
SLOW = pytest.mark.slow  # three times some thousand updates


def of_split(store, cells, split):
    return [row for row in outcomes(store, cells) if row["split"] == split]


@pytest.mark.slow  # trains what it compares several times over
def test_a_split_gives_the_same_rows_alone_and_in_company(tiny, store, tmp_path):
    """Searches in rounds and at once, and posteriors; the four splits go on from a run of one."""
    changes = "splits=4", "entries.random.record={unit: epochs, every: 2}"
    alone, everyone = tiny(*changes, splits=(2,)), tiny(*changes, splits=range(4))
    run_here(alone, store)
    with RunFolder(tmp_path / "together/store") as together:
        run_here(everyone, together)
        assert of_split(store, alone, 2) == of_split(together, everyone, 2)
        run_here(everyone, store)
        for split in range(4):
            assert of_split(store, everyone, split) == of_split(together, everyone, split)
        for cell in everyone:
            curves = [
                sorted(map(str, own.load_curve_points(cell.key))) for own in (store, together)
            ]
            assert curves[0] == curves[1]


def test_folds_with_other_numbers_of_minibatches_are_the_same_in_company(
    tiny, line, store, tmp_path
):
    """39 training rows leave 29 or 30 beside one of 4 folds: 2 or 3 minibatches of 10 rows."""
    changes = (
        "splits=3",
        "preparation.rows=39",
        "datasets=[diabetes]",
        "entries.rounds.search.folds=4",
        "entries.rounds.training={epochs: 4, batch_size: 10}",
    )
    alone, everyone = (
        tiny(*changes, entries=["rounds"], splits=splits) for splits in ((1,), range(3))
    )
    run_here(alone, store)
    assert len({row.details["updates"] for row in store.load_rows("search", alone[0].key)}) == 2
    with RunFolder(tmp_path / "together/store") as together:
        run_here(everyone, together)
        assert of_split(store, alone, 1) == of_split(together, everyone, 1)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "entry", "epochs"),
    [
        ("uci-regression", "vifa-nn", 30),
        pytest.param("uci-regression", "swag-nn", 70, marks=SLOW),  # the deviations begin after 60
        pytest.param("uci-regression", "slang-nn", 30, marks=SLOW),
    ],
)
def test_long_fits_have_the_same_bits_alone_in_pairs_and_in_twenties(name, entry, epochs):
    """On yacht, on which rounding errors grow: any difference of bits is one at 30 epochs."""
    changes = [f"entries.{entry}.training.epochs={epochs}"]
    benchmark = load_benchmark(name, overrides=changes).select(["yacht"], [entry])
    (cell,) = plan_tasks(benchmark, splits=range(20), compile=False)
    setting = YACHT | {"learning_rate": RATES.get(entry, 0.01)}

    def fitted(*splits):
        groups = group_final_fits([FinalFit(cell, split, setting) for split in splits])
        done = [own for group in groups for own in group.run(lambda work: None)]
        assert [own.row.status for own in done] == ["ok"] * len(splits)
        return {own.row.split: (outcome(own.row), own.posterior) for own in done}

    everyone = fitted(*range(20))
    for company in ((3,), (3, 17)):
        assert fitted(*company) == {split: everyone[split] for split in company}
