"""Searches that ended on a bound say so: on a range, on a grid, on a data set of other ranges, and nowhere else."""

import pandas as pd
import pytest
import yaml

from bdl.reports.more_tables import bound_notes
from bdl.spec import load_benchmark

ENTRY = {
    "model": {"name": "linear"},
    "likelihood": {"name": "gaussian"},
    "method": {"name": "vifa", "latent_dim": 1},
    "training": {"epochs": 1, "batch_size": 10},
    "hyper": {"noise_precision": 1},
    "by_dataset": {"yacht": {"search": {"space": {"learning_rate": {"high": 1}}}}},
    "search": {
        **{"sampler": "random", "trials": 2, "folds": 2, "metric": "rmse"},
        "space": {
            "learning_rate": {"low": 0.001, "high": 0.1, "scale": "log"},
            "prior_precision": {"low": 1, "high": 10},
        },
    },
}
GRID = ENTRY | {
    "by_dataset": {},
    "search": {
        **{"sampler": "grid", "folds": 2, "metric": "rmse"},
        "grid": {"learning_rate": [0.01, 0.1, 1], "prior_precision": [1]},
    },
}


@pytest.fixture
def benchmark(tmp_path):
    content = {"name": "b", "title": "B", "datasets": ["energy", "yacht"], "splits": 3, "metrics": ["rmse"]}
    path = tmp_path / "b.yaml"
    path.write_text(yaml.safe_dump(content | {"entries": {"ranges": ENTRY, "grid": GRID}}), "utf-8")
    return load_benchmark(str(path))


def told(benchmark, entry, dataset, rates, priors):
    columns = {"dataset": dataset, "entry": entry, "hyper_learning_rate": rates, "hyper_prior_precision": priors}
    return [(note.dataset, note.entry, note.text) for note in bound_notes(benchmark, pd.DataFrame(columns))]


def test_bounds_of_ranges_are_counted(benchmark):
    found = told(benchmark, "ranges", "energy", [0.1 * (1 + 1e-9), 0.0999, 0.001], [5.0, 1.0, 10.0])
    (note,) = found
    assert note[:2] == ("energy", "ranges")
    assert note[2].endswith(
        "learning_rate 0.001 (1 of 3), learning_rate 0.1 (1 of 3), prior_precision 1 (1 of 3), "
        "prior_precision 10 (1 of 3)."
    )


def test_a_data_set_has_its_own_ranges(benchmark):
    assert told(benchmark, "ranges", "yacht", [0.1], [5.0]) == []
    assert len(told(benchmark, "ranges", "yacht", [1.0], [5.0])) == 1


def test_the_ends_of_a_grid_are_bounds_and_a_single_value_is_none(benchmark):
    assert told(benchmark, "grid", "energy", [0.1], [1.0]) == []
    ((*_, text),) = told(benchmark, "grid", "energy", [1.0, 0.01], [1.0, 1.0])
    assert text.endswith("space: learning_rate 0.01 (1 of 2), learning_rate 1 (1 of 2).")


def test_entries_without_rows_say_nothing(benchmark):
    assert told(benchmark, "gone", "energy", [0.1], [1.0]) == []
