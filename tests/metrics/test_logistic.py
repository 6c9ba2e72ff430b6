"""Test log-loss of logistic regression: by integrals of others, and the approximation of the print."""

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from bdl.errors import InputError
from bdl.metrics.elbo import NllByQuadrature, NllPrinted, probability_of_one
from bdl.models.likelihoods import Bernoulli, Categorical
from bdl.models.networks import Linear, Mlp
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian, Empirical, FullGaussian
from bdl.posteriors.tensors import as_type

from .fits import examples, fit, normal

D, N = 3, 12
X = 2 * normal(0, N, D - 1)
Y = (normal(1, N) > 0).double()
PROBLEM = Problem(Linear(), Bernoulli(), D - 1)
POSTERIOR = FullGaussian(normal(2, D), 2 * (normal(3, D, D).tril(-1) + torch.eye(D).double()))


def evaluated(posterior=POSTERIOR, problem=PROBLEM, y=Y):
    return fit(posterior, problem, test=lambda: examples(X, y))


def law():
    design = torch.cat([X, torch.ones(N, 1).double()], 1).numpy()
    covariance = POSTERIOR.covariance().numpy()
    return design @ POSTERIOR.mean().numpy(), np.sqrt(np.einsum("ni,ij,nj->n", design, covariance, design))


def integral(centre, spread):
    """E[sigmoid(f)] by adaptive quadrature."""
    value, _ = integrate.quad(
        lambda z: stats.norm.pdf(z) * special.expit(centre + spread * z),
        -12,
        12,
        epsabs=1e-14,
        points=[-centre / spread],
    )
    return value


def test_probabilities_are_integrals():
    p = np.array([integral(*pair) for pair in zip(*law(), strict=True)])
    expected = -np.mean(np.where(Y == 1, np.log(p), np.log1p(-p)))
    assert NllByQuadrature()(evaluated()) == pytest.approx(expected, rel=1e-10)


def test_single_precision_posteriors_are_scored_in_double_precision():
    single = as_type(POSTERIOR, torch.float32)
    assert NllByQuadrature()(evaluated(single)) == pytest.approx(NllByQuadrature()(evaluated()), rel=1e-6)


def test_a_posterior_without_width_is_a_point():
    theta = normal(2, D)
    f = X @ theta[:-1] + theta[-1]
    expected = -float(torch.nn.functional.logsigmoid((2 * Y - 1) * f).mean())
    point = DiagonalGaussian(theta, torch.full((D,), 1e-30).double())
    assert NllByQuadrature()(evaluated(point)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0, 8.0, 20.0])
def test_the_mixture_is_near_the_integral(spread):
    """To 3e-4 in the probability, its known accuracy, from end to end; and both labels have probability 1 together."""
    centre = torch.linspace(-30, 30, 25).double()
    found = probability_of_one(centre, torch.full_like(centre, spread))
    expected = [integral(c, spread) for c in centre.tolist()]
    np.testing.assert_allclose(found, expected, rtol=0, atol=3e-4)
    torch.testing.assert_close(found + found.flip(0), torch.ones_like(found), rtol=0, atol=3e-4)


def test_the_tail_falls_as_a_logistic_one():
    """log E[sigmoid(f)] is about centre + spread^2 / 2 from 0.98 spread^2 + 4 below 0 on; normal tails are smaller."""
    found = probability_of_one(torch.tensor([-9.92, -30.0, -200.0]).double(), torch.tensor([2.0] * 3).double())
    np.testing.assert_allclose(found.log(), [-7.92, -28, -198], rtol=1e-8)


def test_the_printed_score():
    p = probability_of_one(*(torch.from_numpy(part) for part in law()))
    expected = -float(torch.where(Y == 1, p, 1 - p).log().mean())
    assert NllPrinted()(evaluated()) == pytest.approx(expected, rel=1e-12)
    assert NllPrinted()(evaluated()) == pytest.approx(NllByQuadrature()(evaluated()), abs=1e-3)


def test_the_printed_score_is_cut_off():
    """A row that is wrong with certainty costs -log of the precision, 36 nats."""
    certain = DiagonalGaussian(torch.tensor([1e4, 0, 0]).double(), torch.full((D,), 1e-8).double())
    wrong = (X[:, 0] < 0).double()
    assert NllPrinted()(evaluated(certain, y=wrong)) == pytest.approx(-np.log(2.0**-52), rel=1e-12)


@pytest.mark.parametrize(
    ("score", "name"), [(NllByQuadrature(), "test_nll"), (NllPrinted(), "test_nll_printed")], ids=["exact", "printed"]
)
def test_refusals(score, name):
    needs = f"^{name} needs a linear model and the likelihood 'bernoulli' of two classes: use nll$"
    for problem in (Problem(Mlp(), Bernoulli(), D - 1), Problem(Linear(), Categorical(), D - 1, 3)):
        with pytest.raises(InputError, match=needs):
            score(evaluated(problem=problem))
    with pytest.raises(InputError, match=f"^{name}: Empirical is not Gaussian: leave the metric out$"):
        score(evaluated(Empirical(torch.zeros(2, D))))
