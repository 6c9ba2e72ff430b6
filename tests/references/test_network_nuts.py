"""Networks with unknown precisions by NUTS."""

import math

import numpy as np
import pytest
import torch

from bdl.errors import InputError
from bdl.execution.details import kept
from bdl.methods.guest import Train
from bdl.models.likelihoods import Gaussian
from bdl.models.networks import Linear, Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem
from bdl.posteriors.predictive import ask
from bdl.references.chains import ChainSettings, run, slope_with_precisions
from bdl.references.network_nuts import LAWS, NetworkNuts, SampledNetworks

pytest.importorskip("nutpie")

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 2))
Y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=40)
NETWORK = Problem(Mlp((3,)), Gaussian(), 2)


@pytest.mark.slow  # compiles
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_compiled_density_is_that_of_automatic_differentiation(activation):
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    shapes = (3,), (3, 2)  # the second has no loops
    for problem in (Problem(Mlp(hidden, activation), Gaussian(), 2) for hidden in shapes):
        given = slope_with_precisions(problem, x, y, LAWS)
        phi = rng.normal(size=problem.dim + 2)
        value, gradient = given(phi)

        def exact(at: torch.Tensor, problem: Problem = problem) -> torch.Tensor:
            theta, alpha, beta = at[: problem.dim], at[problem.dim].exp(), at[problem.dim + 1].exp()
            f = problem.model(theta, x, 1).squeeze(-1)
            targets = torch.distributions.Normal(f, beta.rsqrt()).log_prob(y).sum()
            weights = torch.distributions.Normal(0.0, alpha.rsqrt()).log_prob(theta).sum()
            centres, widths = torch.tensor(list(LAWS.values()), dtype=torch.float64).T
            return targets + weights + torch.distributions.Normal(centres, widths).log_prob(at[problem.dim :]).sum()

        at = torch.tensor(phi, requires_grad=True)
        np.testing.assert_allclose(gradient, torch.autograd.grad(exact(at), at)[0].numpy(), rtol=1e-9, atol=1e-9)
        other = rng.normal(size=problem.dim + 2)
        difference = float((exact(torch.tensor(phi)) - exact(torch.tensor(other))).detach())
        assert value - given(other)[0] == pytest.approx(difference, rel=1e-9)


@pytest.mark.parametrize("log", [400.0, -400.0, 1e5])
def test_where_a_precision_overflows_the_density_is_zero(log):
    given = slope_with_precisions(NETWORK, torch.from_numpy(X), torch.from_numpy(Y), LAWS)
    phi = np.zeros(NETWORK.dim + 2)
    phi[-1] = log
    value, gradient = given(phi)
    assert value == -np.inf
    assert not gradient.any()


def test_a_trajectory_that_comes_to_where_the_density_is_zero_diverges():
    def slope(at):
        inside = np.abs(at).max() < 1.5
        return (-0.5 * at @ at, -at) if inside else (-np.inf, np.zeros_like(at))

    settings = ChainSettings(draws=200, tune=200, chains=4)
    found = run(slope, [("mode", np.full(2, 0.3))] * 2 + [("prior", np.full(2, 0.5))] * 2, settings)
    assert np.abs(found.theta).max() < 1.5
    assert found.diverging.any()


def test_predictions_are_those_of_each_network_with_its_noise():
    theta, precision = torch.randn(5, NETWORK.dim), torch.rand(5).double() + 0.5
    fit = SampledNetworks(theta, precision, torch.tensor([3]), torch.tensor(0), torch.zeros(9))
    x = torch.from_numpy(X)
    answer = ask(fit, x, None, 1, 0)
    for s in range(5):
        np.testing.assert_allclose(answer.mean[s], NETWORK.model(theta[s].double(), x, 1).squeeze(-1))
        np.testing.assert_allclose(answer.variance[s], torch.full((40,), 1 / precision[s]))


@pytest.mark.parametrize(
    ("r_hat", "text"), [(1.001, "certified"), (1.2, "breaks rules 1"), (float("nan"), "breaks rules 1")]
)
def test_rows_say_what_the_certificate_says(r_hat, text):
    worst = torch.tensor([r_hat, 500, 500, 0.05, 0.05, 0.1, 0, 0.5, 2], dtype=torch.float64)
    fit = SampledNetworks(torch.zeros(1, NETWORK.dim), torch.ones(1), torch.tensor([3]), torch.tensor(0), worst)
    assert kept(fit) == {"kept": "a predictive", "certificate": text}


@pytest.mark.slow  # compiles the density and the sampler
def test_one_unit_without_slope_agrees_with_quadrature():
    """Targets about a constant: with inputs of 0 the network is b + v max(a, 0), and log beta has a known posterior."""
    x, y = np.zeros((60, 1)), 0.5 * rng.normal(size=60)
    problem = Problem(Mlp((1,), "tanh"), Gaussian(), 1)
    fit = NetworkNuts(draws=1500, tune=500, kept=1500).fit(Train(x, y, problem), {}, seed=3)
    assert max(fit.worst[0], 1.01) == 1.01  # R-hat; a weight that the data say nothing of may diverge
    logs = fit.noise_precision.log().numpy()
    mean, sd = posterior_of_log_noise(y)
    assert logs.mean() == pytest.approx(mean, abs=5 * sd / math.sqrt(400))  # an effective sample size of 400 or more
    assert logs.std() == pytest.approx(sd, rel=0.15)


def posterior_of_log_noise(y: np.ndarray) -> tuple[float, float]:
    """Sum over log beta, log alpha and the output c, whose prior is that of b + v tanh(a) by Monte Carlo."""
    a, v, b = np.random.default_rng(1).normal(size=(3, 4000))
    logs, alphas = np.linspace(-1, 4, 201), np.linspace(math.log(3) - 3, math.log(3) + 3, 25)
    (m_alpha, s_alpha), (m_beta, s_beta) = LAWS.values()
    total = np.zeros(len(logs))
    for log_alpha in alphas:
        scale = math.exp(-log_alpha / 2)
        c = scale * (b + v * np.tanh(scale * a))
        errors = ((y[:, None] - c) ** 2).sum(0)
        fits = np.exp(len(y) / 2 * logs[:, None] - np.exp(logs)[:, None] / 2 * errors).mean(1)
        total += fits * math.exp(-0.5 * ((log_alpha - m_alpha) / s_alpha) ** 2)
    weights = total * np.exp(-0.5 * ((logs - m_beta) / s_beta) ** 2)
    weights /= weights.sum()
    mean = float(weights @ logs)
    return mean, math.sqrt(float(weights @ (logs - mean) ** 2))


@pytest.mark.slow  # compiles the density and the sampler
def test_too_short_chains_say_which_rules_they_break():
    fit = NetworkNuts(draws=100, tune=30, kept=10).fit(Train(X, Y, NETWORK), {}, seed=1)
    assert fit.theta.shape == (40, NETWORK.dim)
    assert fit.certificate.startswith("breaks rules ")


def test_what_it_cannot_sample_is_told():
    with pytest.raises(InputError, match="use the model 'mlp'"):
        NetworkNuts().check(Problem(Linear(), Gaussian(), 2))
    with pytest.raises(InputError, match="without bias_precision"):
        NetworkNuts().check(Problem(Mlp((3,)), Gaussian(), 2, prior=GaussianPrior(bias_precision=1.0)))
    with pytest.raises(InputError, match="even number of chains"):
        NetworkNuts(chains=3).check(NETWORK)
