"""Validation rows: chosen by, and trained on in the end where the benchmark says so."""

import numpy as np
import pytest
import yaml

from bdl.errors import InputError
from bdl.plan import fit_hash
from bdl.plan.planning import check, plan
from bdl.plan.programs import final_fitting
from bdl.spec import load_benchmark

ROWS = """
import numpy as np

from bdl.data import Dataset
from bdl.data.splits import Split


def split(index):
    train, validation, test = np.split(np.random.default_rng(index).permutation(90), [50, 70])
    return Split(train, test, validation)


def kept():
    x = np.random.default_rng(0).normal(size=(90, 2))
    return Dataset("kept", x, np.arange(90.0) % 3, "classification", splits=2, published=split)
"""


@pytest.fixture
def cell(tmp_path):
    (tmp_path / "rows.py").write_text(ROWS)

    def read(search):
        entry = {
            "model": {"name": "linear"},
            "likelihood": {"name": "categorical"},
            "method": {"name": "vifa"},
            "training": {"epochs": 2, "batch_size": 10},
            "hyper": {"learning_rate": 0.01} | ({} if search else {"prior_precision": 1}),
        }
        if search:
            grid = {"sampler": "grid", "metric": "error", "grid": {"prior_precision": [1, 10]}}
            entry["search"] = grid | search
        content = {"name": "kept", "title": "Kept", "datasets": [f"{tmp_path}/rows.py:kept"], "splits": 2}
        content |= {"entries": {"vifa": entry}, "metrics": ["error"]}
        (tmp_path / "kept.yaml").write_text(yaml.safe_dump(content))
        (found,) = plan(load_benchmark(str(tmp_path / "kept.yaml")), splits=[0, 1], compile=False)
        return found

    return read


@pytest.mark.parametrize(
    ("search", "count"), [({"folds": 1, "refit": True}, 70), ({"folds": 1}, 50), ({"folds": 5}, 50), ({}, 50)]
)
def test_final_fits_train_on_validation_rows_only_if_told(cell, search, count):
    found = cell(search)
    whole, rows = found.data.split(1), found.rows(1)
    assert rows.train.tolist() == np.concatenate([whole.train, whole.validation])[:count].tolist()
    assert rows.test.tolist() == whole.test.tolist()
    fitting = final_fitting([(found, 1)], [{"learning_rate": 0.01, "prior_precision": 1}], compile=False)
    assert [len(rows) for rows in fitting.trials.rows] == [count]


def test_what_is_refitted_is_another_fit(cell):
    assert fit_hash(cell({"folds": 1, "refit": True})) != fit_hash(cell({"folds": 1}))


def test_a_search_by_the_posterior_needs_no_validation_rows(cell, tmp_path):
    """Predictions of rows that do not exist are refused, the ELBO of all training rows is not."""
    without = (tmp_path / "rows.py").read_text().replace("Split(train, test, validation)", "Split(train, test)")
    (tmp_path / "rows.py").write_text(without)
    check(cell({"folds": 1, "metric": "neg_elbo"}))
    with pytest.raises(InputError, match="kept has none; choose 2 folds or more, or a score of the posterior"):
        check(cell({"folds": 1}))
