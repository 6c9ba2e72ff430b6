"""Per-example gradients: the matrix against autograd, and the products of outer products against the matrix."""

from dataclasses import dataclass

import pytest
import torch

from bdl.errors import InputError
from bdl.models.gradients import (
    DenseGradients,
    OuterGradients,
    example_gradients,
    example_hessians,
    gradient_matrix,
    is_single_output_layer,
)
from bdl.models.likelihoods import Bernoulli, Categorical, GaussianLikelihood
from bdl.models.networks import LinearModel, Mlp, Unit
from bdl.models.problem import Batch, Problem

MODELS = {
    "linear": LinearModel(),
    "linear-no-bias": LinearModel(bias=False),
    "mlp": Mlp(hidden=(4,)),
    "deep": Mlp(hidden=(5, 1, 3)),
}
LIKELIHOODS = {
    "gaussian": (GaussianLikelihood(), 1, lambda y: y),
    "bernoulli": (Bernoulli(), 1, lambda y: (y > 0).double()),
    "categorical": (Categorical(), 3, lambda y: (y > -0.5).long() + (y > 0.5).long()),
}
SAMPLES, ROWS, D_IN = 2, 5, 3
CLOSE = {"rtol": 1e-11, "atol": 1e-12}

SEED = 6


@pytest.fixture(
    params=[(model, likelihood) for model in MODELS for likelihood in LIKELIHOODS], ids="-".join
)
def case(request, draw):
    """A problem, S parameter vectors, a minibatch and hyper-parameters."""
    model, likelihood = request.param
    family, d_out, labels = LIKELIHOODS[likelihood]
    problem = Problem(MODELS[model], family, D_IN, d_out)
    batch = Batch(draw(ROWS, D_IN), labels(draw(ROWS)), torch.tensor(40.0), draw().exp())
    return (
        problem,
        draw(SAMPLES, problem.dim),
        batch,
        {name: draw().exp() for name in problem.hyper},
    )


def matrix(problem, theta, batch, hyper):
    """All gradients, the examples of the first sample first."""
    return torch.cat([gradient_matrix(problem, one, batch, hyper) for one in theta])


def test_matrix_equals_autograd_example_by_example(case):
    problem, (theta, _), batch, hyper = case
    theta = theta.requires_grad_()
    values = problem.log_likelihoods(theta, batch, hyper)
    expected = [torch.autograd.grad(value, theta, retain_graph=True)[0] for value in values]
    torch.testing.assert_close(
        gradient_matrix(problem, theta, batch, hyper), torch.stack(expected), **CLOSE
    )


@pytest.mark.parametrize("rank", [1, 3])
def test_products_equal_those_of_the_matrix(case, draw, rank):
    problem, theta, batch, hyper = case
    found, dense = example_gradients(problem, theta, batch, hyper), DenseGradients(matrix(*case))
    assert isinstance(found, DenseGradients if is_single_output_layer(problem) else OuterGradients)
    for gradients in (found, dense):
        torch.testing.assert_close(gradients.outer(), dense.matrix.T @ dense.matrix, **CLOSE)
        torch.testing.assert_close(gradients.squares(), (dense.matrix**2).sum(0), **CLOSE)
        torch.testing.assert_close(gradients.total(), dense.matrix.sum(0), **CLOSE)
    if is_single_output_layer(problem):  # a row stands for the gradients of all samples
        assert found.rows == ROWS
        dense = found
    G = dense.matrix
    assert len(G) == found.rows
    columns, weights = draw(problem.dim, rank), draw(len(G), rank)
    for gradients in (found, dense):
        torch.testing.assert_close(gradients.gram(), G @ G.T, **CLOSE)
        torch.testing.assert_close(gradients.times(columns), G @ columns, **CLOSE)
        torch.testing.assert_close(gradients.combine(weights), G.T @ weights, **CLOSE)


@pytest.mark.parametrize("model", [LinearModel(), LinearModel(bias=False)])
@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_hessians_equal_autograd(model, family, draw):
    likelihood, d_out, labels = LIKELIHOODS[family]
    problem = Problem(model, likelihood, D_IN, d_out)
    batch = Batch(draw(ROWS, D_IN), labels(draw(ROWS)), torch.tensor(40.0), draw().exp())
    theta, hyper = draw(SAMPLES, problem.dim), {name: draw().exp() for name in problem.hyper}
    found = example_hessians(problem, theta, batch, hyper)

    def value(one):
        return problem.log_likelihoods(one, batch, hyper).sum()

    hessian = sum(torch.func.hessian(value)(one) for one in theta)
    torch.testing.assert_close(found.outer(), -hessian, **CLOSE)
    torch.testing.assert_close(
        found.total(), sum(torch.func.grad(value)(one) for one in theta), **CLOSE
    )


def test_hessians_of_a_network_are_refused(draw):
    problem = Problem(Mlp(hidden=(4,)), Bernoulli(), D_IN)
    batch = Batch(draw(ROWS, D_IN), torch.ones(ROWS), torch.tensor(40.0), torch.tensor(1.0))
    with pytest.raises(InputError, match="linear model with one output"):
        example_hessians(problem, draw(SAMPLES, problem.dim), batch, {})


def test_vmap_over_models_equals_the_loop(draw):
    problem = Problem(Mlp(hidden=(4,)), Bernoulli(), D_IN)
    theta, x, y = draw(3, SAMPLES, problem.dim), draw(3, ROWS, D_IN), (draw(3, ROWS) > 0).double()
    columns = draw(problem.dim, 2)

    def product(theta, x, y):
        batch = Batch(x, y, torch.tensor(40.0), torch.tensor(1.0))
        return example_gradients(problem, theta, batch, {}).times(columns)

    expected = torch.stack([product(*one) for one in zip(theta, x, y, strict=True)])
    torch.testing.assert_close(torch.func.vmap(product)(theta, x, y), expected, **CLOSE)


def test_other_models_fall_back_on_the_matrix(draw):
    """f = theta_1 exp(theta_2 x): no layers, hence no outer products."""

    @dataclass(frozen=True)
    class Growth:
        def dim(self, d_in, d_out):
            return 2

        def bias_mask(self, d_in, d_out):
            return torch.zeros(2, dtype=torch.bool)

        def __call__(self, theta, x, d_out):
            return theta[0] * (theta[1] * x).exp()

    problem = Problem(Growth(), GaussianLikelihood(), 1)
    batch = Batch(draw(ROWS, 1), draw(ROWS), torch.tensor(40.0), torch.tensor(1.0))
    hyper = {"noise_precision": torch.tensor(2.0, dtype=torch.float64)}
    theta = draw(SAMPLES, 2)
    gradients = example_gradients(problem, theta, batch, hyper)
    assert isinstance(gradients, DenseGradients)
    growth = (theta[:, 1:] * batch.x.T).exp()
    error = 2 * (batch.y - theta[:, :1] * growth)
    expected = torch.stack(
        [error * growth, error * theta[:, :1] * batch.x.T * growth], dim=-1
    ).flatten(0, 1)
    torch.testing.assert_close(gradients.matrix, expected, **CLOSE)


def test_a_unit_with_an_activation_is_no_linear_layer(draw):
    """Its gradients are those of autograd, not those of the outputs before the activation."""
    problem = Problem(Unit("tanh"), GaussianLikelihood(), D_IN, 1)
    batch = Batch(draw(ROWS, D_IN), draw(ROWS), torch.tensor(40.0), draw().exp())
    theta, hyper = draw(1, problem.dim), {name: draw().exp() for name in problem.hyper}
    assert not is_single_output_layer(problem)
    found = example_gradients(problem, theta, batch, hyper)
    expected = gradient_matrix(problem, theta[0], batch, hyper).sum(0)
    torch.testing.assert_close(found.total().flatten(), expected, **CLOSE)
