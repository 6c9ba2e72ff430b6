"""Predictions in closed form, held against quadrature, and quantiles of mixtures."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm
from torch.distributions import Exponential, Laplace, Normal

import bdl
from bdl.errors import InputError
from bdl.metrics.targets import EqualMixture, central_interval

RNG = np.random.default_rng(0)
X = RNG.normal(3, 2, (40, 3))
Y = 100 + X @ [2.0, -1.0, 0.5] + 0.5 * RNG.standard_normal(40)
NEW = RNG.normal(3, 4, (6, 3))
HYPER = {"prior_precision": 1.0, "noise_precision": 4.0}
SHORT = {"epochs": 3, "batch_size": 10}


def output_moments(fitted, x):
    """Means and deviations of the outputs, in original units, by hand."""
    scaled = (x - X.mean(0)) / X.std(0)
    design = np.column_stack([scaled, np.ones(len(x))])
    posterior = fitted.double()
    covariance = posterior.covariance().numpy()
    deviation = np.sqrt(np.einsum("ni,ij,nj->n", design, covariance, design))
    return design @ posterior.mean().numpy(), deviation


@pytest.mark.parametrize(
    ("method", "extra"),
    [
        ("conjugate", {}),
        ("laplace", {}),
        ("bbb", {"learning_rate": 0.05}),
        ({"name": "vifa", "latent_dim": 2}, {"learning_rate": 0.05}),
        ("slang", {"learning_rate": 0.05}),
    ],
)
def test_a_linear_regression_predicts_the_integral_over_its_outputs(method, extra):
    training = SHORT if extra else None
    fitted = bdl.fit(method, "linear", "gaussian", X, Y, HYPER | extra, training=training)
    mean, deviation = output_moments(fitted, NEW)
    mean, deviation = Y.mean() + Y.std() * mean, Y.std() * deviation
    law = fitted.predict_distribution(NEW)
    points = mean + 1.3 * deviation
    densities = [
        quad(
            lambda f, m=m, s=s, y=y: norm.pdf(y, f, 0.5) * norm.pdf(f, m, s),
            *(m - 12 * s, m + 12 * s),
            epsabs=1e-12,
            epsrel=1e-10,
            limit=200,
            points=(y,),
        )[0]
        for m, s, y in zip(mean, deviation, points, strict=True)
    ]
    np.testing.assert_allclose(law.log_prob(torch.tensor(points)).exp(), densities, rtol=1e-8)
    np.testing.assert_allclose(fitted.predict(NEW), mean, rtol=1e-10)
    np.testing.assert_allclose(law.variance, deviation**2 + 0.25, rtol=1e-8)
    ends = mean[:, None] + np.sqrt(deviation**2 + 0.25)[:, None] * norm.ppf([0.1, 0.9])
    np.testing.assert_allclose(fitted.predict_interval(NEW, 0.8), ends, rtol=1e-8)


def test_a_logistic_regression_predicts_the_integral_over_its_outputs():
    labels = (X[:, 0] + RNG.normal(size=40) > 3).astype(int)
    fitted = bdl.fit("laplace", "linear", "bernoulli", X, labels, {"prior_precision": 0.1})
    mean, deviation = output_moments(fitted, NEW)
    expected = [
        quad(
            lambda f, m=m, s=s: expit(f) * norm.pdf(f, m, s),
            *(m - 12 * s, m + 12 * s),
            epsabs=1e-12,
            limit=200,
        )[0]
        for m, s in zip(mean, deviation, strict=True)
    ]
    probabilities = fitted.predict_distribution(NEW).probs
    np.testing.assert_allclose(probabilities[:, 1], expected, atol=1e-8)
    np.testing.assert_array_equal(fitted.predict(NEW), (np.array(expected) > 0.5).astype(int))


def test_a_linearised_network_predicts_by_its_derivative():
    method = {"name": "laplace", "curvature": "ggn", "linearised": True}
    model = {"name": "mlp", "hidden": [4], "activation": "tanh"}
    fitted = bdl.fit(method, model, "gaussian", X, Y, HYPER)
    posterior, problem = fitted.double(), fitted.problem
    rows = torch.from_numpy((NEW - X.mean(0)) / X.std(0))

    def outputs(theta):
        return problem.model(theta, rows, 1).squeeze(-1)

    jacobian = torch.autograd.functional.jacobian(outputs, posterior.loc)
    variance = ((jacobian @ posterior.covariance()) * jacobian).sum(1)
    law = fitted.predict_distribution(NEW)
    np.testing.assert_allclose(
        law.mean, Y.mean() + Y.std() * outputs(posterior.loc).numpy(), rtol=1e-10
    )
    np.testing.assert_allclose(law.variance, Y.var() * variance.numpy() + 0.25, rtol=1e-8)
    np.testing.assert_allclose(fitted.predict(NEW), law.mean, rtol=1e-12)


def test_a_fit_of_a_benchmark_predicts_by_its_draws():
    """As its scores do: with other draws it predicts other numbers."""
    fitted = bdl.fit("conjugate", "linear", "gaussian", X, Y, HYPER)
    sampled = replace(fitted, exact=False)
    assert sampled.predict_distribution(NEW).component_distribution.batch_shape == (6, 100)
    np.testing.assert_allclose(sampled.predict(NEW), fitted.predict(NEW), atol=0.5)
    assert not np.array_equal(sampled.predict(NEW), fitted.predict(NEW))


def test_predictions_of_the_default_do_not_depend_on_the_seed():
    first, second = (bdl.Regressor(random_state=seed).fit(X, Y) for seed in (1, 2))
    np.testing.assert_array_equal(first.predict(NEW), second.predict(NEW))
    np.testing.assert_array_equal(first.predict_interval(NEW), second.predict_interval(NEW))
    assert first.score(X, Y) == second.score(X, Y)


def mixture(means, deviations):
    return EqualMixture.of(Normal(torch.tensor(means).double(), torch.tensor(deviations).double()))


@pytest.mark.parametrize(
    "law",
    [
        mixture([[0.0, 1.0, 4.0], [-1e8, 0.0, 1e8]], [[1.0, 0.1, 2.0], [1.0, 1.0, 1.0]]),
        mixture([[0.0, 1e-9, 5.0]] * 2, [[1e-3, 1e3, 1e-12]] * 2),
        EqualMixture.of(Laplace(torch.tensor([[0.0, 3.0]]).double(), torch.tensor(0.2).double())),
    ],
)
@pytest.mark.parametrize("probability", [1e-6, 0.05, 0.3, 0.61, 0.95])
def test_quantiles_of_mixtures(law, probability):
    quantiles = law.icdf(torch.tensor(probability, dtype=torch.float64))
    # beside a quantile, by as much as its digits and the narrowest component resolve
    width = 1e-11 * law.component_distribution.stddev.amin(-1) + 1e-14 * quantiles.abs()
    assert bool((law.cdf(quantiles - width) <= probability + 1e-15).all())
    assert bool((law.cdf(quantiles + width) >= probability - 1e-15).all())


def test_quantiles_broadcast_and_blocks_join():
    law = EqualMixture.of(Normal(torch.randn(1500, 100).double(), torch.tensor(0.5).double()))
    levels = torch.tensor([[0.1], [0.7]], dtype=torch.float64)
    quantiles = law.icdf(levels)
    assert quantiles.shape == (2, 1500)
    np.testing.assert_allclose(law.cdf(quantiles), levels.expand(2, 1500), atol=1e-13)
    with pytest.raises(InputError, match="Poisson has no quantiles"):
        EqualMixture.of(torch.distributions.Poisson(torch.ones(3, 2))).icdf(torch.tensor(0.5))
    one = EqualMixture.of(Exponential(torch.ones(2, 1).double()))
    np.testing.assert_allclose(central_interval(one, 0.8), -np.log([[0.9, 0.9], [0.1, 0.1]]))


def test_intervals_of_many_rows_cover_what_they_say():
    x = RNG.normal(size=(10_000, 20))
    y = x @ RNG.normal(size=20) + RNG.normal(size=10_000)
    low, high = bdl.Regressor().fit(x, y).predict_interval(x).T
    assert np.mean((low <= y) & (y <= high)) == pytest.approx(0.9, abs=0.01)
