"""Guests that return something wrong are failed rows that name their file."""

import pytest
from execution.listeners import Ear

from bdl.execution import scheduler
from bdl.execution.worker_pool import WorkerPool

from .conftest import line

GUEST = """from dataclasses import dataclass

import numpy as np
import torch

from bdl.methods.guest import Guest
from bdl.posteriors import DiagonalGaussian, Empirical, Point
from bdl.posteriors.predictive import MeanVariance


@dataclass(frozen=True)
class Mine(Guest):
    needs_model = True

    def fit(self, train, hyper, seed):
        zeros = torch.zeros(train.problem.dim)
        return WRONG
"""
FIT = GUEST[: GUEST.index("def fit")].count("\n") + 1


@pytest.fixture
def row(cells, store, tmp_path):
    """Fit a guest of which `fit` returns an expression, in this process; give its row."""

    def call(text):
        path = tmp_path / "mine.py"
        path.write_text(text, "utf-8")
        (task,) = cells(line(f"name: '{path}:Mine'"), "evaluation.samples=5", splits=(0,))
        scheduler.prepare_run_folder([task], store)
        scheduler.run_tasks([task], store, WorkerPool(), Ear())
        (row,) = store.load_rows("final", task.key)
        return row

    return call


WRONG = {
    "scalar variance": (
        "DiagonalGaussian(zeros, torch.tensor(1.0))",
        "a DiagonalGaussian: var has shape (): give it shape (11,)",
    ),
    "short mean": ("Point(zeros[:-1])", "a Point: loc has shape (10,): give it shape (11,)"),
    "short draws": (
        "Empirical(zeros[None, 1:])",
        "it is over 10 parameters, and the model has 11",
    ),
    "mean alone": ("zeros", "a tensor of shape (11,): return a posterior of bdl.posteriors, or a"),
    "nothing": ("None", "None: return a posterior of bdl.posteriors, or a function of inputs"),
    "NaN": ("Point(zeros / 0)", "a Point: it has values that are not finite"),
    "negative variance": ("DiagonalGaussian(zeros, zeros - 1)", "var must be positive and finite"),
    "short predictions": (
        "lambda x: MeanVariance(x[1:, 0], x[1:, 0] * 0 + 1)",
        "mean has shape (43,): give it shape (44,) or (S, 44)",
    ),
    "statistics of the rows": (
        "lambda x: MeanVariance(x[:, 0] - x[:, 0].mean(), x[:, 0] * 0 + 1)",
        "a function: mean of 22 rows changes by",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_guest_is_a_failed_row_with_its_file(row, kind, tmp_path):
    fit, message = WRONG[kind]
    failed = row(GUEST.replace("WRONG", fit))
    assert failed.status == "failed"
    assert failed.reason.startswith("WrongReturn: Mine.fit returned")
    assert message in failed.reason
    assert failed.reason.endswith(f"({tmp_path / 'mine.py'}, line {FIT})")


@pytest.mark.parametrize(
    "fit",
    [
        "lambda x: MeanVariance(x[:, 0], x[:, 0] * 0 + 1)",
        # at random, so that half of the rows cannot be compared with all
        "lambda x: MeanVariance(torch.randn(len(x)), x[:, 0] * 0 + 1)",
        "DiagonalGaussian(zeros, zeros + 1)",
    ],
)
def test_a_right_guest_is_scored(row, fit):
    assert row(GUEST.replace("WRONG", fit)).status == "ok"


NETWORK = """
        torch.manual_seed(0)
        network = torch.nn.Sequential(
            torch.nn.Linear(10, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
        )
        network(torch.from_numpy(train.x).float())
        network.train(MODE)
        return lambda x: MeanVariance(network(x.float())[:, 0].detach(), torch.ones(len(x)))
"""


@pytest.mark.parametrize("mode", [True, False])
def test_batch_norm_in_training_mode_is_noticed(row, mode):
    """It divides by the statistics of the rows that are predicted, of which there are 44 or 22."""
    head = GUEST[: GUEST.index("        zeros")].rstrip()
    fitted = row(head + NETWORK.replace("MODE", str(mode)))
    assert fitted.status == ("failed" if mode else "ok")
    assert mode is ("let it predict each row by itself" in (fitted.reason or ""))


def test_a_mistyped_hyperparameter_is_answered_by_those_that_there_are(row):
    failed = row(GUEST.replace("WRONG", 'Point(zeros * hyper["prior_precison"])'))
    known = "noise_precision, prior_precision"
    assert f"unknown hyper-parameter 'prior_precison'; known: {known}" in failed.reason
