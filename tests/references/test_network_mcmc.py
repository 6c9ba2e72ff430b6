"""Posteriors of networks as functions: known answers, and samplers that a rule must catch."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from bdl.errors import InputError
from bdl.methods.conjugate import Conjugate
from bdl.models.likelihoods import Gaussian
from bdl.models.networks import Linear, Mlp
from bdl.models.problem import Problem
from bdl.references.base import files, obtain
from bdl.references.chains import ChainSettings, run, slope, starts
from bdl.references.function_certificate import certify_functions, functions
from bdl.references.nuts import NetworkMcmc

for package in ("nutpie", "numba", "arviz_stats"):
    pytest.importorskip(package)

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(15, 1, dtype=torch.float64, generator=GENERATOR)
Y = torch.tanh(2 * X[:, 0]) + 0.3 * torch.randn(15, dtype=torch.float64, generator=GENERATOR)
AT = torch.linspace(-2, 2, 7, dtype=torch.float64).unsqueeze(1)
TARGETS = torch.tanh(2 * AT[:, 0])
HYPER = {
    name: torch.tensor(value, dtype=torch.float64)
    for name, value in {"prior_precision": 1.0, "noise_precision": 10.0}.items()
}
SETTINGS = ChainSettings(draws=600, tune=300, chains=4)


def sampled(problem: Problem, settings: ChainSettings = SETTINGS, x=X, y=Y, hyper=HYPER):
    """Sample as the reference does; chains, and their certificate at `AT`."""
    density = slope(problem, x, y, hyper)
    chains = run(density, starts(problem, hyper, density, settings), settings)
    return chains, certify_functions(problem, chains, AT, TARGETS, hyper)


def compare(problem: Problem, mean: np.ndarray, sd: np.ndarray) -> None:
    """Compare moments of the function at `AT` with the true ones: within five of the certificate's standard errors.

    Steps are small: with the default's one of eight seeds has a chain that diverges and stays where it is.
    """
    chains, certificate = sampled(problem, replace(SETTINGS, draws=3000, target_accept=0.98))
    assert certificate.failures() == []
    f = functions(problem, chains.theta, AT)[..., 0]
    errors = np.array(certificate.mean_error[: len(AT)]), np.array(certificate.sd_error[: len(AT)])
    assert max(errors[0].max(), errors[1].max()) < 0.1
    np.testing.assert_array_less(np.abs(f.mean((0, 1)) - mean), 5 * errors[0] * sd)
    np.testing.assert_array_less(np.abs(f.std((0, 1)) - sd), 5 * errors[1] * sd)


@pytest.mark.slow  # 12,000 draws of a chain with small steps
def test_a_linear_model_has_its_conjugate_posterior():
    problem = Problem(Linear(), Gaussian(), 1)
    exact = Conjugate().fit(problem, X, Y, HYPER)
    design = torch.cat([AT, torch.ones_like(AT)], 1)
    compare(
        problem, (design @ exact.mean()).numpy(), (design @ exact.covariance() @ design.T).diagonal().sqrt().numpy()
    )


def test_a_network_of_one_unit_has_the_moments_of_quadrature():
    """f = v tanh(w x + b) + c: v and c are Gaussian given w and b, over which a grid sums."""
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
    compare(Problem(Mlp((1,), "tanh"), Gaussian(), 1), expected, np.sqrt(weight @ (variances + means**2) - expected**2))


def broken(certificate) -> set[str]:
    return {failure.rule.statistic for failure in certificate.failures()}


def test_steps_that_are_too_large_break_a_rule():
    """Steps that three of ten proposals survive, on a narrow posterior: most trajectories diverge."""
    hyper = HYPER | {"noise_precision": torch.tensor(1000.0, dtype=torch.float64)}
    settings = replace(SETTINGS, target_accept=0.3, draws=100)
    _, certificate = sampled(Problem(Mlp((8,)), Gaussian(), 1), settings, hyper=hyper)
    assert {"divergences", "r_hat", "bulk_ess"} <= broken(certificate)
    assert max(certificate.divergences) > 0.3


def test_chains_that_stay_in_one_mode_break_a_rule():
    """A unit bends at the left point or at the right one, and never goes from the one to the other."""
    x = torch.tensor([[-1.0], [0.0], [1.0]], dtype=torch.float64)
    y = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
    hyper = HYPER | {"noise_precision": torch.tensor(400.0, dtype=torch.float64)}
    problem = Problem(Mlp((1,)), Gaussian(), 1)
    density = slope(problem, x, y, hyper)
    left, right = np.array([-1.0, 0.1, 1.0, 0.1]), np.array([1.0, 0.1, 1.0, 0.1])
    begin = [("mode", left), ("mode", left), ("prior", right), ("prior", right)]
    certificate = certify_functions(problem, run(density, begin, SETTINGS), AT, TARGETS, hyper)
    assert {"r_hat", "agreement"} <= broken(certificate)


def test_a_chain_that_never_moves_is_not_judged():
    problem = Problem(Linear(), Gaussian(), 1)
    chains, _ = sampled(problem, replace(SETTINGS, draws=100, tune=100))
    chains.theta[1] = chains.theta[1, :1]
    with pytest.raises(InputError, match="chain 1 never moves"):
        certify_functions(problem, chains, AT, TARGETS, HYPER)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path))
    return tmp_path


def test_what_breaks_a_rule_is_kept_and_named_but_no_truth(folder):
    problem, reference = Problem(Mlp((8,)), Gaussian(), 1), NetworkMcmc(draws=100, tune=20, chains=4, max_depth=2)
    with pytest.raises(
        InputError, match=r"^reference refused: rule 1 \(r_hat < 1.01\) fails at input .*--uncertified$"
    ):
        reference.at(AT, TARGETS).fit(problem, X, Y, HYPER)
    recipe = reference.at(AT, TARGETS).recipe(problem, X, Y, HYPER)
    info = json.loads(files(recipe)[1].read_text())
    assert info["rules"][0] == "1. r_hat < 1.01, every input"
    assert "NOT CERTIFIED, breaks rule 1" in obtain(recipe).certificate.summary()
    again = replace(reference, uncertified=True).at(AT, TARGETS)
    assert again.recipe(problem, X, Y, HYPER).key == recipe.key
    truth = again.fit(problem, X, Y, HYPER)
    assert truth.chains.shape == (4, 100, problem.dim)
    assert not len(truth.mean)


def test_the_key_covers_data_rows_model_and_settings():
    problem = Problem(Mlp((2,)), Gaussian(), 1)

    def key(problem=problem, x=X, at=AT, hyper=HYPER, **settings) -> str:
        return NetworkMcmc(**settings).at(at, TARGETS).recipe(problem, x, Y, hyper).key

    others = [
        key(Problem(Mlp((2,), "tanh"), Gaussian(), 1)),
        key(x=X + 1),
        key(at=AT + 1),
        key(hyper=HYPER | {"noise_precision": torch.tensor(1.0)}),
        key(seed=2),
    ]
    assert len({key(), *others}) == 6
    assert key() == key()


@pytest.mark.parametrize(("changes", "message"), [({"chains": 5}, "even number"), ({"draws": 50}, "100 draws")])
def test_settings_that_cannot_be_judged_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        NetworkMcmc(**changes).check(Problem(Mlp(), Gaussian(), 1))
