"""Which cells a plan has, and what it refuses before anything is written."""

import pytest
import torch
import yaml

from bdl.errors import InputError
from bdl.execution.executor import InProcessExecutor
from bdl.execution.runner import run
from bdl.plan.cell import plan
from bdl.spec import load_benchmark
from bdl.store.store import Store

QUIET = type("Quiet", (), {name: lambda self, *args: None for name in ("begin", "advance", "stored")})

PARTS = """
from dataclasses import dataclass

import numpy as np
import torch

from bdl.data import Dataset
from bdl.references.base import Truth


def three():
    x = np.random.default_rng(0).normal(size=(90, 2))
    return Dataset("three", x, np.arange(90.0) % 3, "classification")


@dataclass(frozen=True)
class Far:
    estimates = ()

    def check(self, problem):
        pass

    def fit(self, problem, x, y, hyper):
        return Truth(torch.ones(problem.dim).double(), torch.eye(problem.dim).double(), {})
"""

VIFA = {
    "model": {"name": "linear"},
    "method": {"name": "vifa"},
    "training": {"epochs": 2, "batch_size": 10},
}
RATES = {"learning_rate": 0.01, "prior_precision": 1}


@pytest.fixture
def three(tmp_path):
    (tmp_path / "parts.py").write_text(PARTS)
    return f"{tmp_path}/parts.py:three"


@pytest.fixture
def load(tmp_path, three):
    """Load a benchmark of a classification and a regression, with changes: (dotted path, value)."""

    def read(*changes):
        far = {"reference": {"name": three.replace(":three", ":Far")}}
        classes = {"likelihood": {"name": "categorical"}, "hyper": RATES, "datasets": [three]}
        numbers = {"likelihood": {"name": "gaussian"}, "hyper": {**RATES, "noise_precision": 0.1}}
        content = {
            "name": "labels",
            "title": "Labels",
            "datasets": [three, "diabetes"],
            "splits": 2,
            "entries": {"classes": VIFA | far | classes, "numbers": VIFA | far | numbers | {"datasets": ["diabetes"]}},
            "metrics": ["rel_mean_dist"],
        }
        for path, value in changes:
            *parents, last = path.split(".")
            place = content
            for key in parents:
                place = place.setdefault(key, {})
            place[last] = value
        (tmp_path / "labels.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        return load_benchmark(str(tmp_path / "labels.yaml"))

    return read


def test_entries_run_on_their_own_data_sets_only(load, three):
    cells = plan(load(), splits=[0, 1])
    assert [(cell.dataset, cell.entry) for cell in cells] == [(three, "classes"), ("diabetes", "numbers")]


def test_outputs_are_counted_by_the_classes_of_the_data(load, three, tmp_path):
    """A linear model of two inputs and three classes has 3 (2 + 1) parameters, and such a cell runs."""
    (cell,) = plan(load().select([three]), splits=[0], compile=False)
    assert (cell.problem.d_out, cell.problem.dim) == (3, 9)
    with Store(tmp_path / "store.sqlite") as store:
        run([cell], store, InProcessExecutor(), QUIET())
        (row,) = store.rows("final", three, "classes")
        assert row.status == "ok"
        moments = torch.from_numpy(store.predictions(three, "classes", 0))
        assert moments.shape == (10, 9)
    expected = (1 - moments[0]).norm() / 3
    assert row.metrics["rel_mean_dist"] == pytest.approx(float(expected), rel=1e-12)


SPACE = {"learning_rate": {"low": 1, "high": 2}, "prior_precision": {"low": 1, "high": 2}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"entries.classes.likelihood": {"name": "bernoulli"}},
            "entries.classes.likelihood: 'bernoulli' does not fit dataset 'THREE', which has 3 classes; "
            "use categorical",
        ),
        (
            {"entries.numbers.datasets": []},
            "entries.numbers.likelihood: 'gaussian' does not fit dataset 'THREE', which has 3 classes; use categorical",
        ),
        (
            {"entries.classes.datasets": []},
            "entries.classes.likelihood: 'categorical' does not fit dataset 'diabetes', which is a regression; "
            "use gaussian",
        ),
        (
            {"metrics": ["rmse", "nmll"]},
            "metrics: 'rmse' scores a regression, and dataset 'THREE' is a classification; use another metric",
        ),
        (
            {
                "entries.classes.hyper": {},
                "entries.classes.search": {"trials": 2, "folds": 2, "metric": "nmll", "space": SPACE},
            },
            "entries.classes.search.metric: 'nmll' scores a regression, and dataset 'THREE' is a classification; "
            "use another metric",
        ),
        (
            {"preparation.rows": {"diabetes": 399}},
            "preparation.rows: split 0 of dataset 'diabetes' has 398 training rows, so 399 cannot be kept; "
            "choose at most 398",
        ),
        (
            {
                "preparation.rows": {"diabetes": 399},
                "entries.numbers.method": {"name": "conjugate"},
                "entries.numbers.training": None,
                "entries.numbers.hyper": {"prior_precision": 1, "noise_precision": 1},
            },
            "preparation.rows: split 0 of dataset 'diabetes' has 398 training rows, so 399 cannot be kept; "
            "choose at most 398",
        ),
    ],
)
def test_refusals(load, three, changes, message):
    with pytest.raises(InputError) as caught:
        plan(load(*changes.items()), splits=[0])
    assert str(caught.value) == message.replace("THREE", three)


DROPOUT = {"name": "mc-dropout"}
FIXED = {**RATES, "noise_precision": 0.1, "dropout_rate": 1.0}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"hyper": FIXED}, "hyper.dropout_rate: 1"),
        (
            {"hyper": FIXED | {"dropout_rate": 0.1}, "by_dataset": {"diabetes": {"hyper": {"dropout_rate": 1.5}}}},
            "hyper.dropout_rate: 1.5",
        ),
        (
            {
                "hyper": {name: value for name, value in FIXED.items() if name != "dropout_rate"},
                "search": {
                    "trials": 2,
                    "folds": 2,
                    "metric": "joint_nll",
                    "space": {"dropout_rate": {"low": 0, "high": 1}},
                },
            },
            "search.space.dropout_rate.high: 1",
        ),
    ],
)
def test_a_dropout_rate_is_below_one(load, changes, place):
    changes = {f"entries.numbers.{name}": value for name, value in {"method": DROPOUT, **changes}.items()}
    benchmark = load(*changes.items()).select(["diabetes"])
    with pytest.raises(InputError) as caught:
        plan(benchmark, splits=[0])
    assert str(caught.value) == f"entries.numbers.{place} is too large; choose a value below 1"


def test_a_dropout_rate_is_not_negative(load):
    changes = {"entries.numbers.method": DROPOUT, "entries.numbers.hyper": FIXED | {"dropout_rate": -0.1}}
    with pytest.raises(InputError, match=r"entries.numbers.hyper.dropout_rate.*greater than or equal to 0"):
        load(*changes.items())


@pytest.mark.parametrize(("likelihood", "outputs"), [("bernoulli", 1), ("categorical", 2)])
def test_two_classes_take_either_likelihood_of_labels(load, likelihood, outputs):
    changes = {
        "datasets": ["synthetic_logistic", "diabetes"],
        "entries.classes.datasets": ["synthetic_logistic"],
        "entries.classes.likelihood": {"name": likelihood},
    }
    cell, _ = plan(load(*changes.items()), splits=[0])
    assert cell.problem.d_out == outputs
    with pytest.raises(InputError, match=r"'gaussian' does not fit .* 2 classes; use bernoulli or categorical"):
        plan(load(*changes.items(), ("entries.numbers.datasets", [])), splits=[0])


def test_rows_and_the_first_split_reach_the_data(load):
    few = ("preparation", {"split": "first", "rows": {"diabetes": 40}})
    (cell,) = plan(load(few).select(["diabetes"]), splits=[0, 5])
    (whole,) = plan(load().select(["diabetes"]), splits=[0])
    for split in (0, 5):
        assert cell.data.split(split).train.tolist() == whole.data.split(0).train[:40].tolist()
    assert cell.fingerprint() != whole.fingerprint()
