"""The compiled log posterior of networks against the one that methods see."""

import numpy as np
import pytest
import torch

from bdl.models.likelihoods import Bernoulli, Gaussian
from bdl.models.networks import Linear, Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem, log_joint, whole
from bdl.references import chains

pytest.importorskip("numba")
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(12, 3, dtype=torch.float64, generator=GENERATOR)
Y = (X[:, 0] > 0).double()
HYPER = {name: torch.tensor(value, dtype=torch.float64) for name, value in {"prior_precision": 0.7}.items()}
NOISE = {"noise_precision": torch.tensor(5.0, dtype=torch.float64)}


@pytest.mark.parametrize("likelihood", [Gaussian(), Bernoulli()])
@pytest.mark.parametrize("model", [Mlp((4,), "relu"), Mlp((4,), "tanh"), Mlp((4, 3), "relu"), Linear()])
def test_value_and_gradient_are_those_of_the_problem(model, likelihood):
    """Up to a constant, at points of any size; biases have a prior of their own."""
    problem = Problem(model, likelihood, 3, prior=GaussianPrior(0.1))
    hyper = HYPER | (NOISE if isinstance(likelihood, Gaussian) else {})
    slope = chains.slope(problem, X, Y, hyper)
    points = torch.randn(3, problem.dim, dtype=torch.float64, generator=GENERATOR) * torch.tensor([[0.1], [1.0], [9.0]])
    expected = log_joint(points, problem, whole(X, Y), hyper)
    gradients = torch.func.vmap(torch.func.grad(lambda one: log_joint(one[None], problem, whole(X, Y), hyper)[0]))(
        points
    )
    found = [slope(point.numpy()) for point in points]
    values = np.array([value for value, _ in found])
    np.testing.assert_allclose(np.diff(values), expected.diff(), rtol=1e-10)
    np.testing.assert_allclose([gradient for _, gradient in found], gradients, rtol=1e-9, atol=1e-9)


def test_loops_are_taken_where_they_can_be(monkeypatch):
    monkeypatch.setattr(chains, "log_joint", None)
    problem = Problem(Mlp((2,)), Gaussian(), 3)
    assert np.isfinite(chains.slope(problem, X, Y, HYPER | NOISE)(np.ones(problem.dim))[0])
