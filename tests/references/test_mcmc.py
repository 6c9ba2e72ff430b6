"""References by NUTS: the model against its formula, draws against exact posteriors, and what is kept on disk."""

import json
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from unittest.mock import Mock

import numpy as np
import pytest
import torch  # loaded before any sampling, as in a run of benchmarks
from scipy.special import expit

from bdl.errors import InputError
from bdl.models.likelihoods import Bernoulli, GaussianLikelihood
from bdl.models.networks import LinearModel
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem
from bdl.plan import reference_posteriors
from bdl.plan.planning import plan_tasks
from bdl.references import nuts
from bdl.references.base import (
    JudgedDraws,
    check_files,
    load_draws,
    load_or_sample,
    locate_files,
    sample_and_store,
)
from bdl.references.certificate import certify, estimate_moment_errors
from bdl.references.exact import GridReference
from bdl.references.mcmc import (
    TERM,
    ChainDraws,
    Origin,
    Regression,
    SamplerSettings,
    build_model,
    convert_tree,
    sample_regression,
)
from bdl.references.nuts import LinearRecipe, NutsReference
from bdl.spec import load_benchmark

ALPHA, BETA = 1.7, 2.5


def regression(kind: str, n: int = 60, dim: int = 3) -> Regression:
    """Correlated inputs whose mean is not 0, so that centring or an intercept would be seen."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, dim)) + 0.8 * rng.standard_normal((n, 1)) + 0.5
    f = x @ rng.standard_normal(dim)
    if kind == "gaussian":
        return Regression(x, f + BETA**-0.5 * rng.standard_normal(n), np.full(dim, ALPHA), BETA)
    return Regression(x, (rng.random(n) < expit(f)).astype(float), ALPHA * 1.01 ** np.arange(dim))


def log_joint(given: Regression, theta: np.ndarray) -> tuple[float, np.ndarray]:
    """log p(y | theta) + log p(theta), up to a constant, and its gradient."""
    f = given.x @ theta
    if given.noise_precision is None:
        likelihood, residual = -np.logaddexp(0, (1 - 2 * given.y) * f).sum(), given.y - expit(f)
    else:
        residual = given.noise_precision * (given.y - f)
        likelihood = -0.5 * residual @ (given.y - f)
    prior = given.prior_precision * theta
    return likelihood - 0.5 * prior @ theta, given.x.T @ residual - prior


@pytest.mark.parametrize("kind", ["gaussian", "logistic"])
@pytest.mark.parametrize("dim", [1, 256])
def test_the_model_is_the_stated_one(kind, dim):
    """At the last point logits reach hundreds."""
    pytest.importorskip("bambi")
    given = regression(kind, dim=dim)
    model = build_model(given)
    assert [variable.name for variable in model.free_RVs] == [TERM]
    shape = model.initial_point()[TERM].shape
    log_density, gradient = (
        compiled(mode="FAST_COMPILE") for compiled in (model.compile_logp, model.compile_dlogp)
    )
    points = np.random.default_rng(1).standard_normal((3, dim)) * np.array([[0.1], [1.0], [200.0]])
    values, slopes = zip(*(log_joint(given, point) for point in points), strict=True)
    named = [{TERM: point.reshape(shape)} for point in points]
    np.testing.assert_allclose(
        np.diff([log_density(at) for at in named]), np.diff(values), rtol=1e-10
    )
    np.testing.assert_allclose([gradient(at) for at in named], slopes, rtol=1e-9, atol=1e-9)


def assert_moments(drawn: ChainDraws, mean: np.ndarray, covariance: np.ndarray) -> None:
    """At most 9 z-scores, t with 99 degrees of freedom or more: one beyond 4.5 has a probability of 2e-4."""
    pooled, errors = drawn.theta.reshape(-1, len(mean)), estimate_moment_errors(drawn.theta)
    lower = np.tril_indices(len(mean))
    assert abs((pooled.mean(0) - mean) / errors.mean).max() < 4.5
    assert abs(((np.cov(pooled.T) - covariance) / errors.covariance)[lower]).max() < 4.5
    assert (errors.mean < 0.03 * np.sqrt(covariance.diagonal())).all()


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
    drawn = sample_regression(given, SamplerSettings(draws=2000, tune=500, sampler=sampler))
    origin = certify(drawn).admit().origin
    assert drawn.theta.shape == (4, 2000, 3)
    assert origin.sampler == sampler
    assert {"bambi", sampler, "arviz-stats", "python"} <= set(origin.versions)
    assert_moments(drawn, BETA * covariance @ given.x.T @ given.y, covariance)
    # The Hamiltonian is potential plus kinetic energy, each 3/2 above its floor on average: half a
    # chi-squared of 6 degrees. The standard error of the mean is under 0.06, and the least of 8000
    # is 0.1 above the floor.
    assert drawn.energy.mean() - drawn.energy.min() == pytest.approx(3 - 0.1, abs=0.3)


@pytest.mark.slow  # draws 20,000 times
def test_logistic_posterior_is_that_of_a_grid():
    for package in ("bambi", "nutpie"):
        pytest.importorskip(package)
    given = regression("logistic", 300, 2)
    given = Regression(given.x, given.y, np.full(2, 0.01))
    drawn = sample_regression(given, SamplerSettings(draws=4000, tune=1000, sampler="nutpie"))
    certify(drawn).admit()
    problem, hyper = (
        Problem(LinearModel(bias=False), Bernoulli(), 2),
        {"prior_precision": torch.tensor(0.01).double()},
    )
    truth = GridReference().fit(
        problem, torch.from_numpy(given.x), torch.from_numpy(given.y), hyper
    )
    assert_moments(drawn, truth.mean.numpy(), truth.covariance.numpy())


@pytest.mark.data
@pytest.mark.slow  # draws 20,000 times
def test_samplers_agree_on_breast_cancer():
    """Means and covariance entries, 65 scores: one beyond 5.5, t with 99 degrees of freedom, has a chance of 2e-5."""
    for package in ("bambi", "nutpie"):
        pytest.importorskip(package)
    (cell,) = plan_tasks(
        load_benchmark("logistic-posterior").select(["breast_cancer"], ["vifa"]), splits=(0,)
    )
    given, found, lower = (
        reference_posteriors.find_recipe(cell, 0).regression,
        [],
        np.tril_indices(10),
    )
    for sampler in ("nutpie", "pymc"):
        drawn = sample_regression(given, SamplerSettings(draws=2000, tune=500, sampler=sampler))
        certify(drawn).admit()
        pooled, errors = drawn.theta.reshape(-1, 10), estimate_moment_errors(drawn.theta)
        assert (errors.mean < 0.03 * pooled.std(0)).all(), "else to agree would mean little"
        moments = np.concatenate([pooled.mean(0), np.cov(pooled.T)[lower]])
        found.append((moments, np.concatenate([errors.mean, errors.covariance[lower]])))
    (one, error), (other, other_error) = found
    assert abs((one - other) / np.hypot(error, other_error)).max() < 5.5


def draw_few(seed: int) -> np.ndarray:
    """Run in a spawned worker, which imports this module and with it torch."""
    assert torch.get_num_threads() > 0
    return sample_regression(
        regression("logistic"), SamplerSettings(draws=100, tune=100, chains=2, seed=seed)
    ).theta


@pytest.mark.slow  # a process that samples
def test_a_spawned_worker_gives_the_same_draws():
    pytest.importorskip("bambi")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        first, second = pool.map(draw_few, (5, 6))
    np.testing.assert_array_equal(first, draw_few(5))
    assert not np.isin(second, first).any()
    assert not np.isin(first[0], first[1]).any()


@pytest.mark.parametrize("dim", [(), (3,)])
def test_a_data_tree_is_read(dim):
    """Its axes are not in the order of chains and draws."""
    xarray, rng = pytest.importorskip("xarray"), np.random.default_rng(0)
    theta, energy, steps = (
        rng.standard_normal((5, 2, *dim)),
        rng.standard_normal((5, 2)),
        np.arange(10).reshape(5, 2),
    )
    axes = "draw", "chain"
    statistics = {
        "diverging": (axes, steps == 3),
        "energy": (axes, energy),
        "n_steps": (axes, steps.astype(np.uint64)),
    }
    given = {
        "posterior": xarray.Dataset({TERM: (axes + ("dim",) * len(dim), theta)}),
        "sample_stats": xarray.Dataset(statistics),
    }
    drawn = convert_tree(xarray.DataTree.from_dict(given), TERM, Origin("none", 1, 0, {}, 0.0))
    np.testing.assert_array_equal(drawn.theta, np.moveaxis(theta, 0, 1).reshape(2, 5, -1))
    np.testing.assert_array_equal(drawn.energy, energy.T)
    np.testing.assert_array_equal(drawn.steps, steps.T)
    assert np.argwhere(drawn.diverging).tolist() == [[1, 1]]


@pytest.mark.parametrize(("prior", "noise"), [(np.array([1, np.nan]), None), (np.ones(2), np.inf)])
def test_precisions_that_are_not_positive_are_refused(prior, noise):
    with pytest.raises(InputError, match="precision must be positive and finite: it is "):
        Regression(np.ones((4, 2)), np.array([0, 1, 1, 0.0]), prior, noise)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "bambi", None)
    with pytest.raises(InputError, match=r"needs bambi .* pip install 'bdl-bench\[mcmc\]'"):
        build_model(regression("logistic"))


X = torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
LABELS = (X[:, 0] > 0).double()
HYPER = {"prior_precision": torch.tensor(0.5, dtype=torch.float64)}


def test_a_recipe_holds_what_the_problem_says():
    """A bias is a column of ones with a prior of its own.

    The noise is that of Gaussian targets.
    """
    problem = Problem(LinearModel(), GaussianLikelihood(), 3, prior=GaussianPrior(1e-5))
    noise = {"noise_precision": torch.tensor(2.0).double()}
    found = NutsReference(draws=200, seed=3).recipe(problem, X, LABELS, HYPER | noise)
    np.testing.assert_array_equal(found.regression.x, np.column_stack([X.numpy(), np.ones(40)]))
    np.testing.assert_array_equal(found.regression.y, LABELS.numpy())
    np.testing.assert_array_equal(found.regression.prior_precision, [0.5, 0.5, 0.5, 1e-5])
    assert found.regression.noise_precision == 2
    assert found.settings == SamplerSettings(draws=200, seed=3)


def test_the_truth_has_the_moments_of_all_chains(monkeypatch):
    theta = np.random.default_rng(0).standard_normal((4, 9, 3)) + np.arange(4)[:, None, None]
    monkeypatch.setattr(nuts, "load_or_sample", lambda recipe: JudgedDraws(theta, Mock()))
    truth = NutsReference().fit(Problem(LinearModel(bias=False), Bernoulli(), 3), X, LABELS, HYPER)
    np.testing.assert_allclose(truth.mean, theta.reshape(-1, 3).mean(0), rtol=1e-12)
    np.testing.assert_allclose(truth.covariance, np.cov(theta.reshape(-1, 3).T), rtol=1e-12)
    np.testing.assert_array_equal(truth.chains, theta)


def recipe(**changes) -> LinearRecipe:
    given = {
        "x": X[:, :2].numpy(),
        "y": LABELS.numpy(),
        "prior_precision": np.ones(2),
        "noise_precision": None,
    }
    given |= changes
    settings = given.pop("settings", SamplerSettings(draws=1000))
    return LinearRecipe(Regression(**given), settings)


def draws(seed: int, apart: float = 0.0) -> ChainDraws:
    """Independent draws, which pass every rule unless chains lie apart."""
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal((4, 1000, 2)) + apart * np.arange(4)[:, None, None]
    none = np.zeros((4, 1000), dtype=bool)
    return ChainDraws(
        theta,
        none,
        rng.standard_normal((4, 1000)),
        none.astype(int),
        Origin("fake", 1, 0, {}, 1.5),
    )


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """A data directory of its own and a sampler that counts."""
    pytest.importorskip("arviz_stats")
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path))
    made = []
    monkeypatch.setattr(
        nuts,
        "sample_regression",
        lambda regression, settings: made.append(regression) or draws(len(made)),
    )
    return made


def test_kept_draws_are_found_by_later_versions():
    """A new key would sample all references again."""
    one = LinearRecipe(
        Regression(np.eye(2), np.array([0.0, 1.0]), np.ones(2), 0.5), SamplerSettings(draws=1000)
    )
    assert one.key == "6e925be2b7e100a8350140818786da8ceb9ce02d7bb1944f5fde18414f5a73d1"


@pytest.mark.parametrize(
    "changes",
    [
        {"x": X[:, :2].numpy() + 1e-12},
        {"y": 1 - LABELS.numpy()},
        {"prior_precision": np.array([1.0, 2.0])},
        {"noise_precision": 1.0},
        {"settings": SamplerSettings(draws=1001)},
        {"settings": SamplerSettings(draws=1000, sampler="pymc")},
    ],
)
def test_whatever_is_sampled_takes_part_in_the_key(changes):
    assert recipe().key == recipe().key != recipe(**changes).key


def test_arrays_of_other_shapes_have_other_keys():
    """Their bytes are the same."""
    wide = Regression(np.ones((2, 3)), np.array([0.0, 1.0]), np.ones(3))
    tall = Regression(np.ones((3, 2)), np.array([0.0, 1.0, 1.0]), np.ones(2))
    assert LinearRecipe(wide, SamplerSettings()).key != LinearRecipe(tall, SamplerSettings()).key


def test_draws_are_sampled_once(calls):
    assert check_files(recipe()) == "missing"
    first, second = load_or_sample(recipe()), load_or_sample(recipe())
    assert len(calls) == 1
    assert check_files(recipe()) == "ready"
    np.testing.assert_array_equal(first.theta, draws(1).theta)
    np.testing.assert_array_equal(second.theta, first.theta)
    assert second.certificate.origin == first.certificate.origin
    sample_and_store(recipe())
    np.testing.assert_array_equal(load_draws(recipe()).theta, draws(2).theta)
    assert not [
        path for path in locate_files(recipe())[0].parent.iterdir() if path.name.startswith(".")
    ]


def praised(text: bytes) -> bytes:
    """Change a certificate: the text stays valid."""
    content = json.loads(text)
    content["certificate"]["bulk_ess"][0] += 1
    return json.dumps(content).encode()


@pytest.mark.parametrize(
    ("which", "change"),
    [
        (0, lambda content: content[:-8]),
        (0, lambda content: content[:-8] + bytes(8)),
        (0, lambda content: b""),
        (0, lambda content: content[:20] + b"(" + content[21:]),
        (1, lambda content: content[: len(content) // 2]),
        (1, lambda content: b"{}"),
        (1, praised),
    ],
)
def test_changed_files_are_refused(calls, which, change):
    load_or_sample(recipe())
    path = locate_files(recipe())[which]
    path.write_bytes(change(path.read_bytes()))
    os.utime(path, ns=(1, 1))  # a change within the resolution of the counters is seen as well
    with pytest.raises(
        InputError, match=r"corrupt reference .*; delete it, and it is sampled again"
    ) as caught:
        load_or_sample(recipe())
    assert "\n" not in str(caught.value)
    assert check_files(recipe()) == "corrupt"
    assert len(calls) == 1


def test_a_refused_reference_is_not_kept(calls, monkeypatch):
    monkeypatch.setattr(
        nuts, "sample_regression", lambda regression, settings: draws(0, apart=1.0)
    )
    with pytest.raises(
        InputError, match=r"reference refused: rule 1 \(r_hat < 1.01\) fails at coordinate 0"
    ):
        load_or_sample(recipe())
    assert check_files(recipe()) == "missing"


def test_a_folder_that_cannot_be_written_is_named(calls, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"cannot write to data directory .*set BDL_DATA_DIR"):
        sample_and_store(recipe())
