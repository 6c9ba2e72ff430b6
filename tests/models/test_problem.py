"""Problem: likelihood scaling, the prior, layers, and what models without statistics answer."""

from itertools import combinations

import pytest
import torch
from torch.distributions import Normal

from bdl.models.likelihoods import Bernoulli, Gaussian
from bdl.models.networks import Linear, Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Batch, Problem

MODEL = Mlp(hidden=(3,))


def scalar(value: float, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.tensor(value, dtype=dtype)


HYPER = {"prior_precision": scalar(2.5), "noise_precision": scalar(3.0)}

SEED = 3


@pytest.fixture
def batch(draw):
    """Six rows, here the whole training set."""
    return Batch(draw(6, 2), draw(6), scalar(6), scalar(1.7))


def test_dim_and_hyper_names_come_from_the_parts():
    regression = Problem(MODEL, Gaussian(), d_in=2)
    assert regression.dim == 3 * 3 + 4
    assert regression.hyper == ("prior_precision", "noise_precision")
    assert Problem(Linear(), Bernoulli(), d_in=2).hyper == ("prior_precision",)


def test_log_likelihood_is_n_times_the_batch_mean(draw, batch):
    """N is the size of the training set, whatever the number of rows in the batch."""
    problem, theta = Problem(MODEL, Gaussian(), d_in=2), draw(13)
    f = MODEL(theta, batch.x, 1).squeeze(-1)
    each = Normal(f, (3.0 * 1.7**2) ** -0.5).log_prob(batch.y)
    torch.testing.assert_close(problem.log_likelihoods(theta, batch, HYPER), each, rtol=1e-12, atol=1e-12)
    actual = problem.log_likelihood(theta, batch._replace(n=scalar(600)), HYPER)
    torch.testing.assert_close(actual, 100 * each.sum(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_minibatches_are_unbiased(draw, batch, size):
    """The average over all minibatches of one size is the value, and the gradient, of the whole set."""
    problem, theta = Problem(MODEL, Gaussian(), d_in=2), draw(13)

    def value_and_gradient(rows):
        part = batch._replace(x=batch.x[rows], y=batch.y[rows])
        return torch.func.grad_and_value(lambda t: problem.log_likelihood(t, part, HYPER))(theta)

    parts = [value_and_gradient(list(rows)) for rows in combinations(range(6), size)]
    for whole, pieces in zip(value_and_gradient(slice(None)), zip(*parts, strict=True), strict=True):
        torch.testing.assert_close(torch.stack(pieces).mean(0), whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bias_precision", [None, 0.25])
def test_log_prior_matches_torch(draw, bias_precision):
    problem, theta = Problem(MODEL, Gaussian(), 2, prior=GaussianPrior(bias_precision)), draw(13)
    biases = [6, 7, 8, 12]  # 3 x 2 weights, 3 biases, 1 x 3 weights, 1 bias
    precision = torch.full((13,), 2.5, dtype=torch.float64)
    if bias_precision is not None:
        precision[biases] = bias_precision
    expected = Normal(0.0, precision.rsqrt()).log_prob(theta).sum()
    actual = problem.log_prior(theta, HYPER)
    assert actual.shape == ()
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(problem.prior_precision(HYPER).expand(13), precision, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias_precision", [None, 0.25])
def test_the_dtype_is_that_of_the_hyper_parameters(dtype, bias_precision):
    problem = Problem(MODEL, Gaussian(), 2, prior=GaussianPrior(bias_precision))
    hyper = {name: value.to(dtype) for name, value in HYPER.items()}
    assert problem.prior_precision(hyper).dtype == dtype
    assert problem.log_prior(torch.ones(13, dtype=dtype), hyper).dtype == dtype


@pytest.mark.parametrize("bias_precision", [None, 0.25])
def test_vmap_over_trials_equals_the_loop(draw, bias_precision):
    problem = Problem(MODEL, Gaussian(), 2, prior=GaussianPrior(bias_precision))
    theta = draw(4, 13)
    batches = Batch(draw(4, 5, 2), draw(4, 5), draw(4).exp(), draw(4).exp())
    hyper = {name: draw(4).exp() for name in problem.hyper}

    def log_joint(t, batch, hyper):
        return problem.log_likelihood(t, batch, hyper) + problem.log_prior(t, hyper)

    expected = [
        log_joint(theta[i], Batch(*(part[i] for part in batches)), {k: v[i] for k, v in hyper.items()})
        for i in range(4)
    ]
    actual = torch.func.vmap(log_joint)(theta, batches, hyper)
    torch.testing.assert_close(actual, torch.stack(expected), rtol=1e-12, atol=0)


def test_layers_give_the_gradients_of_each_example(draw, batch):
    """Outer products of errors and inputs, and the errors for biases, are the gradient of log p(y_i | x_i, theta)."""
    problem, theta = Problem(MODEL, Gaussian(), d_in=2), draw(13)
    layers = problem.layers(theta, batch, HYPER)
    assert [(inputs.shape, errors.shape) for inputs, errors in layers] == [((6, 2), (6, 3)), ((6, 3), (6, 1))]
    jacobian = torch.func.jacrev(problem.log_likelihoods)(theta, batch, HYPER)
    parts = [part for inputs, errors in layers for part in (torch.einsum("mo,mi->moi", errors, inputs), errors)]
    torch.testing.assert_close(torch.cat([part.flatten(1) for part in parts], 1), jacobian, rtol=1e-11, atol=1e-12)


def test_a_model_without_statistics_predicts_as_it_trains(draw, batch):
    problem, theta = Problem(MODEL, Gaussian(), d_in=2), draw(13)
    assert problem.buffers() == {}
    assert problem.track(theta, batch.x, {}) == {}
    assert torch.equal(problem.predict(theta, batch.x, {}), MODEL(theta, batch.x, 1))


def test_the_start_is_the_models_own(draw):
    noise = draw(13)
    assert torch.equal(Problem(MODEL, Gaussian(), d_in=2).initial(noise), MODEL.initial(noise, 2, 1))


@pytest.mark.parametrize(("model", "widest"), [(Linear(), 5), (Mlp((3,)), 5), (Mlp((7, 9)), 9)])
def test_the_widest_layer_counts_inputs_and_outputs(model, widest):
    assert Problem(model, Gaussian(), d_in=5).widest == widest


def test_problems_are_keys():
    """Programs are kept by problem: equal ones have one program."""
    one, same = (Problem(Mlp((3,)), Gaussian(), 2, prior=GaussianPrior(0.5)) for _ in range(2))
    assert {one: 1}[same] == 1
    assert one != Problem(Mlp((3,)), Gaussian(), 2)
