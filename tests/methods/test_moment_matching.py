"""Moment matching against posteriors whose moments are known in closed form or by a grid."""

import pytest
import torch

from bdl.errors import InputError
from bdl.methods.exact_gaussian import ExactGaussian
from bdl.methods.importance_sampling import MomentMatching
from bdl.models.likelihoods import Bernoulli, Gaussian
from bdl.models.networks import Linear, Mlp
from bdl.models.problem import Problem
from bdl.posteriors import FullGaussian
from bdl.references.exact import GridReference

from .targets import linear_gaussian

LOGISTIC = Problem(Linear(bias=False), Bernoulli(), 2)
FEW_X = torch.tensor([[1, 0.2], [-0.5, -1], [2, 1], [-1, 0.3]], dtype=torch.float64)
FEW_Y = torch.tensor([1.0, 0, 1, 0], dtype=torch.float64)
"""Separable: with a weak prior the posterior is strongly skewed."""
WEAK = {"prior_precision": torch.tensor(0.01, dtype=torch.float64)}


def test_gives_the_posterior_of_a_linear_regression():
    """Within 4.5 standard errors, if at least 10,000 of 20,000 draws count: 0.01 of a mean, 0.014 of a square."""
    target = linear_gaussian()
    hyper = target.hyper | {"noise_precision": target.hyper["noise_precision"] * target.data.y_unit**2}
    q = MomentMatching(20_000).fit(target.problem, target.data.x, target.data.y, hyper, 0).check()
    assert isinstance(q, FullGaussian)
    exact = target.posterior
    assert exact.whiten(q.mean() - exact.mean()).abs().max() < 4.5 * 0.01
    products = exact.whiten(exact.whiten(q.covariance()).mT)
    assert (products - torch.eye(3)).abs().max() < 4.5 * 0.014


@pytest.mark.parametrize("proposal", ["laplace", "variational"])
def test_gives_the_moments_of_a_skewed_posterior(proposal):
    """Its mean is nearer to the truth than that of the best ELBO, and its covariance wider, as the truth's.

    With 200,000 draws, of which more than 40,000 count, a mean has an error of 0.005 standard deviations. The errors
    of products are larger than those of a Gaussian's, about 0.02 of the covariance.
    """
    truth = GridReference().fit(LOGISTIC, FEW_X, FEW_Y, WEAK)
    q = MomentMatching(200_000, proposal).fit(LOGISTIC, FEW_X, FEW_Y, WEAK, 0)
    narrow = ExactGaussian().fit(LOGISTIC, FEW_X, FEW_Y, WEAK)
    exact = FullGaussian.from_covariance(truth.mean, truth.covariance)
    assert exact.whiten(q.mean() - truth.mean).abs().max() < 4.5 * 0.005
    torch.testing.assert_close(q.covariance(), truth.covariance, rtol=0, atol=0.09 * float(truth.covariance.norm()))
    assert (narrow.variance() < 0.9 * q.variance()).all()


def test_too_few_draws_are_refused():
    target = linear_gaussian()
    hyper = target.hyper | {"noise_precision": target.hyper["noise_precision"] * target.data.y_unit**2}
    with pytest.raises(InputError, match=r"6 draws have an effective size of \d, which is below 2 for each") as caught:
        MomentMatching(6).fit(target.problem, target.data.x, target.data.y, hyper, 0)
    assert "\n" not in str(caught.value)


def test_what_has_no_proposal_is_refused():
    network = Problem(Mlp((3,)), Gaussian(), 2)
    MomentMatching().check(network)
    with pytest.raises(InputError, match="linear model with one output"):
        MomentMatching(proposal="variational").check(network)
