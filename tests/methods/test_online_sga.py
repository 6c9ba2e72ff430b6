"""Online stochastic gradient ascent: its gradients, and its step."""

import torch

from bdl.methods.online_fa import latent_posterior
from bdl.methods.online_sga import OnlineSga, gradients
from bdl.posteriors import FactorAnalysis


def normal(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def autograd(factors, diag, deviation):
    """Gradients of the log-density in F and log psi."""
    factors, log_diag = factors.clone().requires_grad_(), diag.log().requires_grad_()
    density = FactorAnalysis(torch.zeros_like(deviation), factors, log_diag.exp()).log_prob(deviation)
    return torch.autograd.grad(density, (factors, log_diag))


def test_gradients_are_those_of_the_log_density():
    for seed in range(5):
        factors, diag, d = normal(7, 3, seed=seed), normal(7, seed=10 + seed).exp(), normal(7, seed=20 + seed)
        rows = factors.T.contiguous()
        to_loadings, to_log_diag = gradients(rows, diag, d[None], latent_posterior(rows, diag, d[None]))
        expected = autograd(factors, diag, d)
        torch.testing.assert_close(to_loadings.T, expected[0], rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(to_log_diag, expected[1], rtol=1e-11, atol=1e-12)


def test_step_is_plain_ascent_at_the_new_mean():
    estimator = OnlineSga(3, learning_rate=0.02, warmup=0)
    state = estimator.init({"F": normal(7, 3, seed=4)})
    x = normal(2, 7, seed=5)
    state = estimator.update(state, x[0])
    after = estimator.update(state, x[1])
    to_factors, to_log_diag = autograd(state.loadings.T, state.diag, x[1] - x.mean(0))
    torch.testing.assert_close(after.mean, x.mean(0))
    torch.testing.assert_close(after.loadings.T, state.loadings.T + 0.02 * to_factors)
    torch.testing.assert_close(after.diag, (state.diag.log() + 0.02 * to_log_diag).exp())
