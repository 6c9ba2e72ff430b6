"""VIFA on Bayesian linear regression finds the best factor-analysis approximation of the exact posterior."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from bdl.methods.vifa import Vifa
from bdl.posteriors import FactorAnalysis, kl_divergence
from bdl.training.traced import Repeated

from .targets import linear_gaussian, normals, repeat, repeated, sigma_points

# Its best approximation has every psi well above 0: for other data gamma runs to minus infinity for ever.
TARGET = linear_gaussian(seed=4, d_in=3)
DIM = TARGET.problem.dim


def train(rank: int, n_steps: int = 500) -> FactorAnalysis:
    """Full batches and sigma points: the gradients are exact, so that SGD has a limit and no noise floor.

    The curvature in c is S^-1, up to 24 here; that in gamma ends below 1/2, hence its longer steps.
    """
    noise = sigma_points(rank, DIM)
    method = Vifa(
        latent_dim=rank,
        gradients_per_update=len(noise["h"]),
        max_grad_norm=1e9,
        optimizer="sgd",
        lr_factors=(1.0, 1.5, 10.0),
    )
    batches = repeat(TARGET.data, method.batches_per_step)
    hyper = TARGET.hyper | {"learning_rate": torch.tensor(0.05, dtype=torch.float64)}
    generator = torch.Generator().manual_seed(rank)
    state = method.init(TARGET.problem, normals(method.init_noise(TARGET.problem), generator))
    step = repeated(method, TARGET.problem)
    for _ in range(n_steps):
        state = step(state, batches, hyper, noise)
    return method.posterior(state)


def unpack(flat: np.ndarray | torch.Tensor, rank: int) -> FactorAnalysis:
    c, F, gamma = torch.as_tensor(flat).split([DIM, DIM * rank, DIM])
    return FactorAnalysis(c, F.view(DIM, rank), gamma.exp())


def best(rank: int) -> FactorAnalysis:
    """The lowest KL(q || posterior) that L-BFGS reaches from five random starts."""

    def cost(flat: np.ndarray) -> tuple[float, np.ndarray]:
        gradient, value = torch.func.grad_and_value(lambda t: kl_divergence(unpack(t, rank), TARGET.posterior))(
            torch.as_tensor(flat)
        )
        return value.item(), gradient.numpy()

    rng = np.random.default_rng(0)
    options = {"ftol": 1e-16, "gtol": 1e-10, "maxiter": 5000, "maxfun": 10_000}
    starts = rng.standard_normal((5, DIM * (rank + 2)))
    fits = [minimize(cost, x, jac=True, method="L-BFGS-B", options=options) for x in starts]
    return unpack(min(fits, key=lambda fit: fit.fun).x, rank)


@pytest.mark.parametrize("rank", [DIM - 1, DIM], ids=["K=D-1", "K=D"])
def test_enough_factors_give_the_exact_posterior(rank):
    """S = F F^T + psi with K >= D - 1 can be any covariance: take psi = the smallest eigenvalue.

    Convergence is linear. After 500 steps the covariance is 1e-10 away, against eigenvalues from 0.04 to 0.2.
    """
    q = train(rank)
    torch.testing.assert_close(q.loc, TARGET.posterior.loc, rtol=0, atol=1e-12)
    torch.testing.assert_close(q.covariance(), TARGET.posterior.covariance(), rtol=0, atol=1e-8)
    assert kl_divergence(q, TARGET.posterior) < 1e-12


def test_one_factor_gives_the_optimum_of_kl():
    """Eight covariance parameters for ten entries: a true approximation, 0.056 nats from the posterior.

    L-BFGS stops where KL is flat to rounding, about 1e-9 from the optimum in the covariance.
    """
    q, optimum = train(1), best(1)
    lowest = kl_divergence(optimum, TARGET.posterior)
    assert lowest > 0.05
    assert abs(kl_divergence(q, TARGET.posterior) - lowest) < 1e-12
    torch.testing.assert_close(q.loc, TARGET.posterior.loc, rtol=0, atol=1e-12)
    torch.testing.assert_close(q.covariance(), optimum.covariance(), rtol=0, atol=1e-8)


def test_random_noise_leaves_the_mean_unbiased():
    """The expected gradient of c is linear in c alone, so the iterates of SGD average to the exact mean.

    Sixty-four independent trials give the standard error. The start is forgotten by 0.95^200 = 4e-5.
    """
    n_trials, generator = 64, torch.Generator().manual_seed(0)
    method = Vifa(latent_dim=2, gradients_per_update=2, max_grad_norm=1e9, optimizer="sgd")
    batches = repeat(TARGET.data, 2)
    hyper = TARGET.hyper | {"learning_rate": torch.tensor(0.01, dtype=torch.float64)}

    def noise(shapes):
        return normals({name: (n_trials, *shape) for name, shape in shapes.items()}, generator)

    state = torch.func.vmap(lambda one: method.init(TARGET.problem, one))(noise(method.init_noise(TARGET.problem)))
    step = Repeated(torch.func.vmap(lambda s, e: method.step(s, batches, hyper, e, TARGET.problem)))
    path = []
    for _ in range(500):
        state = step(state, noise(method.step_noise(TARGET.problem)))
        path.append(state.params["c"])
    means = torch.stack(path[200:]).mean(0)
    error = means.mean(0) - TARGET.posterior.loc
    standard_error = means.std(0) / n_trials**0.5
    assert (standard_error < 0.01).all()
    assert (error.abs() < 4 * standard_error).all()
