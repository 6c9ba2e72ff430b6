"""The optimisers, clipping and point estimates against torch's, and the mode that they lead to."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor

from bdl.methods import METHODS
from bdl.methods.optim import OPTIMIZERS, AdamUpdate, clip_by_norm
from bdl.methods.point_estimate import Adam as AdamEstimate
from bdl.methods.point_estimate import Sgd
from bdl.models.likelihoods import GaussianLikelihood
from bdl.models.networks import Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem

from .targets import batch_of, doubles, linear_gaussian, normals, settled

RATES = {"a": 0.03, "b": 0.4, "c": 1e-4}
TORCH = {
    "sgd": (OPTIMIZERS["sgd"], torch.optim.SGD),
    "adam": (OPTIMIZERS["adam"], torch.optim.Adam),
    "adam with settings": (
        AdamUpdate(0.5, 0.7, 0.1),
        partial(torch.optim.Adam, betas=(0.5, 0.7), eps=0.1),
    ),
}


def loss(params: dict[str, Tensor]) -> Tensor:
    """Smooth, not quadratic, and with gradients of very different sizes."""
    a, b, c = params["a"], params["b"], params["c"]
    return 50 * a.square().sum() + b.sin().sum() + 1e-3 * (b.sum() * c).cosh()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 1e-4)])
@pytest.mark.parametrize("name", TORCH)
def test_twenty_steps_match_torch(name, dtype, tolerance):
    """Three groups with their own learning rates.

    float64 leaves only rounding. That of float32, 1e-7 a step, is amplified by the bias correction
    1 / (1 - 0.999^t).
    """
    ours, kind = TORCH[name]
    params = normals({"a": (5,), "b": (4, 3), "c": ()}, torch.Generator().manual_seed(0), dtype)
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    theirs = kind([{"params": [leaves[name]], "lr": rate} for name, rate in RATES.items()])
    rates, state = (
        {name: torch.tensor(rate, dtype=dtype) for name, rate in RATES.items()},
        ours.init(params),
    )
    for _ in range(20):
        params, state = ours.move(params, torch.func.grad(loss)(params), state, rates)
        theirs.zero_grad()
        loss(leaves).backward()
        theirs.step()
        for name, leaf in leaves.items():
            torch.testing.assert_close(params[name], leaf.detach(), rtol=tolerance, atol=tolerance)
    assert state.updates == 20


@pytest.mark.parametrize("max_norm", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("shape", [(4, 3), ()])
def test_clipping_matches_torch(max_norm, shape):
    gradient = 3 * torch.randn(
        shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64
    )
    leaf = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
    leaf.grad = gradient.clone()
    norm = torch.nn.utils.clip_grad_norm_([leaf], max_norm).item()
    # torch divides by norm + 1e-6
    torch.testing.assert_close(
        clip_by_norm(gradient, max_norm), leaf.grad, rtol=1.1e-6 / norm, atol=0
    )


@pytest.mark.parametrize(
    ("gradient", "limit"), [([0.3, -0.4], 1.0), ([3.0, -4.0], math.inf), ([0.0, 0.0], 1.0)]
)
def test_a_short_gradient_is_returned_bit_for_bit(gradient, limit):
    assert clip_by_norm(torch.tensor(gradient), limit).tolist() == torch.tensor(gradient).tolist()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_non_finite_gradient_stays_non_finite(bad):
    assert not clip_by_norm(torch.tensor([1.0, bad]), 1.0).isfinite().all()


@pytest.mark.parametrize("prior_share", [0.0, 0.3])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("adam", torch.optim.Adam),
        ("rmsprop", partial(torch.optim.RMSprop, alpha=0.9)),
        ("sgd", torch.optim.SGD),
    ],
)
def test_steps_of_point_estimates_are_those_of_torch(name, kind, prior_share):
    """Which descend the same E, its gradient by autograd of the whole."""
    generator = torch.Generator().manual_seed(0)
    problem = Problem(Mlp(hidden=(3,)), GaussianLikelihood(), 2, prior=GaussianPrior(0.2))
    batch = batch_of(*normals({"x": (5, 2), "y": (5,)}, generator).values(), 40.0, 2.5)
    hyper = doubles(prior_precision=1.5, noise_precision=0.4, learning_rate=0.05)
    method = METHODS.get(name)(prior_share=prior_share)
    state = method.init(problem, normals(method.init_noise(problem), generator))
    theta = state.params["theta"].clone().requires_grad_()
    optimizer = kind([theta], lr=0.05)
    for _ in range(20):
        state = method.step(state, batch, hyper, {}, problem)
        optimizer.zero_grad()
        joint = problem.log_likelihood(theta, batch, hyper) + prior_share * problem.log_prior(
            theta, hyper
        )
        (-joint / batch.n).backward()
        optimizer.step()
    torch.testing.assert_close(method.posterior(state).loc, theta.detach(), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("prior_share", [0.0, 1.0])
def test_the_prior_decides_between_mode_and_largest_likelihood(prior_share):
    target, method = linear_gaussian(), Sgd(prior_share=prior_share)
    expected = (
        target.posterior.loc
        if prior_share
        else torch.linalg.lstsq(target.design, target.data.y).solution
    )
    state = settled(method, *target[:2], target.hyper | doubles(learning_rate=0.5), {}, 1000)
    torch.testing.assert_close(method.posterior(state).loc, expected, rtol=1e-10, atol=1e-10)


def test_start():
    problem, noise = linear_gaussian().problem, {"theta": torch.tensor([1.0, -2.0, 3.0])}
    assert AdamEstimate(initial_scale=0.5).init(problem, noise).params["theta"].tolist() == [
        0.5,
        -1,
        1.5,
    ]
    own = AdamEstimate().init(problem, noise).params["theta"]
    torch.testing.assert_close(own, torch.tensor([0.5**0.5, -(2**0.5), 0.0]))
