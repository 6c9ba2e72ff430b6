"""Predictions of many trials at once: each is that of its posterior alone."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from bdl.data import Dataset
from bdl.methods.conjugate import Conjugate
from bdl.metrics import predictions as streaming
from bdl.metrics.predictions import Draws, Predictions, as_tensors
from bdl.metrics.predictions import predict as predict_one
from bdl.metrics.targets import Examples
from bdl.models.likelihoods import Categorical, GaussianLikelihood
from bdl.models.networks import LinearModel, Mlp
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian, Dropout
from bdl.rng import trial_keys
from bdl.training import setup
from bdl.training.setup import TrainingSetup
from bdl.training.trials import Pool, fit_scaling

R, S = 5, 9
ROWS = np.arange(60, 80)
IDENTITIES = [("trial", i) for i in range(R)]
ROW_SETS = [np.arange(i, 60, 2) for i in range(R)]
SETTINGS = [{"prior_precision": 1.0, "noise_precision": 0.5 + i} for i in range(R)]


def dataset(classes: int = 0) -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.normal(3, 5, (80, 3))
    if classes:
        return Dataset("labels", x, rng.integers(0, classes, 80).astype(float), "classification")
    return Dataset("numbers", x, 10 + x @ np.array([1.0, -2.0, 0.5]) + rng.normal(size=80))


def stacked(dim: int) -> DiagonalGaussian:
    generator = torch.Generator().manual_seed(0)
    return DiagonalGaussian(
        torch.randn(R, dim, generator=generator), torch.rand(R, dim, generator=generator) / 10
    )


def together(
    problem: Problem,
    data: Dataset,
    state: object,
    index: list[int],
    buffers: dict[str, Tensor] | None = None,
) -> Predictions:
    program = TrainingSetup(
        data, Pool.load(data), problem, Conjugate(), None, S
    )  # whose states are posteriors
    trials = program.trials(IDENTITIES, ROW_SETS, SETTINGS)
    return program.predict(
        trials, SimpleNamespace(state=state, buffers=buffers or {}), index, ROWS
    )


def alone(problem: Problem, data: Dataset, posterior: DiagonalGaussian, i: int) -> Predictions:
    """From the data themselves, standardised in float64."""
    scaling = fit_scaling(data, [ROW_SETS[i]])
    x = torch.from_numpy((data.x[ROWS] - scaling.x_mean[0]) / scaling.x_scale[0])
    unit, origin = float(scaling.y_scale[0]), float(scaling.y_mean[0])
    rows = Examples(x, torch.from_numpy(data.y[ROWS]), unit, origin)
    key = trial_keys([IDENTITIES[i]], "predict")[0]
    return predict_one(problem, posterior, rows, as_tensors(SETTINGS[i]), {}, Draws(S, key))


def close(found: Predictions, expected: Predictions, tolerance: float) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("classes", [0, 4])
def test_each_trial_predicts_as_it_does_alone(classes):
    """With rows, units, hyper-parameters and draws of its own."""
    data = dataset(classes)
    problem = Problem(
        Mlp((6,)), Categorical() if classes else GaussianLikelihood(), 3, max(1, classes)
    )
    state, index = stacked(problem.dim), [3, 0, 4]
    found = together(problem, data, state, index)
    assert found.log_likelihood.shape == (3, len(ROWS))
    assert found.probabilities.shape == (3, len(ROWS), classes)
    for place, i in enumerate(index):
        own = DiagonalGaussian(state.loc[i], state.var[i])
        close(Predictions(*(field[place] for field in found)), alone(problem, data, own, i), 1e-5)


@pytest.mark.parametrize("values", [1, 1000])
def test_pieces_change_nothing_but_rounding(values, monkeypatch):
    """Trials one by one, or by twos; samples and rows as well."""
    problem, data = Problem(Mlp((6,)), GaussianLikelihood(), 3), dataset()
    whole = together(problem, data, stacked(problem.dim), [0, 1, 2, 3, 4])
    monkeypatch.setattr(streaming, "_PARAMETERS_AT_ONCE", values)
    for module in (streaming, setup):
        monkeypatch.setattr(module, "VALUES_AT_ONCE", values)
    close(together(problem, data, stacked(problem.dim), [0, 1, 2, 3, 4]), whole, 1e-5)


def test_a_diverged_trial_leaves_the_others_alone():
    problem, data = Problem(LinearModel(), GaussianLikelihood(), 3), dataset()
    state = stacked(problem.dim)
    broken = DiagonalGaussian(state.loc.clone(), state.var)
    broken.loc[1] = torch.nan
    found, expected = (
        together(problem, data, posterior, [0, 1, 2]) for posterior in (broken, state)
    )
    assert found.log_likelihood[1].isnan().all()
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one[[0, 2]], other[[0, 2]])


def test_whole_numbers_of_a_state_stay_whole():
    """The posterior of dropout refers to units by number."""
    problem = Problem(LinearModel(), GaussianLikelihood(), 3)
    source = torch.tensor([0, 1, 2, 3]).expand(R, 4)
    state = Dropout(torch.ones(R, 4), source, torch.full((R, 3), 0.5))
    assert together(problem, dataset(), state, [0, 1]).mean.isfinite().all()


def test_statistics_of_a_model_are_each_trials_own():
    """A model whose output is its buffer."""

    class Constant(LinearModel):
        def buffers(self, d_in: int, d_out: int) -> dict[str, Tensor]:
            return {"level": torch.zeros(())}

        def predict(
            self, theta: Tensor, x: Tensor, d_out: int, buffers: dict[str, Tensor]
        ) -> Tensor:
            return buffers["level"].expand(len(x), d_out)

        def track(
            self, theta: Tensor, x: Tensor, d_out: int, buffers: dict[str, Tensor]
        ) -> dict[str, Tensor]:
            return buffers

        def widest(self, d_in: int, d_out: int) -> int:
            return 1

    data, levels = dataset(), torch.arange(float(R))
    found = together(
        Problem(Constant(), GaussianLikelihood(), 3), data, stacked(4), [4, 2], {"level": levels}
    ).mean
    for place, i in enumerate((4, 2)):
        y = data.y[ROW_SETS[i]]
        np.testing.assert_allclose(
            found[place], np.full(len(ROWS), levels[i] * y.std() + y.mean()), rtol=1e-6
        )
