"""The optimisers and clipping against torch's."""

import math

import pytest
import torch
from torch import Tensor

from bdl.methods.optim import OPTIMIZERS, Adam, Sgd, clip_by_norm

RATES = {"a": 0.03, "b": 0.4, "c": 1e-4}
TORCH = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


def start(dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"a": (5,), "b": (4, 3), "c": ()}
    return {name: torch.randn(shape, generator=generator, dtype=dtype) for name, shape in shapes.items()}


def loss(params: dict[str, Tensor]) -> Tensor:
    """Smooth, not quadratic, and with gradients of very different sizes."""
    a, b, c = params["a"], params["b"], params["c"]
    return 50 * a.square().sum() + b.sin().sum() + 1e-3 * (b.sum() * c).cosh()


def run(optimizer, params: dict[str, Tensor], n_steps: int) -> list[dict[str, Tensor]]:
    rates = {name: torch.tensor(rate, dtype=params["a"].dtype) for name, rate in RATES.items()}
    state, path = optimizer.init(params), []
    for _ in range(n_steps):
        steps, state = optimizer.update(torch.func.grad(loss)(params), state, rates)
        params = {name: value + steps[name] for name, value in params.items()}
        path.append(params)
    assert state.updates == n_steps
    return path


def run_torch(kind, params: dict[str, Tensor], n_steps: int) -> list[dict[str, Tensor]]:
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    groups = [{"params": [leaves[name]], "lr": rate} for name, rate in RATES.items()]
    optimizer, path = kind(groups), []
    for _ in range(n_steps):
        optimizer.zero_grad()
        loss(leaves).backward()
        optimizer.step()
        path.append({name: value.detach().clone() for name, value in leaves.items()})
    return path


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_twenty_steps_match_torch(name):
    """Every iterate, three groups with their own learning rates; float64 leaves only rounding."""
    actual, expected = run(OPTIMIZERS[name], start(), 20), run_torch(TORCH[name], start(), 20)
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_float32_stays_float32_and_near_torch(name):
    """Twenty steps of float32 rounding, 1e-7 each, amplified by the bias correction 1 / (1 - 0.999^t)."""
    actual = run(OPTIMIZERS[name], start(torch.float32), 20)[-1]
    expected = run_torch(TORCH[name], start(torch.float32), 20)[-1]
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_adam_settings_are_used():
    def kind(groups):
        return torch.optim.Adam(groups, betas=(0.5, 0.7), eps=0.1)

    actual, expected = run(Adam(0.5, 0.7, 0.1), start(), 20), run_torch(kind, start(), 20)
    torch.testing.assert_close(actual[-1], expected[-1], rtol=1e-6, atol=1e-6)


def test_optimisers_by_name():
    assert set(OPTIMIZERS) == {"sgd", "adam"}
    assert OPTIMIZERS["sgd"] == Sgd()
    assert OPTIMIZERS["adam"] == Adam(beta1=0.9, beta2=0.999, eps=1e-8)


@pytest.mark.parametrize("max_norm", [1e-3, 0.5, 1.0, 10.0, 1e3])
@pytest.mark.parametrize("shape", [(6,), (4, 3), ()])
def test_clipping_matches_torch(max_norm, shape):
    gradient = 3 * torch.randn(shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    leaf = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
    leaf.grad = gradient.clone()
    norm = torch.nn.utils.clip_grad_norm_([leaf], max_norm).item()
    # torch divides by norm + 1e-6
    torch.testing.assert_close(clip_by_norm(gradient, max_norm), leaf.grad, rtol=1.1e-6 / norm, atol=0)


def test_a_short_gradient_is_returned_bit_for_bit():
    gradient = torch.randn(9, generator=torch.Generator().manual_seed(1))
    assert torch.equal(clip_by_norm(gradient, 100.0), gradient)


def test_infinite_max_norm_does_not_clip():
    gradient = torch.tensor([3.0, -4.0])
    assert torch.equal(clip_by_norm(gradient, math.inf), gradient)


def test_zero_gradient_stays_zero():
    assert torch.equal(clip_by_norm(torch.zeros(3, 2), 1.0), torch.zeros(3, 2))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_non_finite_gradient_stays_non_finite(bad):
    assert not clip_by_norm(torch.tensor([1.0, bad]), 1.0).isfinite().all()
