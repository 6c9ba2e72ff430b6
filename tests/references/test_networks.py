"""Posteriors of networks as functions: their densities, known answers, and samplers that a rule must catch."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from bdl.errors import InputError
from bdl.execution.fit_records import posterior_details
from bdl.methods.guest import Train
from bdl.metrics.predictions import as_tensors
from bdl.models.likelihoods import Bernoulli, GaussianLikelihood
from bdl.models.networks import LinearModel, Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem, full_batch, log_joint
from bdl.posteriors.predictive import query_predictive
from bdl.posteriors.tensors import from_tensors, to_tensors
from bdl.references import chains
from bdl.references.base import load_or_sample, locate_files
from bdl.references.chains import (
    ChainSettings,
    build_log_posterior,
    find_starts,
    sample_chains,
)
from bdl.references.compiled_posterior import build_log_posterior_with_precisions
from bdl.references.function_certificate import (
    certify_functions,
    compare_groups,
    evaluate_functions,
)
from bdl.references.mcmc import ChainDraws, Origin
from bdl.references.network_nuts import PRECISION_LAWS, NetworkNuts, SampledNetworks
from bdl.references.nuts import NetworkMcmc

for package in ("nutpie", "numba", "arviz_stats"):
    pytest.importorskip(package)

RNG = np.random.default_rng(0)
X = torch.from_numpy(RNG.normal(size=(15, 1)))
Y = torch.tanh(2 * X[:, 0]) + 0.3 * torch.from_numpy(RNG.normal(size=15))
AT = torch.linspace(-2, 2, 7, dtype=torch.float64).unsqueeze(1)
TARGETS = torch.tanh(2 * AT[:, 0])
HYPER = as_tensors({"prior_precision": 1.0, "noise_precision": 10.0})
NETWORK = Problem(Mlp((3,)), GaussianLikelihood(), 1)
MODELS = [Mlp((4,), "relu"), Mlp((4,), "tanh"), Mlp((4, 3), "relu"), LinearModel()]
"""The first two have compiled densities."""


@pytest.mark.parametrize("likelihood", [GaussianLikelihood(), Bernoulli()])
@pytest.mark.parametrize("model", MODELS)
def test_value_and_gradient_are_those_of_the_problem(model, likelihood):
    """Up to a constant, at points of any size; biases have a prior of their own."""
    problem, x = (
        Problem(model, likelihood, 3, prior=GaussianPrior(0.1)),
        torch.from_numpy(RNG.normal(size=(12, 3))),
    )
    given = x, (x[:, 0] > 0).double()
    slope = chains.build_log_posterior(problem, *given, HYPER)
    points = torch.from_numpy(RNG.normal(size=(3, problem.dim))) * torch.tensor(
        [[0.1], [1.0], [9.0]]
    )

    def exact(one):
        return log_joint(one[None], problem, full_batch(*given), HYPER)[0]

    values, gradients = zip(*(slope(point.numpy()) for point in points), strict=True)
    np.testing.assert_allclose(
        np.diff(values), np.diff([exact(point) for point in points]), rtol=1e-10
    )
    expected = torch.stack([torch.func.grad(exact)(point) for point in points])
    np.testing.assert_allclose(gradients, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("model", MODELS[:2])
def test_density_of_precisions_is_that_of_automatic_differentiation(model):
    problem = Problem(model, GaussianLikelihood(), 1)
    given = build_log_posterior_with_precisions(problem, X, Y, *PRECISION_LAWS.values())
    phi, other = RNG.normal(size=(2, problem.dim + 2))

    def exact(at: torch.Tensor) -> torch.Tensor:
        theta, alpha, beta = at[: problem.dim], at[problem.dim].exp(), at[problem.dim + 1].exp()
        f = problem.model(theta, X, 1).squeeze(-1)
        targets = torch.distributions.Normal(f, beta.rsqrt()).log_prob(Y).sum()
        weights = torch.distributions.Normal(0.0, alpha.rsqrt()).log_prob(theta).sum()
        centres, widths = torch.tensor(list(PRECISION_LAWS.values()), dtype=torch.float64).T
        return (
            targets
            + weights
            + torch.distributions.Normal(centres, widths).log_prob(at[problem.dim :]).sum()
        )

    value, gradient = given(phi)
    np.testing.assert_allclose(
        gradient, torch.func.grad(exact)(torch.tensor(phi)), rtol=1e-9, atol=1e-9
    )
    difference = float(exact(torch.tensor(phi)) - exact(torch.tensor(other)))
    assert value - given(other)[0] == pytest.approx(difference, rel=1e-9)


@pytest.mark.parametrize("log", [400.0, -400.0, 1e5])
def test_where_a_precision_overflows_the_density_is_zero(log):
    phi = np.zeros(NETWORK.dim + 2)
    phi[-1] = log
    value, gradient = build_log_posterior_with_precisions(NETWORK, X, Y, *PRECISION_LAWS.values())(
        phi
    )
    assert value == -np.inf
    assert not gradient.any()


def test_loops_are_taken_where_they_can_be(monkeypatch):
    monkeypatch.setattr(chains, "log_joint", None)
    assert np.isfinite(build_log_posterior(NETWORK, X, Y, HYPER)(np.ones(NETWORK.dim))[0])


@pytest.mark.parametrize("with_precisions", [False, True])
def test_chains_without_python_have_the_bits_of_those_that_call_it(with_precisions):
    """Trajectories that diverge included: the starts are far out, and the warm-up is short."""
    if with_precisions:
        density = build_log_posterior_with_precisions(NETWORK, X, Y, *PRECISION_LAWS.values())
    else:
        density = build_log_posterior(NETWORK, X, Y, HYPER)
    starts = [*RNG.normal(scale=5, size=(4, density.dim))]
    settings = ChainSettings(draws=60, tune=20, chains=4)
    found = sample_chains(density, starts, settings)
    expected = sample_chains(lambda point: density(point), starts, settings)
    assert expected.diverging.any()
    for name in ("theta", "diverging", "energy", "steps"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_a_trajectory_that_comes_to_where_the_density_is_zero_diverges():
    def density(at):
        inside = np.abs(at).max() < 1.5
        return (-0.5 * at @ at, -at) if inside else (-np.inf, np.zeros_like(at))

    found = sample_chains(
        density, [np.full(2, 0.3)] * 4, ChainSettings(draws=200, tune=200, chains=4)
    )
    assert np.abs(found.theta).max() < 1.5
    assert found.diverging.any()


def sampled(problem: Problem, hyper=HYPER, tune=300, **settings) -> ChainDraws:
    given, density = (
        ChainSettings(tune=tune, chains=4, **settings),
        build_log_posterior(problem, X, Y, hyper),
    )
    return sample_chains(density, find_starts(problem, hyper, density, given), given)


@pytest.mark.slow  # 12,000 draws of a chain with small steps
def test_a_network_of_one_unit_has_the_moments_of_quadrature():
    """f = v tanh(w x + b) + c: v and c are Gaussian given w and b, over which a grid sums.

    Steps are small: with the default's one of eight seeds has a chain that diverges and stays
    where it is.
    """
    axis = np.linspace(-6, 6, 241)
    w, b = (part.ravel() for part in np.meshgrid(axis, axis, indexing="ij"))

    def design(x: torch.Tensor) -> np.ndarray:
        units = np.tanh(w[:, None] * x[:, 0].numpy() + b[:, None])
        return np.stack([units, np.ones_like(units)], -1)  # (grid, n, 2)

    noise, rows, at = 10.0, design(X), design(AT)
    precision = noise * rows.transpose(0, 2, 1) @ rows + np.eye(2)
    covariance = np.linalg.inv(precision)
    mean = (covariance @ (noise * rows.transpose(0, 2, 1) @ Y.numpy())[..., None])[..., 0]
    fit = np.einsum("gi,gij,gj->g", mean, precision, mean)
    log_weight = -0.5 * (w**2 + b**2) - 0.5 * np.linalg.slogdet(precision)[1] + 0.5 * fit
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    means = np.einsum("gni,gi->gn", at, mean)
    variances = np.einsum("gni,gij,gnj->gn", at, covariance, at)
    expected = weight @ means
    sd = np.sqrt(weight @ (variances + means**2) - expected**2)

    problem = Problem(Mlp((1,), "tanh"), GaussianLikelihood(), 1)
    chains = sampled(problem, draws=3000, target_accept=0.98)
    certificate = certify_functions(problem, chains, AT, TARGETS, HYPER)
    assert certificate.broken_rules() == []
    f = evaluate_functions(problem, chains.theta, AT)[..., 0]
    errors = np.array(certificate.mean_error[: len(AT)]), np.array(certificate.sd_error[: len(AT)])
    np.testing.assert_array_less(np.abs(f.mean((0, 1)) - expected), 5 * errors[0] * sd)
    np.testing.assert_array_less(np.abs(f.std((0, 1)) - sd), 5 * errors[1] * sd)


BENT = Problem(Mlp((1,)), GaussianLikelihood(), 1)
LEFT, RIGHT = np.array([-1.0, 0.1, 1.0, 0.1]), np.array([1.0, 0.1, 1.0, 0.1])
"""A unit that bends at the left point or at the right one."""


def drawn(*centres: np.ndarray) -> ChainDraws:
    """Chains of independent draws about centres, that did nothing wrong."""
    rng, shape = np.random.default_rng(1), (4, 500)
    theta = np.stack(centres)[:, None] + 0.05 * rng.normal(size=(*shape, BENT.dim))
    none = np.zeros(shape, bool)
    return ChainDraws(
        theta, none, rng.normal(size=shape), none.astype(int), Origin("none", 1, 0, {}, 0.0)
    )


def broken(given: ChainDraws, problem: Problem = BENT, hyper=HYPER) -> set[str]:
    return {
        failure.rule.statistic
        for failure in certify_functions(problem, given, AT, TARGETS, hyper).broken_rules()
    }


def test_rules_are_broken_by_what_they_are_for():
    assert broken(drawn(RIGHT, RIGHT, RIGHT, RIGHT)) == set()
    assert broken(drawn(LEFT, LEFT, RIGHT, RIGHT)) >= {"r_hat", "bulk_ess", "agreement"}
    assert "agreement" not in broken(drawn(LEFT, RIGHT, LEFT, RIGHT)) >= {"r_hat"}
    given = drawn(RIGHT, RIGHT, RIGHT, RIGHT)
    given.diverging[1, :3] = True
    given.energy[2] = np.linspace(-1, 1, 500)
    assert broken(given) == {"divergences", "e_fmi"}


def test_steps_that_are_too_large_break_a_rule():
    """Steps that three of ten proposals survive, on a narrow posterior: most trajectories diverge."""
    problem, hyper = (
        Problem(Mlp((8,)), GaussianLikelihood(), 1),
        HYPER | {"noise_precision": torch.tensor(1000.0).double()},
    )
    given = sampled(problem, hyper, tune=100, draws=100, target_accept=0.3)
    assert broken(given, problem, hyper) >= {"divergences", "r_hat", "bulk_ess"}
    assert given.diverging.mean(1).max() > 0.3


def test_chains_that_stay_in_one_mode_break_a_rule():
    """A unit bends at the left point or at the right one, and never goes from the one to the other."""
    x, y = torch.tensor([[-1.0], [0.0], [1.0]]).double(), torch.tensor([1.0, 0.0, 1.0]).double()
    hyper = HYPER | {"noise_precision": torch.tensor(400.0).double()}
    given = sample_chains(
        build_log_posterior(BENT, x, y, hyper),
        [LEFT, LEFT, RIGHT, RIGHT],
        ChainSettings(draws=600, tune=300, chains=4),
    )
    assert broken(given, hyper=hyper) >= {"r_hat", "agreement"}


def test_groups_that_differ_in_mean_or_in_spread_alone_disagree():
    one, other = np.random.default_rng(3).normal(size=(2, 2, 500, 3))
    found = compare_groups(one, other * [1, 2, 1] + [1, 0, 0])
    assert (found > 5).tolist() == [True, True, False]


def test_a_chain_that_never_moves_is_not_judged():
    given = drawn(RIGHT, RIGHT, RIGHT, RIGHT)
    given.theta[1] = given.theta[1, :1]
    with pytest.raises(InputError, match="chain 1 never moves"):
        broken(given)


def test_what_breaks_a_rule_is_kept_and_named_but_no_truth(tmp_path, monkeypatch):
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path))
    given, reference = (
        (NETWORK, X, Y, HYPER),
        NetworkMcmc(draws=100, tune=20, chains=4, max_depth=2),
    )
    with pytest.raises(
        InputError, match=r"^reference refused: rule 1 \(r_hat < 1.01\) .*--uncertified$"
    ):
        reference.fit(*given, AT, TARGETS)
    recipe = reference.recipe(*given, AT, TARGETS)
    info = json.loads(locate_files(recipe)[1].read_text())
    assert info["rules"][0] == "1. r_hat < 1.01, every input"
    assert "NOT CERTIFIED: chains disagree: R-hat " in load_or_sample(recipe).certificate.summary()
    again = replace(reference, uncertified=True)
    assert again.recipe(*given, AT, TARGETS).key == recipe.key
    truth = again.fit(*given, AT, TARGETS)
    assert truth.chains.shape == (4, 100, NETWORK.dim)
    assert not len(truth.mean)
    assert not truth.chains_agree


def test_the_key_covers_data_rows_model_and_settings():
    def key(problem=NETWORK, x=X, at=AT, hyper=HYPER, **settings) -> str:
        return NetworkMcmc(**settings).recipe(problem, x, Y, hyper, at, TARGETS).key

    others = [
        key(Problem(Mlp((3,), "tanh"), GaussianLikelihood(), 1)),
        key(x=X + 1),
        key(at=AT + 1),
        key(hyper=HYPER | {"noise_precision": torch.tensor(1.0)}),
        key(seed=2),
    ]
    assert len({key(), key(), *others}) == 6


def test_predictions_are_those_of_each_network_with_its_noise():
    theta, precision = torch.randn(5, NETWORK.dim), torch.rand(5).double() + 0.5
    fit = SampledNetworks(theta, precision, torch.tensor([3]), torch.tensor(0), torch.zeros(9))
    answer = query_predictive(fit, X, None, 1, 0)
    for s in range(5):
        np.testing.assert_allclose(
            answer.mean[s], NETWORK.model(theta[s].double(), X, 1).squeeze(-1)
        )
        np.testing.assert_allclose(answer.variance[s], torch.full((15,), 1 / precision[s]))


@pytest.mark.parametrize(
    ("r_hat", "text"),
    [(1.001, "certified"), (1.2, "breaks rules 1"), (float("nan"), "breaks rules 1")],
)
def test_rows_say_what_the_certificate_says(r_hat, text):
    worst = torch.tensor([r_hat, 500, 500, 0.05, 0.05, 0.1, 0, 0.5, 2], dtype=torch.float64)
    fit = SampledNetworks(
        torch.zeros(1, NETWORK.dim), torch.ones(1), torch.tensor([3]), torch.tensor(0), worst
    )
    assert posterior_details(fit) == {"kept": "a predictive", "certificate": text}


@pytest.mark.slow  # compiles the density and the sampler
def test_one_unit_without_slope_agrees_with_quadrature():
    """Targets about a constant: with inputs of 0 the network is b + v max(a, 0), and log beta has a known posterior."""
    x, y = np.zeros((60, 1)), 0.5 * np.random.default_rng(2).normal(size=60)
    problem = Problem(Mlp((1,), "tanh"), GaussianLikelihood(), 1)
    fit = NetworkNuts(draws=1500, tune=500, kept=1500).fit(Train(x, y, problem), {}, seed=3)
    assert fit.worst[0] < 1.01  # R-hat; a weight that the data say nothing of may diverge
    logs = fit.noise_precision.log().numpy()
    mean, sd = posterior_of_log_noise(y)
    assert logs.mean() == pytest.approx(
        mean, abs=5 * sd / math.sqrt(400)
    )  # an effective sample size of 400 or more
    assert logs.std() == pytest.approx(sd, rel=0.15)


def posterior_of_log_noise(y: np.ndarray) -> tuple[float, float]:
    """Sum over log beta, log alpha and the output c, whose prior is that of b + v tanh(a) by Monte Carlo."""
    a, v, b = np.random.default_rng(1).normal(size=(3, 4000))
    logs, alphas = np.linspace(-1, 4, 201), np.linspace(math.log(3) - 3, math.log(3) + 3, 25)
    (m_alpha, s_alpha), (m_beta, s_beta) = PRECISION_LAWS.values()
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


def test_a_chain_is_left_out_with_all_its_draws():
    theta = torch.arange(6.0).unsqueeze(1).expand(6, NETWORK.dim)
    fit = SampledNetworks(
        theta, torch.ones(6), torch.tensor([3]), torch.tensor(0), torch.zeros(9), torch.tensor(3)
    )
    others = fit.leave_out(1)
    assert others.theta[:, 0].tolist() == [0, 1, 4, 5]
    assert (len(others.noise_precision), int(others.chain_count)) == (4, 2)


def test_networks_stored_before_chains_were_counted_are_of_one():
    """Stored fits have the fields that they were written with."""
    fit = SampledNetworks(
        torch.zeros(1, NETWORK.dim),
        torch.ones(1),
        torch.tensor([3]),
        torch.tensor(0),
        torch.zeros(9),
    )
    family, tensors = to_tensors(fit)
    del tensors["chain_count"]
    assert int(from_tensors(family, tensors).chain_count) == 1
    del tensors["theta"]
    with pytest.raises(InputError, match="has the fields"):
        from_tensors(family, tensors)


@pytest.mark.slow  # compiles the density and the sampler
def test_rounds_add_chains_until_the_score_is_certain():
    """Chains that are too short disagree, and the last round is the last."""
    train = Train(X.numpy(), Y.numpy(), NETWORK)
    short = NetworkNuts(draws=40, tune=10, kept=4, rounds=3).fit(train, {}, seed=1)
    assert int(short.chain_count) == 12
    assert len(short.theta) == 48
    first = NetworkNuts(draws=40, tune=10, kept=4).fit(train, {}, seed=1)
    # the modes of all rounds come first, then what started in the prior
    assert torch.equal(short.theta[:8], first.theta[:8])
    assert torch.equal(short.theta[24:32], first.theta[8:])


@pytest.mark.slow  # compiles the density and the sampler
def test_too_short_chains_say_which_rules_they_break():
    fit = NetworkNuts(draws=100, tune=30, kept=10).fit(
        Train(X.numpy(), Y.numpy(), NETWORK), {}, seed=1
    )
    assert fit.theta.shape == (40, NETWORK.dim)
    assert fit.certificate.startswith("breaks rules ")


@pytest.mark.parametrize(
    ("given", "problem", "reason"),
    [
        (NetworkMcmc(chains=5), NETWORK, "even number"),
        (NetworkMcmc(draws=50), NETWORK, "100 draws"),
        (NetworkNuts(chains=3), NETWORK, "even number"),
        (NetworkNuts(), Problem(LinearModel(), GaussianLikelihood(), 2), "use the model 'mlp'"),
        (
            NetworkNuts(),
            Problem(Mlp((4, 3)), GaussianLikelihood(), 2),
            "samples one hidden layer of relu or tanh",
        ),
        (
            NetworkNuts(),
            replace(NETWORK, prior=GaussianPrior(bias_precision=1.0)),
            "without bias_precision",
        ),
    ],
)
def test_what_cannot_be_sampled_is_told(given, problem, reason):
    with pytest.raises(InputError, match=reason):
        given.check(problem)
