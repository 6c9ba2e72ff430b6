"""Fits of arrays of one's own, and scikit-learn's checks of the estimator."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import parametrize_with_checks

import bdl
from bdl.errors import InputError
from bdl.metrics import METRICS

ALPHA, BETA = 2.0, 4.0
EXACT = {"prior_precision": ALPHA, "noise_precision": BETA}
RNG = np.random.default_rng(0)
X = RNG.normal(3, 2, (40, 2))
Y = 100 + X @ [2.0, -1.0] + 0.5 * RNG.standard_normal(40)
TRAINED = {
    "method": {"name": "vifa", "latent_dim": 1},
    "hyper": {**EXACT, "learning_rate": 0.01},
    "training": {"epochs": 2, "batch_size": 10},
}


def fit(**changes):
    settings = {"method": "conjugate", "model": "linear", "likelihood": "gaussian", "X": X, "y": Y, "hyper": EXACT}
    return bdl.fit(**settings | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "conjugat"}, "method: unknown method 'conjugat': did you mean conjugate"),
        ({"method": {"latent_dim": 1}}, "method: should be a mapping with a name"),
        (
            {"likelihood": {"name": "gaussian", "scale": 1}},
            "likelihood: unknown setting of likelihood 'gaussian' 'scale'",
        ),
        ({"hyper": {"prior_precision": 1}}, "no value for noise_precision: add to hyper"),
        ({"hyper": {"prior_precision": -1.0, "noise_precision": 1}}, "hyper.prior_precision: Input should be greater"),
        ({"hyper": {"prior_precision": 0, "noise_precision": 1}}, "prior_precision is 0: give a positive number"),
        ({"method": "vifa", "hyper": TRAINED["hyper"]}, "training is missing: give epochs and batch_size"),
        ({**TRAINED, "training": {"epochs": 2, "batch_size": 50}}, "no update fits into 40 rows of arrays"),
        ({**TRAINED, "hyper": {**EXACT, "learning_rate": 1e12}}, "the fit failed .*: lower the learning rate"),
        ({"method": "online-em"}, "method 'online-em' learns from a stream"),
        ({"model": "mlp"}, "the posterior has no closed form: give a linear model"),
        ({"X": X[:, 0]}, r"dataset 'arrays': x is \(40,\) and y \(40,\); give \(n, d\) and \(n,\)"),
        ({"y": Y[1:]}, r"dataset 'arrays': x is \(40, 2\) and y \(39,\)"),
        ({"y": np.full(40, np.nan)}, "dataset 'arrays': x or y has NaN"),
        (
            {"likelihood": "bernoulli", "hyper": {"prior_precision": 1}},
            "dataset 'arrays': labels are .*; they must be 0 to",
        ),
        ({"samples": 0}, "evaluation.samples: Input should be greater than or equal to 1"),
        ({"device": "tpu"}, "--device tpu: use cpu, cuda"),
    ],
)
def test_bad_input_is_told_in_one_line(changes, message):
    with pytest.raises(InputError, match=message) as caught:
        fit(**changes)
    assert "\n" not in str(caught.value)


def test_a_linear_model_has_the_analytic_posterior():
    fitted = fit(standardise="none")
    design = np.column_stack([X, np.ones(40)])
    precision = ALPHA * np.eye(3) + BETA * design.T @ design
    covariance = np.linalg.inv(precision)
    mean = BETA * covariance @ design.T @ Y
    np.testing.assert_allclose(fitted.posterior.mean(), mean, rtol=1e-10)
    np.testing.assert_allclose(fitted.posterior.covariance(), covariance, rtol=1e-8)
    theta = mean + 0.1 * RNG.standard_normal((5, 3))
    delta = theta - mean
    expected = 0.5 * (np.linalg.slogdet(precision)[1] - 3 * np.log(2 * np.pi))
    expected = expected - 0.5 * np.einsum("ni,ij,nj->n", delta, precision, delta)
    np.testing.assert_allclose(fitted.log_density(theta), expected, rtol=1e-8)
    draws = fitted.sample(20_000, seed=1)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.05 * covariance.max())
    np.testing.assert_array_equal(draws[:3], fitted.sample(20_000, seed=1)[:3])


def test_predictions_are_in_original_units():
    """Scaled or not, the best line is the same where the prior is weak; its noise is 1 / sqrt(BETA)."""
    weak = {"prior_precision": 1e-6, "noise_precision": BETA}
    new = np.array([[3.0, 3.0], [5.0, 1.0]])
    best = np.column_stack([new, [1, 1]]) @ np.linalg.lstsq(np.column_stack([X, np.ones(40)]), Y)[0]
    for standardise in ("both", "inputs"):
        fitted = fit(hyper=weak, standardise=standardise, samples=2000)
        np.testing.assert_allclose(fitted.predict(new), best, atol=0.02)
        found = fitted.predict_distribution(new)
        np.testing.assert_allclose(found.mean, fitted.predict(new), rtol=1e-6)
        design = np.column_stack([X - X.mean(0), np.ones(40)])
        at = np.column_stack([new - X.mean(0), [1, 1]])
        variance = (1 + np.einsum("ni,ij,nj->n", at, np.linalg.inv(design.T @ design), at)) / BETA
        np.testing.assert_allclose(found.variance, variance, rtol=0.05)
        assert found.log_prob(torch.tensor(best)).shape == (2,)


def test_classes_are_predicted():
    labels = (X[:, 0] > 3).astype(int)
    settings = {"likelihood": "bernoulli", "hyper": {"prior_precision": 0.01}, "y": labels}
    fitted = fit(method="laplace", **settings)
    assert (fitted.predict(X) == labels).mean() > 0.9
    probabilities = fitted.predict_distribution(X).probs
    assert probabilities.shape == (40, 2)
    np.testing.assert_array_equal(probabilities.argmax(1), fitted.predict(X))


def test_a_trained_fit_depends_on_its_seed():
    one, again, other = (fit(**TRAINED, seed=seed).predict(X) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (X[:, :1], r"x is float64 of shape \(40, 1\): give float64, \(n, 2\)"),
        (X[0], r"x is float64 of shape \(2,\): give float64, \(n, 2\)"),
        (np.full((1, 2), np.inf), "x has NaN or infinite values"),
    ],
)
def test_wrong_inputs_of_a_prediction(x, message):
    with pytest.raises(InputError, match=message):
        fit().predict(x)


def test_a_wrong_parameter_vector():
    with pytest.raises(InputError, match=r"theta is \(2,\): give \(\.\.\., 3\)"):
        fit().log_density([1, 2])


@parametrize_with_checks([bdl.Regressor()])
def test_it_is_an_estimator_of_scikit_learn(estimator, check):
    check(estimator)


def test_it_works_within_scikit_learn():
    estimator = bdl.Regressor(hyper={"prior_precision": 0.01, "noise_precision": BETA})
    assert cross_val_score(estimator, X, Y).mean() > 0.95
    pipe = make_pipeline(PolynomialFeatures(2, include_bias=False), clone(estimator)).fit(X, Y)
    _, deviation = pickle.loads(pickle.dumps(pipe)).predict(X, return_std=True)
    assert (deviation > BETA**-0.5).all()


def test_the_package_is_light_until_it_is_used():
    code = "import sys, bdl; print(sorted({'torch', 'pandas', 'sklearn'} & set(sys.modules)), 'fit' in dir(bdl))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[] True\n", done.stderr
    with pytest.raises(AttributeError, match="module 'bdl' has no attribute 'fits'"):
        bdl.fits  # noqa: B018


@pytest.mark.parametrize("unit", [1e-25, 1e25])
def test_targets_in_units_far_from_one(unit):
    """The noise precision, 4e50 or 4e-50, has no place in float32: it goes to the unit of the model before that."""
    hyper = EXACT | {"noise_precision": BETA / unit**2}
    found = fit(y=Y * unit, hyper=hyper).predict(X) / unit
    np.testing.assert_allclose(found, fit().predict(X), rtol=1e-7)
    double = {"training": {**TRAINED["training"], "dtype": "float64"}}
    trained = {**TRAINED, "hyper": {**TRAINED["hyper"], **hyper}}
    np.testing.assert_allclose(
        fit(**trained | double, y=Y * unit).predict(X) / unit, fit(**TRAINED | double).predict(X), rtol=1e-7
    )
    with pytest.raises(InputError, match=r"noise_precision is 4e[+-]50, beyond what float32 holds: state the target"):
        fit(**trained, y=Y * unit)


def test_a_precision_that_leaves_double_precision_is_told_as_such():
    hyper = EXACT | {"noise_precision": 1e200}
    with pytest.raises(
        InputError, match=r"noise_precision 1e\+200 is inf for targets in units of .*: state the target"
    ):
        fit(y=Y * 1e60, hyper=hyper)


NETWORK = {
    "model": {"name": "module", "factory": f"{Path(__file__).parents[1] / 'methods/networks.py'}:small_net"},
    "likelihood": "gaussian",
    "training": {"epochs": 2, "batch_size": 10},
    "hyper": {**EXACT, "learning_rate": 0.01},
}


@pytest.mark.parametrize("method", ["vifa", {"name": "deep-ensemble", "members": 2}])
def test_statistics_are_recomputed_for_distributions_as_well(method):
    model = NETWORK["model"] | {"batch_norm": "recompute"}
    fitted = fit(**NETWORK | {"model": model, "method": method})
    np.testing.assert_allclose(fitted.predict_distribution(X).mean, fitted.predict(X), rtol=1e-12)
    for score in ("mse_at_mean", "neg_elbo") if method == "vifa" else ("mse_at_mean",):
        found = METRICS.build(score, {"rows": "training"} if score == "mse_at_mean" else {})(fitted.evaluation)
        assert np.isfinite(found if isinstance(found, float) else found[""])


def test_members_do_not_share_running_statistics():
    """Nor do draws of a method that gathers none."""
    ensemble = {"name": "deep-ensemble", "members": 2}
    with pytest.raises(InputError, match=r"batch_norm: running keeps one set of statistics, .*: use batch_norm: rec"):
        fit(**NETWORK | {"method": ensemble})
    draws = {"name": "importance-sampling", "proposal": "prior"}
    with pytest.raises(InputError, match="'importance-sampling' gathers no running statistics; use batch_norm: recomp"):
        fit(**NETWORK | {"method": draws, "training": None, "hyper": EXACT})
