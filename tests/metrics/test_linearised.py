"""Predictions by the linearised model, against Jacobians and against the exact predictive of a linear model."""

import pytest
import torch

from bdl.metrics.predictions import Draws, Examples, outputs, predict, sampled
from bdl.models.likelihoods import Categorical, Gaussian
from bdl.models.networks import Linear, Mlp
from bdl.models.problem import Problem
from bdl.posteriors import FullGaussian, LastLayer, Linearised
from bdl.posteriors.tensors import as_type
from bdl.rng import trial_keys

GENERATOR = torch.Generator().manual_seed(0)
DRAWS = Draws(7, trial_keys([("linearised",)], "predict")[0])


def normal(*shape):
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


X = normal(9, 2)
PROBLEMS = [Problem(Mlp((4,), "tanh"), Gaussian(), 2), Problem(Mlp((3, 3), "relu"), Categorical(), 2, 3)]


def gaussian(problem, family=Linearised):
    dim = problem.dim
    return family(normal(dim), 0.3 * normal(dim, dim).tril(-1) + normal(dim).exp().diag())


def jacobian(problem, theta):
    """Outputs (9, C) and their derivative, (9, C, D), by reverse differentiation of the model in training."""
    found = torch.autograd.functional.jacobian(lambda own: problem.model(own, X, problem.d_out), theta)
    return problem.model(theta, X, problem.d_out), found


@pytest.mark.parametrize("problem", PROBLEMS)
def test_outputs_have_the_mean_and_covariance_of_jacobians(problem):
    """Over points of noise that have mean 0 and covariance I exactly."""
    q = gaussian(problem)
    f, J = jacobian(problem, q.mean())
    points = problem.dim**0.5 * torch.eye(problem.dim, dtype=torch.float64)
    theta = q.sample(torch.cat([points, -points]))
    found = torch.func.vmap(lambda one: problem.linearised(q.mean(), one, X, {}))(theta)
    torch.testing.assert_close(found.mean(0), f, rtol=1e-10, atol=1e-10)
    covariance = torch.einsum("snc,snd->ncd", found - f, found - f) / len(found)
    torch.testing.assert_close(covariance, J @ q.covariance() @ J.mT, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_predictions_are_made_of_linearised_outputs(problem):
    """The model is evaluated in float32."""
    q = as_type(gaussian(problem), torch.float32)
    (theta,), (pieces,) = sampled(q, DRAWS), outputs(problem, q, Examples(X, torch.zeros(9), 1.0, 0.0), {}, DRAWS)
    q, theta = as_type((q, theta), torch.float64)
    f, J = jacobian(problem, q.mean())
    expected = f + torch.einsum("ncd,sd->snc", J, theta - q.mean())
    found = torch.cat([part for _, part in pieces], 1)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max()))


def test_of_a_linear_model_it_changes_nothing():
    problem, hyper = Problem(Linear(), Gaussian(), 2), {"noise_precision": torch.tensor(2.0).double()}
    q, rows = gaussian(problem), Examples(X, normal(9), 1.3, 0.4)
    found, expected = (predict(problem, one, rows, hyper, {}, DRAWS) for one in (q, FullGaussian(*q)))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_of_a_gaussian_over_the_last_layer_it_changes_nothing():
    problem = PROBLEMS[0]
    q = LastLayer(normal(problem.dim), torch.eye(5).double())
    theta = q.sample(normal(5))
    linear = problem.linearised(q.mean(), theta, X, {})
    torch.testing.assert_close(linear, problem.predict(theta, X, {}), rtol=1e-10, atol=1e-12)
