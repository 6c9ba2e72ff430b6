"""Reference posteriors of linear regression, against scikit-learn and the closed form."""

import pytest
import torch
from sklearn.linear_model import BayesianRidge

from bdl.data import load
from bdl.errors import InputError
from bdl.models.likelihoods import Bernoulli, Gaussian
from bdl.models.networks import Linear
from bdl.models.problem import Problem
from bdl.plan.planning import cells_of
from bdl.plan.truths import truth
from bdl.references import REFERENCES
from bdl.references.exact import BayesianRidgeReference, ConjugateReference
from bdl.spec import load_benchmark


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    x = x - x.mean(0)
    y = 5 + x @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    return x, y + 0.3 * torch.randn(40, generator=generator, dtype=torch.float64)


def test_bayesian_ridge_is_scikit_learns_with_the_papers_names(data):
    x, y = data
    ridge = BayesianRidge().fit(x.numpy(), y.numpy())
    truth = BayesianRidgeReference().fit(Problem(Linear(), Gaussian(), 3), x, y, {})
    assert truth.hyper == {"prior_precision": ridge.lambda_, "noise_precision": ridge.alpha_}
    assert truth.hyper["noise_precision"] == pytest.approx(1 / 0.3**2, rel=0.5)
    assert truth.mean.tolist() == [*ridge.coef_, ridge.intercept_]
    # sigma_ is (beta X_c' X_c + alpha I)^-1: the covariance that the penalised weights have when x is centred
    alpha, beta = ridge.lambda_, ridge.alpha_
    closed = torch.linalg.inv(beta * x.T @ x + alpha * torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(truth.covariance, closed, rtol=1e-9, atol=1e-12)


def test_a_penalised_bias_shrinks_by_what_the_formula_says(data):
    """With centred inputs the bias is N beta / (N beta + alpha) of the mean target."""
    x, y = data
    problem = Problem(Linear(), Gaussian(), 3)
    free, shrunk = (BayesianRidgeReference(bias).fit(problem, x, y, {}) for bias in ("unpenalised", "penalised"))
    alpha, beta = (free.hyper[name] for name in ("prior_precision", "noise_precision"))
    assert shrunk.hyper == free.hyper
    assert float(shrunk.mean[3] / free.mean[3]) == pytest.approx(40 * beta / (40 * beta + alpha), rel=1e-10)
    torch.testing.assert_close(shrunk.mean[:3], free.mean[:3])
    torch.testing.assert_close(shrunk.covariance[:3, :3], free.covariance)


def test_conjugate(data):
    x, y = data
    hyper = {name: torch.tensor(2.0, dtype=torch.float64) for name in ("prior_precision", "noise_precision")}
    truth = ConjugateReference().fit(Problem(Linear(bias=False), Gaussian(), 3), x, y, hyper)
    closed = torch.linalg.inv(2 * x.T @ x + 2 * torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(truth.covariance, closed)
    torch.testing.assert_close(truth.mean, 2 * closed @ x.T @ y)
    assert truth.hyper == {}


@pytest.mark.parametrize("name", ["conjugate", "bayesian-ridge"])
def test_only_linear_regression(name):
    with pytest.raises(InputError, match="no closed form"):
        REFERENCES.get(name)().check(Problem(Linear(), Bernoulli(), 3))


def test_bad_input(data):
    x, y = data
    with pytest.raises(InputError, match="give the linear model its bias"):
        BayesianRidgeReference().check(Problem(Linear(bias=False), Gaussian(), 3))
    with pytest.raises(InputError, match="targets are constant"):
        BayesianRidgeReference().fit(Problem(Linear(), Gaussian(), 3), x, torch.ones_like(y), {})


@pytest.mark.data
@pytest.mark.parametrize("dataset", ["energy", "boston", "concrete", "yacht"])
def test_precisions_are_those_of_the_thesis(dataset):
    """Table 5.3 (Brownlie 2022), to the printed digits."""
    printed = {
        "energy": (0.0608, 0.1246),
        "boston": (0.2859, 0.0429),
        "concrete": (0.0254, 0.0101),
        "yacht": (0.0291, 0.0114),
    }
    try:
        load(dataset)
    except InputError as error:
        pytest.skip(str(error))
    (cell,) = cells_of(load_benchmark("uci-linear-posterior").select([dataset], ["vifa"]))
    found = truth(cell, 0)
    found = (found.hyper["prior_precision"], found.hyper["noise_precision"])
    assert tuple(round(value, 4) for value in found) == printed[dataset]
