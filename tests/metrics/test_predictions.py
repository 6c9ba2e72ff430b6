"""Predictions: the outputs of a model under samples of its posterior, however they are cut into pieces."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.metrics import predictions as module
from bdl.metrics.likelihoods import Nmll
from bdl.metrics.predictions import (
    Draws,
    Predictions,
    as_tensors,
    draw_samples,
    evaluate_outputs,
    predict,
    summarise,
)
from bdl.metrics.regression import Rmse
from bdl.metrics.targets import Examples
from bdl.models.likelihoods import Bernoulli, Categorical, GaussianLikelihood
from bdl.models.modules import Module
from bdl.models.networks import LinearModel, Mlp
from bdl.models.problem import Problem
from bdl.posteriors import Dropout, Empirical, FactorAnalysis, Linearised, Weighted
from bdl.posteriors.tensors import as_type
from bdl.rng import random_normals

from .fits import KEY, examples, fit, normal

S, N = 7, 23
HYPER = as_tensors({"prior_precision": 1.0, "noise_precision": 0.5, "learning_rate": 0.1})
PROBLEMS = {
    "gaussian": Problem(Mlp((8,)), GaussianLikelihood(), 3),
    "bernoulli": Problem(Mlp((8,)), Bernoulli(), 3),
    "categorical": Problem(Mlp((8,)), Categorical(), 3, 4),
}
CLASSES = {"gaussian": 0, "bernoulli": 2, "categorical": 4}
REGRESSION = PROBLEMS["gaussian"]


def posterior_of(problem: Problem) -> FactorAnalysis:
    dim = problem.dim
    return FactorAnalysis(normal(0, dim), 0.3 * normal(1, dim, 2), 0.1 * normal(2, dim).exp())


def rows_of(kind: str) -> Examples:
    y = torch.arange(N) % CLASSES[kind] if CLASSES[kind] else normal(3, N)
    unit, origin = (2.5, -1.0) if kind == "gaussian" else (1.0, 0.0)
    return examples(normal(4, N, 3), y.double(), unit, origin)


def all_outputs(problem: Problem, posterior: FactorAnalysis, rows: Examples) -> Tensor:
    """All outputs at once, (S, n, d_out), by the definition of a sample's noise."""
    single = FactorAnalysis(*(tensor.float() for tensor in posterior))
    noise = torch.cat(
        random_normals(KEY[None], torch.tensor(0), (S * posterior.noise_dim + 1) // 2), 1
    )[0]
    theta = single.sample(noise[: S * posterior.noise_dim].view(S, -1))
    f = torch.stack([problem.model(sample, rows.x.float(), problem.d_out) for sample in theta])
    return f * rows.y_unit + rows.y_origin


def by_definition(problem: Problem, f: Tensor, y: Tensor) -> Predictions:
    """Of float64 outputs, without any streaming."""
    f = f.double()
    if isinstance(problem.likelihood, GaussianLikelihood):
        law = torch.distributions.Normal(f.squeeze(-1), HYPER["noise_precision"] ** -0.5)
        densities, none = law.log_prob(y), torch.zeros(N, 0).double()
        return Predictions(
            densities.exp().mean(0).log(), densities.sum(1), f.squeeze(-1).mean(0), none, none
        )
    two = isinstance(problem.likelihood, Bernoulli)
    logarithms = (
        torch.nn.functional.logsigmoid(torch.cat([-f, f], -1)) if two else f.log_softmax(-1)
    )
    chosen, probabilities = logarithms[:, torch.arange(N), y.long()], logarithms.exp()
    shares = probabilities.mean(0), probabilities.square().mean(0)
    return Predictions(chosen.exp().mean(0).log(), chosen.sum(1), torch.zeros(0).double(), *shares)


def close(found: Predictions, expected: Predictions, tolerance: float) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", PROBLEMS)
def test_predictions_sum_up_the_outputs_of_the_samples(kind):
    problem, rows = PROBLEMS[kind], rows_of(kind)
    f = all_outputs(problem, posterior_of(problem), rows)
    expected = by_definition(problem, f, rows.y)
    close(summarise(problem, f, rows.y, HYPER), expected, 1e-12)
    close(predict(problem, posterior_of(problem), rows, HYPER, {}, Draws(S, KEY)), expected, 2e-6)


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize(
    ("parameters", "values"), [(1, 1 << 22), (200, 1 << 22), (1 << 22, 1), (100, 100)]
)
def test_pieces_change_nothing_but_rounding(kind, parameters, values, monkeypatch):
    """Samples one by one, by threes, or all; rows likewise."""
    problem, rows = PROBLEMS[kind], rows_of(kind)
    whole = predict(problem, posterior_of(problem), rows, HYPER, {}, Draws(S, KEY))
    monkeypatch.setattr(module, "_PARAMETERS_AT_ONCE", parameters)
    monkeypatch.setattr(module, "VALUES_AT_ONCE", values)
    close(predict(problem, posterior_of(problem), rows, HYPER, {}, Draws(S, KEY)), whole, 1e-6)


def test_likelihoods_that_underflow_in_one_piece_do_not_spoil_the_others(monkeypatch):
    """Log-densities of -2e8 and -0.5e8: the second alone counts, without a zero or a NaN.

    Each is taken once.
    """
    monkeypatch.setattr(module, "_PARAMETERS_AT_ONCE", 1)
    draws, rows = (
        Empirical(torch.tensor([[2e4, 0.0], [1e4, 0.0]])),
        examples(torch.ones(1, 1), torch.zeros(1)),
    )
    hyper = {"noise_precision": torch.tensor(1.0)}
    found = predict(
        Problem(LinearModel(), GaussianLikelihood(), 1), draws, rows, hyper, {}, Draws(8, KEY)
    )
    assert (found.sample_log_likelihood > -1e8).tolist() == [False, True]
    expected = -0.5e8 - 0.5 * math.log(2 * math.pi) + math.log(1 / 2)
    assert found.log_likelihood.item() == pytest.approx(expected, rel=1e-14)


def test_vmap_predicts_for_each_trial():
    """Posteriors, keys, units and hyper-parameters of their own.

    The rows and targets are shared.
    """
    rows, first = rows_of("gaussian"), posterior_of(REGRESSION)
    posteriors = [first, first._replace(loc=normal(9, REGRESSION.dim))]
    stacked = FactorAnalysis(*map(torch.stack, zip(*posteriors, strict=True)))
    keys, units, betas = (
        torch.stack([KEY, KEY + 1]),
        torch.tensor([1.0, 3.0]),
        torch.tensor([0.5, 2.0]),
    )

    def one(posterior: FactorAnalysis, key: Tensor, unit: Tensor, beta: Tensor) -> Predictions:
        own = Examples(rows.x, rows.y, unit, torch.tensor(0.5))
        return predict(REGRESSION, posterior, own, {"noise_precision": beta}, {}, Draws(S, key))

    together = torch.func.vmap(one)(stacked, keys, units, betas)
    for i in range(2):
        alone = one(posteriors[i], keys[i], units[i], betas[i])
        close(Predictions(*(field[i] for field in together)), alone, 2e-6)


@pytest.mark.parametrize("draws", [Empirical, lambda theta: Weighted(theta, torch.zeros(2))])
def test_several_modes_do_not_share_running_statistics(draws):
    """Those of one ensemble's member, or weighted draw, are not those of another."""
    buffers = {"running_mean": torch.zeros(1)}
    with pytest.raises(
        InputError, match="one set of statistics, and the posterior has several modes"
    ):
        predict(
            REGRESSION,
            draws(normal(0, 2, REGRESSION.dim)),
            rows_of("gaussian"),
            HYPER,
            buffers,
            Draws(S, KEY),
        )


def test_each_sample_has_its_own_statistics_of_the_training_rows():
    network = f"{Path(__file__).parents[1] / 'methods/networks.py'}:small_net"
    problem = Problem(Module(network, batch_norm="recompute"), GaussianLikelihood(), 3)
    theta, seen = normal(0, 3, problem.dim), normal(1, 150, 3)
    rows = examples(normal(2, 5, 3), normal(3, 5))
    found = predict(problem, Empirical(theta), rows, HYPER, {}, Draws(3, KEY), lambda: seen)
    theta, x, seen = theta.float(), rows.x.float(), seen.float()
    f = torch.stack(
        [problem.predict(one, x, problem.recompute_statistics(one, seen)) for one in theta]
    )
    close(found, summarise(problem, f.double(), rows.y, HYPER), 1e-5)


@pytest.mark.parametrize(
    "problem",
    [
        Problem(Mlp((4,), "tanh"), GaussianLikelihood(), 2),
        Problem(Mlp((3, 3)), Categorical(), 2, 3),
    ],
)
def test_linearised_predictions_are_made_of_jacobians(problem):
    """By reverse differentiation, (n, C, D); the model is evaluated in float32."""
    dim, x = problem.dim, normal(0, 9, 2)
    q = Linearised(
        normal(1, dim), 0.3 * normal(2, dim, dim).tril(-1) + normal(3, dim).exp().diag()
    )
    q = as_type(q, torch.float32)
    (theta,), (pieces,) = (
        draw_samples(q, Draws(S, KEY)),
        evaluate_outputs(problem, q, examples(x, x[:, 0]), {}, Draws(S, KEY)),
    )
    q, theta = as_type((q, theta), torch.float64)

    def model(theta: Tensor) -> Tensor:
        return problem.model(theta, x, problem.d_out)

    jacobian = torch.autograd.functional.jacobian(model, q.mean())
    expected = model(q.mean()) + torch.einsum("ncd,sd->snc", jacobian, theta - q.mean())
    found = torch.cat([part for _, part in pieces], 1)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max()))


def test_posteriors_with_whole_numbers_keep_them():
    """The units of dropout are indices."""
    posterior = Dropout(normal(0, 4), torch.tensor([0, 1, 2, 3]), torch.full((3,), 0.5).double())
    found = predict(
        Problem(LinearModel(), GaussianLikelihood(), 3),
        posterior,
        rows_of("gaussian"),
        HYPER,
        {},
        Draws(S, KEY),
    )
    assert found.mean.isfinite().all()


def test_nothing_is_predicted_before_a_score_asks_and_then_once():
    calls, rows = [], rows_of("gaussian")
    hyper = {name: value.item() for name, value in HYPER.items()}
    evaluation = fit(
        posterior_of(REGRESSION), REGRESSION, hyper=hyper, test=lambda: calls.append(1) or rows
    )
    assert not calls
    Nmll()(evaluation), Rmse()(evaluation)
    assert calls == [1]


IMAGES = """
import torch
from bdl.metrics.evaluation import Draws, Examples
from bdl.metrics.predictions import predict
from bdl.models.likelihoods import Categorical
from bdl.models.networks import Mlp
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian
problem = Problem(Mlp((400, 400)), Categorical(), 100, 10)
posterior = DiagonalGaussian(torch.randn(problem.dim) / 20, torch.full((problem.dim,), 1e-4))
rows = Examples(torch.randn(10_000, 100), torch.arange(10_000).double() % 10, 1.0, 0.0)
found = predict(problem, posterior, rows, {}, {}, Draws(60, torch.tensor([1, 2], dtype=torch.int32)))
assert found.sample_log_likelihood.shape == (60,)
assert torch.allclose(found.probabilities.sum(1), torch.ones(10_000).double())
# its own peak; that of `getrusage` is no less than the peak of the process that started it
print(int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 2**20)
"""


@pytest.mark.slow  # a process that predicts 10,000 images
def test_ten_thousand_images_are_predicted_in_little_memory():
    """By 60 samples.

    All their parameters would take 0.05 GB, and the activations of 10,000 rows 4 GB.
    """
    done = subprocess.run(
        [sys.executable, "-c", IMAGES], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 1.5
