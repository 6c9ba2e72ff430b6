"""The evidence of a linear model, against the normal law that it is, and the precisions that maximise it."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.linear_model import BayesianRidge

from bdl.models.linear import Spectrum, best_precisions, log_evidence

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4))
Y = X @ [1.0, -0.5, 0.2, 0.0] + 0.7 * RNG.standard_normal(60)


@pytest.mark.parametrize("rows", [60, 3])
def test_it_is_the_density_of_the_targets(rows):
    x, y = X[:rows], Y[:rows]
    expected = multivariate_normal(cov=x @ x.T / 2.0 + np.eye(rows) / 5.0).logpdf(y)
    assert log_evidence(Spectrum.of(x, y), 2.0, 5.0) == pytest.approx(expected, rel=1e-12)


def test_the_maximum_is_that_of_scikit_learn():
    flat = {"alpha_1": 0, "alpha_2": 0, "lambda_1": 0, "lambda_2": 0}
    ridge = BayesianRidge(fit_intercept=False, tol=1e-12, max_iter=10_000, **flat).fit(X, Y)
    np.testing.assert_allclose(best_precisions(X, Y), (ridge.lambda_, ridge.alpha_), rtol=1e-4)


def test_a_precision_that_is_given_stays():
    alpha, beta = best_precisions(X, Y, noise_precision=3.0)
    found = Spectrum.of(X, Y)
    assert beta == pytest.approx(3.0)
    assert log_evidence(found, alpha, 3.0) >= max(log_evidence(found, alpha * f, 3.0) for f in (0.99, 1.01))
    assert best_precisions(X, Y, 2.0, 3.0) == pytest.approx((2.0, 3.0))


def test_targets_without_noise_have_a_finite_precision():
    assert np.isfinite(best_precisions(X, X @ [1.0, 1.0, 1.0, 1.0])).all()
    assert np.isfinite(best_precisions(X, np.zeros(60))).all()
