"""VIFA on Bayesian linear regression finds the best factor-analysis approximation of the exact posterior."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from bdl.methods.vifa import Vifa
from bdl.posteriors import FactorAnalysis, kl_divergence

from .targets import linear_gaussian, normals, repeat, sigma_points

TARGET = linear_gaussian(d_in=3)
DIM = TARGET.problem.dim


def train(rank: int, n_steps: int, rate: float) -> FactorAnalysis:
    """Full batches and sigma points: the gradients are exact, so that SGD has a limit and no noise floor."""
    noise = sigma_points(rank, DIM)
    method = Vifa(rank, gradients_per_update=len(noise["h"]), max_grad_norm=1e9, optimizer="sgd")
    batches = repeat(TARGET.data, method.batches_per_step)
    hyper = TARGET.hyper | {"learning_rate": torch.tensor(rate, dtype=torch.float64)}
    generator = torch.Generator().manual_seed(rank)
    state = method.init(TARGET.problem, normals(method.init_noise(TARGET.problem), generator))
    for _ in range(n_steps):
        state = method.step(state, batches, hyper, noise, TARGET.problem)
    return method.posterior(state)


def unpack(flat: np.ndarray | torch.Tensor, rank: int) -> FactorAnalysis:
    c, F, gamma = torch.as_tensor(flat).split([DIM, DIM * rank, DIM])
    return FactorAnalysis(c, F.view(DIM, rank), gamma.exp())


def best(rank: int) -> FactorAnalysis:
    """The lowest KL(q || posterior) that L-BFGS reaches from ten random starts."""

    def cost(flat: np.ndarray) -> tuple[float, np.ndarray]:
        gradient, value = torch.func.grad_and_value(lambda t: kl_divergence(unpack(t, rank), TARGET.posterior))(
            torch.as_tensor(flat)
        )
        return value.item(), gradient.numpy()

    rng = np.random.default_rng(0)
    options = {"ftol": 1e-16, "gtol": 1e-10, "maxiter": 5000, "maxfun": 10_000}
    starts = rng.standard_normal((10, DIM * (rank + 2)))
    fits = [minimize(cost, x, jac=True, method="L-BFGS-B", options=options) for x in starts]
    return unpack(min(fits, key=lambda fit: fit.fun).x, rank)
