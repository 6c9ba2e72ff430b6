"""Online EM as published: its statistics and its maximisation step."""

import torch

from bdl.methods.online_em import OnlineEm, maximise


def normal(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_statistics_are_sums_over_the_observations():
    """Algorithm 2 as corrected, with dense D x D inverses, sums kept apart, and psi as printed."""
    dim, rank, warmup = 7, 3, 4
    estimator, x = OnlineEm(rank, warmup), 1 + normal(30, dim, seed=0)
    state = estimator.init({"F": normal(dim, rank, seed=1)})
    factors, diag = state.loadings.T, state.diag
    cross, second, square = torch.zeros(dim, rank), torch.zeros(rank, rank), torch.zeros(dim)
    for t, row in enumerate(x, start=1):
        d = row - x[:t].mean(0)
        precision = torch.linalg.inv(factors @ factors.T + diag.diag())
        sigma = torch.eye(rank) - factors.T @ precision @ factors
        m = factors.T @ precision @ d
        cross, second, square = cross + torch.outer(d, m), second + torch.outer(m, m), square + d.square()
        if t > warmup:
            a, h = cross / t, sigma + second / t
            factors = a @ torch.linalg.inv(h)
            diag = square / t + ((factors @ h) * factors - 2 * factors * a).sum(1)
        state = estimator.update(state, row)
        torch.testing.assert_close(state.statistics.cross.T, cross / t, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(state.statistics.latent, second / t, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(state.statistics.square, square / t, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(state.loadings.T, factors, rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(state.diag, diag, rtol=1e-8, atol=1e-9)


def test_maximise_is_the_maximum_of_the_complete_data_likelihood():
    """Its gradient in F and log psi, by autograd, is zero there."""
    h, noise = normal(50, 3, seed=2), normal(50, 7, seed=3)
    d = h @ normal(3, 7, seed=4) + noise
    cross, second, square = h.T @ d / 50, h.T @ h / 50, d.square().mean(0)
    loadings, diag = maximise(cross, square, torch.linalg.inv(second))
    loadings, log_diag = loadings.requires_grad_(), diag.log().requires_grad_()
    residuals = d - h @ loadings
    value = -0.5 * (residuals.square() / log_diag.exp() + log_diag).sum(1).mean()
    for gradient in torch.autograd.grad(value, (loadings, log_diag)):
        torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-13)
