"""The log posterior that methods see, log p(D, theta), with its gradient, as fast functions of numpy vectors."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bdl.models.joint import log_joint, whole
from bdl.models.likelihoods import Bernoulli, Gaussian
from bdl.models.networks import Mlp
from bdl.models.problem import Hyper, Problem
from bdl.references.mcmc import optional

Vector = NDArray[np.float64]
Slope = Callable[[Vector], tuple[float, Vector]]
"""Parameters (D,) to log p(D, theta), nats, up to a constant, and its gradient, (D,)."""


def slope(problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> Slope:
    """Return the log posterior of training data as the model sees them, float64, (n, d) and (n,).

    Networks of one hidden layer have a compiled one, many times as fast as automatic differentiation, which serves
    every other model.
    """
    model, likelihood = problem.model, problem.likelihood
    if (
        isinstance(model, Mlp)
        and len(model.hidden) == 1
        and model.activation in ("relu", "tanh")
        and problem.d_out == 1
        and isinstance(likelihood, Gaussian | Bernoulli)
    ):
        noise = float(hyper["noise_precision"]) if isinstance(likelihood, Gaussian) else 0.0
        prior = problem.prior_precision(hyper).expand(problem.dim).numpy().copy()
        given = np.ascontiguousarray(x.numpy().T), y.numpy(), prior, noise, model.activation == "tanh"
        loops = _loops()
        return lambda theta: loops(theta, *given)
    batch = whole(x, y)

    def by_torch(theta: Vector) -> tuple[float, Vector]:
        at = torch.tensor(theta, requires_grad=True)
        value = log_joint(at.unsqueeze(0), problem, batch, hyper).squeeze(0)
        return float(value.detach()), torch.autograd.grad(value, at)[0].numpy()

    return by_torch


@lru_cache(maxsize=1)
def _loops() -> Any:
    """Compile the log posterior of a network of one hidden layer: matrix products, and loops over a unit's rows."""

    @optional("numba").njit(fastmath={"contract", "reassoc"})  # type: ignore[untyped-decorator]
    def loops(theta: Vector, x: Vector, y: Vector, prior: Vector, noise: float, tanh: bool) -> tuple[float, Vector]:
        d, n = x.shape
        h = (len(theta) - 1) // (d + 2)
        biases, tops = h * d, h * d + h
        units, f, error = np.dot(theta[:biases].reshape(h, d), x), np.full(n, theta[-1]), np.empty(n)
        for j in range(h):
            unit, bias, top = units[j], theta[biases + j], theta[tops + j]
            for i in range(n):
                unit[i] = np.tanh(unit[i] + bias) if tanh else max(unit[i] + bias, 0.0)
                f[i] += top * unit[i]
        value = 0.0
        for i in range(n):
            if noise > 0:
                error[i] = noise * (y[i] - f[i])
                value -= 0.5 * (y[i] - f[i]) * error[i]
            else:
                small = np.exp(-abs(f[i]))
                value += y[i] * f[i] - max(f[i], 0.0) - np.log1p(small)
                error[i] = y[i] - (1.0 if f[i] > 0 else small) / (1.0 + small)
        gradient = np.empty_like(theta)
        gradient[-1] = error.sum()
        for j in range(h):
            unit, top = units[j], theta[tops + j]
            by_top, by_bias = 0.0, 0.0
            for i in range(n):
                by_top += unit[i] * error[i]
                back = error[i] * top
                unit[i] = back * (1.0 - unit[i] * unit[i]) if tanh else (back if unit[i] > 0 else 0.0)
                by_bias += unit[i]
            gradient[tops + j], gradient[biases + j] = by_top, by_bias
        gradient[:biases] = np.dot(units, x.T).ravel()
        for i in range(len(theta)):
            gradient[i] -= prior[i] * theta[i]
            value -= 0.5 * prior[i] * theta[i] * theta[i]
        return value, gradient

    return loops
