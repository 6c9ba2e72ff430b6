"""Sampling of regressions: the model against its formula, the draws against exact posteriors and each other."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
import torch  # loaded before any sampling, as in a run of benchmarks
from scipy.special import expit

from bdl.errors import InputError
from bdl.plan.planning import plan
from bdl.plan.truths import recipe
from bdl.references.certificate import certify, monte_carlo_errors
from bdl.references.mcmc import TERM, Draws, Origin, Regression, Settings, build, from_tree, sample
from bdl.spec import load_benchmark

ORIGIN = Origin("none", 1, 0, {}, 0.0)
ALPHA, BETA = 1.7, 2.5


def regression(kind: str, n: int = 60, dim: int = 3, seed: int = 0) -> Regression:
    """Correlated inputs whose mean is not 0, so that centring or an intercept would be seen."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, dim)) + 0.8 * rng.standard_normal((n, 1)) + 0.5
    f = x @ rng.standard_normal(dim)
    if kind == "gaussian":
        return Regression(x, f + BETA**-0.5 * rng.standard_normal(n), np.full(dim, ALPHA), BETA)
    precisions = ALPHA * 1.01 ** np.arange(dim)
    return Regression(x, (rng.random(n) < 1 / (1 + np.exp(-f))).astype(float), precisions)


def log_joint(given: Regression, theta: np.ndarray) -> float:
    """log p(y | theta) + log p(theta), up to a constant."""
    f = given.x @ theta
    prior = -0.5 * (given.prior_precision * theta) @ theta
    if given.noise_precision is not None:
        return prior - 0.5 * given.noise_precision * ((given.y - f) ** 2).sum()
    return prior - np.logaddexp(0, (1 - 2 * given.y) * f).sum()


def log_joint_gradient(given: Regression, theta: np.ndarray) -> np.ndarray:
    f = given.x @ theta
    residual = given.y - expit(f) if given.noise_precision is None else given.noise_precision * (given.y - f)
    return given.x.T @ residual - given.prior_precision * theta


@pytest.mark.parametrize("kind", ["gaussian", "logistic"])
@pytest.mark.parametrize("dim", [1, 3, 256])
def test_the_model_is_the_stated_one(kind, dim):
    """At the last point logits reach hundreds."""
    pytest.importorskip("bambi")
    given = regression(kind, dim=dim)
    model = build(given)
    assert [variable.name for variable in model.free_RVs] == [TERM]
    shape = model.initial_point()[TERM].shape
    log_density, gradient = (compiled(mode="FAST_COMPILE") for compiled in (model.compile_logp, model.compile_dlogp))
    points = np.random.default_rng(1).standard_normal((3, dim)) * np.array([[0.1], [1.0], [200.0]])
    actual = [float(log_density({TERM: point.reshape(shape)})) for point in points]
    expected = [log_joint(given, point) for point in points]
    np.testing.assert_allclose(np.diff(actual), np.diff(expected), rtol=1e-10)
    for point in points:
        slope = log_joint_gradient(given, point)
        np.testing.assert_allclose(gradient({TERM: point.reshape(shape)}), slope, rtol=1e-9, atol=1e-9)


def assert_agree(differences: np.ndarray, errors: np.ndarray) -> None:
    """At most 9 z-scores, t with 99 degrees of freedom or more: one beyond 4.5 has a probability of 2e-4."""
    assert differences.size <= 9
    assert (errors > 0).all()
    assert abs(differences / errors).max() < 4.5


def fork() -> int:
    raise AssertionError("forked with torch loaded")


@pytest.mark.slow  # compiles the model, and draws 10,000 times
@pytest.mark.parametrize("sampler", ["nutpie", "pymc"])
def test_gaussian_posterior_is_the_conjugate_one_and_nothing_forks(sampler, monkeypatch):
    for package in ("bambi", sampler):
        pytest.importorskip(package)
    monkeypatch.setattr(os, "fork", fork)
    given = regression("gaussian")
    covariance = np.linalg.inv(ALPHA * np.eye(3) + BETA * given.x.T @ given.x)
    mean = BETA * covariance @ given.x.T @ given.y
    drawn = sample(given, Settings(draws=2000, tune=500, sampler=sampler))
    certificate = certify(drawn).admit()
    assert drawn.theta.shape == (4, 2000, 3)
    assert drawn.theta.dtype == np.float64
    assert certificate.origin.sampler == sampler
    assert {"bambi", sampler, "arviz-stats", "python"} <= set(certificate.origin.versions)

    pooled, errors = drawn.theta.reshape(-1, 3), monte_carlo_errors(drawn.theta)
    lower = np.tril_indices(3)
    assert_agree(pooled.mean(0) - mean, errors.mean)
    assert_agree((np.cov(pooled.T) - covariance)[lower], errors.covariance[lower])
    assert_agree(pooled.std(0, ddof=1) - np.sqrt(covariance.diagonal()), errors.sd)
    assert (errors.mean < 0.03 * np.sqrt(covariance.diagonal())).all()
    # The Hamiltonian is potential plus kinetic energy, each 3/2 above its floor on average: half a chi-squared
    # of 6 degrees. The standard error of the mean is under 0.06, and the least of 8000 is 0.1 above the floor.
    assert drawn.energy.mean() - drawn.energy.min() == pytest.approx(3 - 0.1, abs=0.3)


@pytest.mark.data
@pytest.mark.slow  # draws 20,000 times
def test_samplers_agree_on_breast_cancer():
    """Means and covariance entries, 65 scores: one beyond 5.5, t with 99 degrees of freedom, has a chance of 2e-5."""
    for package in ("bambi", "nutpie"):
        pytest.importorskip(package)
    (cell,) = plan(load_benchmark("logistic-posterior").select(["breast_cancer"], ["vifa"]), splits=(0,))
    given, moments = recipe(cell, 0).regression, []
    for sampler in ("nutpie", "pymc"):
        drawn = sample(given, Settings(draws=2000, tune=500, sampler=sampler))
        certify(drawn).admit()
        pooled = drawn.theta.reshape(-1, 10)
        moments.append((pooled.mean(0), np.cov(pooled.T), monte_carlo_errors(drawn.theta)))
    (mean, covariance, errors), (other_mean, other_covariance, other_errors) = moments
    lower = np.tril_indices(10)
    means = (mean - other_mean) / np.hypot(errors.mean, other_errors.mean)
    entries = (covariance - other_covariance) / np.hypot(errors.covariance, other_errors.covariance)
    assert abs(np.concatenate([means, entries[lower]])).max() < 5.5
    # the errors are small enough for the comparison to mean something
    assert (errors.mean < 0.03 * np.sqrt(covariance.diagonal())).all()


def draw_few(seed: int) -> np.ndarray:
    """Run in a spawned worker, which imports this module and with it torch."""
    assert torch.get_num_threads() > 0
    return sample(regression("logistic"), Settings(draws=100, tune=100, chains=2, seed=seed)).theta


@pytest.mark.slow  # a process that samples
def test_a_spawned_worker_gives_the_same_draws():
    pytest.importorskip("bambi")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        first, second = pool.submit(draw_few, 5), pool.submit(draw_few, 6)
        here = draw_few(5)
        np.testing.assert_array_equal(first.result(), here)
        assert not np.isin(second.result(), here).any()
    assert not np.isin(here[0], here[1]).any()


def groups(depth: str, dim: tuple[int, ...] = (3,)) -> dict:
    """The two groups that are read, as xarray data sets; axes not in the order of chains and draws."""
    xarray = pytest.importorskip("xarray")
    rng = np.random.default_rng(0)

    def array(*shape: int) -> tuple:
        names = ("draw", "chain", "dim")[: 2 + len(dim)]
        return names[: len(shape)], rng.standard_normal(shape)

    statistics = {"diverging": array(5, 2), "energy": array(5, 2), depth: array(5, 2)}
    statistics[depth] = (statistics[depth][0], np.arange(10, dtype=np.uint64).reshape(5, 2))
    statistics["diverging"] = (statistics["diverging"][0], np.arange(10).reshape(5, 2) == 3)
    return {"posterior": xarray.Dataset({TERM: array(5, 2, *dim)}), "sample_stats": xarray.Dataset(statistics)}


def assert_read(drawn: Draws, given: dict, depth: str) -> None:
    statistics = given["sample_stats"]
    theta = np.moveaxis(given["posterior"][TERM].to_numpy(), 0, 1).reshape(2, 5, -1)
    np.testing.assert_array_equal(drawn.theta, theta)
    np.testing.assert_array_equal(drawn.energy, statistics["energy"].to_numpy().T)
    np.testing.assert_array_equal(drawn.depth, statistics[depth].to_numpy().T)
    assert np.argwhere(drawn.diverging).tolist() == [[1, 1]]
    assert drawn.depth.dtype == np.int64


@pytest.mark.parametrize("depth", ["depth", "tree_depth"])
@pytest.mark.parametrize("dim", [(), (3,)])
def test_a_data_tree_is_read(depth, dim):
    given = groups(depth, dim)
    tree = pytest.importorskip("xarray").DataTree.from_dict(given)
    assert_read(from_tree(tree, ORIGIN), given, depth)


@pytest.mark.parametrize("depth", ["depth", "tree_depth"])
def test_inference_data_is_read(depth):
    arviz = pytest.importorskip("arviz")
    if not hasattr(arviz, "InferenceData"):
        pytest.skip("arviz 1.0 and later have data trees only")
    given = groups(depth)
    assert_read(from_tree(arviz.InferenceData(**given), ORIGIN), given, depth)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.ones(4)}, r"x must be \(n, D\)"),
        ({"y": np.ones(3)}, r"x must be \(n, D\)"),
        ({"x": np.empty((0, 2)), "y": np.empty(0)}, r"x must be \(n, D\)"),
        ({"x": np.full((4, 2), np.nan)}, "finite"),
        ({"y": np.array([0, 1, 1, -1.0])}, "labels must be 0 or 1"),
        ({"prior_precision": np.zeros(2)}, "prior_precision must be positive"),
        ({"prior_precision": np.array([1, np.nan])}, "prior_precision must be positive"),
        ({"prior_precision": np.ones(3)}, r"prior_precision must be \(2,\)"),
        ({"noise_precision": np.inf}, "noise_precision must be positive"),
    ],
)
def test_bad_regressions_are_refused(change, message):
    good = {"x": np.ones((4, 2)), "y": np.array([0, 1, 1, 0.0]), "prior_precision": np.ones(2)}
    Regression(**good)
    with pytest.raises(InputError, match=message) as caught:
        Regression(**(good | change))
    assert "\n" not in str(caught.value)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "bambi", None)
    with pytest.raises(InputError, match=r"needs bambi .* pip install 'bdl-bench\[mcmc\]'"):
        build(regression("logistic"))
