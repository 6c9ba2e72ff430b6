"""Problem: likelihood scaling, the prior, what models without statistics answer.

And where parameters stand.
"""

import pytest
import torch
from torch.distributions import Normal

from bdl.errors import InputError
from bdl.models.base import Layout
from bdl.models.likelihoods import GaussianLikelihood
from bdl.models.modules import Module
from bdl.models.networks import LinearModel, Mlp
from bdl.models.priors import GaussianPrior, HorseshoePrior
from bdl.models.problem import Batch, Problem

MODEL = Mlp(hidden=(3,))
SEED = 3


def scalar(value: float, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.tensor(value, dtype=dtype)


HYPER = {"prior_precision": scalar(2.5), "noise_precision": scalar(3.0)}


def test_log_likelihood_is_n_times_the_batch_mean(draw):
    """N is the size of the training set, whatever the number of rows in the batch."""
    problem, theta = Problem(MODEL, GaussianLikelihood(), d_in=2), draw(13)
    batch = Batch(draw(6, 2), draw(6), scalar(600), scalar(1.7))
    each = Normal(MODEL(theta, batch.x, 1).squeeze(-1), (3.0 * 1.7**2) ** -0.5).log_prob(batch.y)
    torch.testing.assert_close(
        problem.log_likelihoods(theta, batch, HYPER), each, rtol=1e-12, atol=1e-12
    )
    torch.testing.assert_close(
        problem.log_likelihood(theta, batch, HYPER), 100 * each.sum(), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias_precision", [None, 0.25])
def test_log_prior_matches_torch_in_the_type_of_the_hyper_parameters(draw, bias_precision, dtype):
    problem, theta = (
        Problem(MODEL, GaussianLikelihood(), 2, prior=GaussianPrior(bias_precision)),
        draw(13).to(dtype),
    )
    hyper, precision = {"prior_precision": scalar(2.5, dtype)}, torch.full((13,), 2.5, dtype=dtype)
    if bias_precision is not None:
        precision[[6, 7, 8, 12]] = bias_precision  # 3 x 2 weights, 3 biases, 1 x 3 weights, 1 bias
    expected = Normal(0.0, precision.rsqrt()).log_prob(theta).sum()
    torch.testing.assert_close(problem.log_prior(theta, hyper), expected)
    torch.testing.assert_close(
        problem.prior_precision(hyper).expand(13), precision, rtol=0, atol=0
    )


@pytest.mark.parametrize("prior", [GaussianPrior(), GaussianPrior(0.25), HorseshoePrior()])
def test_the_joint_density_and_its_gradient_map_over_trials(draw, prior):
    """A method descends log p(D | push(phi)) + log p(phi), whatever the prior."""
    problem = Problem(MODEL, GaussianLikelihood(), 2, prior=prior)
    phi = draw(4, problem.latent_dim)
    batches = Batch(draw(4, 5, 2), draw(4, 5), draw(4).exp(), draw(4).exp())
    hyper = {name: draw(4).exp() for name in problem.hyper}

    def log_joint(phi, batch, hyper):
        return problem.log_likelihood(problem.push(phi, hyper), batch, hyper) + problem.log_prior(
            phi, hyper
        )

    alone = [
        (
            phi[i].requires_grad_(),
            Batch(*(part[i] for part in batches)),
            {k: v[i] for k, v in hyper.items()},
        )
        for i in range(4)
    ]
    values = [log_joint(*one) for one in alone]
    gradients, actual = torch.func.vmap(torch.func.grad_and_value(log_joint))(
        phi.detach(), batches, hyper
    )
    torch.testing.assert_close(actual, torch.stack(values).detach(), rtol=1e-12, atol=0)
    for (own, *_), value, found in zip(alone, values, gradients, strict=True):
        torch.testing.assert_close(
            found, torch.autograd.grad(value, own)[0], rtol=1e-10, atol=1e-12
        )


def test_a_prior_without_precision_says_what_to_do():
    problem = Problem(MODEL, GaussianLikelihood(), 2, prior=HorseshoePrior())
    with pytest.raises(
        InputError,
        match="prior HorseshoePrior has no precision: use the prior 'gaussian', or a method",
    ):
        problem.prior_precision({})


def test_a_model_without_statistics_predicts_as_it_trains(draw):
    problem, theta, x = Problem(MODEL, GaussianLikelihood(), d_in=2), draw(13), draw(6, 2)
    assert problem.buffers() == {} == problem.track(theta, x, {})
    assert torch.equal(problem.predict(theta, x, {}), MODEL(theta, x, 1))


@pytest.mark.parametrize(
    ("model", "widest"), [(LinearModel(), 5), (Mlp((3,)), 5), (Mlp((7, 9)), 9)]
)
def test_the_widest_layer_counts_inputs_and_outputs(model, widest):
    assert Problem(model, GaussianLikelihood(), d_in=5).widest == widest


def test_problems_are_keys():
    """Programs are kept by problem: equal ones have one program."""
    one, same = (
        Problem(Mlp((3,)), GaussianLikelihood(), 2, prior=GaussianPrior(0.5)) for _ in range(2)
    )
    assert {one: 1}[same] == 1
    assert one != Problem(Mlp((3,)), GaussianLikelihood(), 2)


@pytest.mark.parametrize(
    ("layout", "units", "layers", "target_units"),
    [
        # two inputs and three hidden units; the numbers after the last one are biases
        (
            Layout(MODEL, 2, 1),
            "0 1 0 1 0 1 5 5 5 2 3 4 5",
            "0 0 0 0 0 0 2 2 2 1 1 1 2",
            "0 0 1 1 2 2 4 4 4 3 3 3 4",
        ),
        (Layout(LinearModel(), 2, 2), "0 1 0 1 2 2", "0 0 0 0 1 1", "0 0 1 1 2 2"),
        (Layout(LinearModel(bias=False), 3, 1), "0 1 2", "0 0 0", "0 0 0"),
    ],
)
def test_weights_know_their_layer_and_the_units_that_they_leave_and_enter(
    layout, units, layers, target_units
):
    for name, expected in (("units", units), ("layers", layers), ("target_units", target_units)):
        assert getattr(layout, name).tolist() == list(map(int, expected.split())), name
    assert (layout.layers == layout.n_layers).tolist() == layout.biases.tolist()


def test_of_other_models_the_last_layer_has_units_if_it_is_dense():
    layout = Layout(Module("torch.nn:Linear"), 3, 1)
    assert layout.units.tolist() == [0, 1, 2, 3]
    assert layout.last_layer == (3, 1, True)
    with pytest.raises(
        InputError, match="model Module is not made of dense layers: use linear or mlp"
    ):
        _ = layout.layers
