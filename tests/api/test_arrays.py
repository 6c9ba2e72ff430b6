"""Fits of arrays of one's own: known posteriors, what counts as numbers, and what is refused in one line."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from scipy.sparse import csr_array
from torch import nn

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
FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": np.where(X[:, 0] > 3, "u", "v")})
NAMED = FRAME[["a", "b"]]


def fit(**changes):
    settings = {
        "method": "conjugate",
        "model": "linear",
        "likelihood": "gaussian",
        "X": X,
        "y": Y,
        "hyper": EXACT,
    }
    return bdl.fit(**settings | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "conjugat"}, "method: unknown method 'conjugat': did you mean conjugate"),
        ({"method": {"latent_dim": 1}}, "method: should be a mapping with a name"),
        (
            {"likelihood": {"name": "gaussian", "scale": 1}},
            "likelihood: unknown setting of likelihood 'gaussian' 'sca",
        ),
        ({"hyper": {"prior_precision": 1}}, "no value for noise_precision: add to hyper"),
        (
            {"hyper": EXACT | {"prior_precision": -1.0}},
            "hyper.prior_precision: Input should be greater",
        ),
        (
            {"hyper": EXACT | {"prior_precision": 0}},
            "prior_precision is 0: give a positive number",
        ),
        ({"hyper": None}, "fit: hyper: should be a mapping of names to numbers, or 'auto'"),
        (
            {"hyper": EXACT | {"noise_precision": 1e-100}, "y": Y * 1e-115},
            "noise_precision 1e-100 is 0 for targets in",
        ),
        (
            {**TRAINED, "training": {"epochs": 2, "batch_size": 50}},
            "^training: no update fits into 40 rows of arrays",
        ),
        (
            {**TRAINED, "hyper": {**EXACT, "learning_rate": 1e12}},
            "the fit failed .*: lower the learning rate",
        ),
        ({"method": "online-em"}, "method 'online-em' learns from a stream"),
        ({"model": "mlp"}, "the posterior has no closed form: give a linear model"),
        (
            {"likelihood": "bernoulli", "hyper": {"prior_precision": 1}},
            "'arrays': labels are .*; they must be 0 to",
        ),
        ({"samples": 0}, "evaluation.samples: Input should be greater than or equal to 1"),
        ({"seed": 1.5}, "fit: seed: Input should be a valid integer"),
        ({"device": "tpu"}, "--device tpu: use cpu, cuda"),
        ({"X": None}, "X is NoneType: give numbers in an array, a frame or lists"),
        ({"X": "text"}, "X is text, not numbers"),
        ({"X": [[1.0], [2.0, 3.0]]}, "X has rows of different lengths"),
        (
            {"X": X[:, 0]},
            r"X is float64 of shape \(40,\): give numbers, \(n, d\); reshape\(-1, 1\) makes one column",
        ),
        ({"X": X[:0]}, "X has no rows: give at least one"),
        ({"X": X[:, :0]}, "X has no columns: give at least one"),
        ({"X": X + 1j}, "X is complex128, not numbers"),
        ({"X": np.where(X > 3, np.nan, X)}, "X has NaN or infinite values"),
        (
            {"X": NAMED.assign(b=np.inf)},
            "X has NaN or infinite values, the first in row 0 of column 'b', from 0",
        ),
        ({"X": X * 1e200}, "from 0: give numbers of at most 1e\\+100"),
        ({"X": X.astype(str).astype(object)}, "X has .* among its values, which is no number"),
        ({"X": csr_array(X)}, r"X is sparse: give X.toarray\(\)"),
        ({"X": np.ma.masked_greater(X, 3)}, "X has masked values"),
        ({"X": NAMED.assign(b=pd.Timestamp("2026-01-01"))}, "X: column 'b' is datetime64"),
        ({"X": FRAME.astype({"kind": "category"})}, "X: column 'kind' is category, not numbers"),
        (
            {"X": NAMED.assign(b=pd.array([None] * 40, dtype="Int64"))},
            "X has NaN or infinite values",
        ),
        ({"X": torch.ones(40, 2, device="meta")}, "X is Tensor, not an array of numbers"),
        ({"y": Y[1:]}, "X has 40 rows and y 39: give one target a row"),
        ({"y": np.full(40, np.nan)}, "y has NaN or infinite values, the first in row 0, from 0"),
        ({"y": X}, r"y is float64 of shape \(40, 2\): give one target a row"),
        ({"y": FRAME.kind}, "y is .*, not numbers: encode text"),
        ({"y": [None] * 40}, r"y has gaps \(None\)"),
        (
            {"X": NAMED, "y": pd.Series(Y)[::-1]},
            r"same row labels in another order: give y\.loc\[X\.index\]",
        ),
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
    with pytest.raises(InputError, match=r"theta is \(2,\): give \(\.\.\., 3\)"):
        fitted.log_density([1, 2])
    draws = fitted.sample(20_000, seed=1)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.05 * covariance.max())
    np.testing.assert_array_equal(draws[:3], fitted.sample(20_000, seed=1)[:3])


@pytest.mark.parametrize("standardise", ["both", "inputs"])
def test_predictions_are_in_original_units(standardise):
    """Scaled or not, the best line is the same where the prior is weak.

    Its noise is 1 / sqrt(BETA).
    """
    new = np.array([[3.0, 3.0], [5.0, 1.0]])
    best = (
        np.column_stack([new, [1, 1]]) @ np.linalg.lstsq(np.column_stack([X, np.ones(40)]), Y)[0]
    )
    fitted = fit(hyper=EXACT | {"prior_precision": 1e-6}, standardise=standardise, samples=2000)
    np.testing.assert_allclose(fitted.predict(new), best, atol=0.02)
    found = fitted.predict_distribution(new)
    np.testing.assert_allclose(found.mean, fitted.predict(new), rtol=1e-6)
    design, at = (np.column_stack([x - X.mean(0), np.ones(len(x))]) for x in (X, new))
    variance = (1 + np.einsum("ni,ij,nj->n", at, np.linalg.inv(design.T @ design), at)) / BETA
    np.testing.assert_allclose(found.variance, variance, rtol=0.05)
    assert found.log_prob(torch.tensor(best)).shape == (2,)


def test_classes_are_predicted():
    labels = (X[:, 0] > 3).astype(int)
    fitted = fit(
        method="laplace", likelihood="bernoulli", hyper={"prior_precision": 0.01}, y=labels
    )
    assert (fitted.predict(X) == labels).mean() > 0.9
    probabilities = fitted.predict_distribution(X).probs
    assert probabilities.shape == (40, 2)
    np.testing.assert_array_equal(probabilities.argmax(1), fitted.predict(X))


def test_a_network_that_was_trained_has_an_approximation_at_its_weights():
    """A dense layer that has the mean of a linear model has its posterior, and the predictive of the same draws."""
    net = torch.nn.Linear(2, 1)
    torch.nn.utils.vector_to_parameters(fit().posterior.mean().float(), net.parameters())
    fitted = fit(method={"name": "laplace", "climb": False, "linearised": True}, model=net)
    weights = torch.nn.utils.parameters_to_vector(net.parameters()).detach()
    assert torch.equal(fitted.posterior.mean(), weights.double())
    np.testing.assert_allclose(
        fitted.posterior.covariance(), fit().posterior.covariance(), rtol=1e-6, atol=1e-12
    )
    np.testing.assert_allclose(
        fitted.predict_distribution(X).variance, fit().predict_distribution(X).variance, rtol=1e-5
    )
    np.testing.assert_allclose(
        fit(method="laplace", model=net).posterior.mean(), weights, rtol=1e-3, atol=1e-3
    )


BYTES = (10 * np.abs(X)).astype(np.uint8)
PICTURES = BYTES.reshape(40, 1, 2)


@pytest.mark.parametrize(
    ("fitted", "new", "message"),
    [
        (X, X[:, :1], r"x is float64 of shape \(40, 1\): give float64, \(n, 2\)"),
        (X, X[0], r"x is float64 of shape \(2,\): give numbers, \(n, d\); reshape"),
        (X, np.full((1, 2), np.inf), "x has NaN or infinite values"),
        (PICTURES, BYTES, r"x is float64 of shape \(40, 2\): give uint8, \(n, 1, 2\)"),
        (NAMED, NAMED[["b"]], "x lacks 'a': give the columns 'a', 'b'"),
        (NAMED, NAMED.rename(columns={"a": "A"}), "x lacks 'a' and has unknown 'A': give"),
        (NAMED, NAMED[["b", "a", "a"]], "x has the column 'a' twice"),
        (NAMED, NAMED.assign(a="1"), "x: column 'a' is .*, not numbers"),
    ],
)
def test_wrong_inputs_of_a_prediction(fitted, new, message):
    with pytest.raises(InputError, match=message):
        fit(X=fitted).predict(new)


def test_columns_are_matched_by_name_and_an_order_that_decides_is_told():
    fitted = fit(X=NAMED)
    expected = fitted.predict(NAMED)
    np.testing.assert_array_equal(fitted.predict(NAMED[["b", "a"]]), expected)
    turned, straight = (
        fitted.predict_distribution(NAMED[names]).mean for names in (["b", "a"], ["a", "b"])
    )
    np.testing.assert_array_equal(turned, straight)
    numbered = fit(X=pd.DataFrame(X))
    np.testing.assert_array_equal(numbered.predict(pd.DataFrame(X)[[1, 0]]), numbered.predict(X))
    with pytest.warns(
        UserWarning, match="x has no names of columns: columns are taken in order, 'a', 'b'"
    ):
        np.testing.assert_array_equal(fitted.predict(X), expected)
    with pytest.warns(
        UserWarning, match="the columns that were fitted had no names: columns are taken in order"
    ):
        np.testing.assert_array_equal(fit().predict(NAMED), expected)


@pytest.mark.parametrize(
    "given",
    [
        lambda x: torch.tensor(x, requires_grad=True),
        lambda x: torch.tensor(x, dtype=torch.float64).T.contiguous().T,
        lambda x: x.astype(object),
        lambda x: x[::-1].copy()[::-1],
        lambda x: pd.DataFrame(x).astype("Float64"),
        lambda x: pd.DataFrame(x).astype("double[pyarrow]"),
        lambda x: pa.Table.from_pandas(pd.DataFrame(x)),
        lambda x: np.ma.asarray(x),
    ],
)
def test_numbers_of_other_libraries_are_the_same_numbers(given):
    expected = fit().predict(X)
    np.testing.assert_array_equal(fit(X=given(X), y=given(Y[:, None])).predict(X), expected)
    np.testing.assert_array_equal(fit().predict(given(X)), expected)


def test_bytes_and_true_and_false_are_numbers_and_images_have_more_axes():
    np.testing.assert_array_equal(
        fit(X=BYTES).predict(BYTES), fit(X=BYTES.astype(float)).predict(BYTES)
    )
    assert fit(X=PICTURES).cell.data.images
    dummies, target = pd.get_dummies(FRAME), FRAME.a + (FRAME.kind == "u")
    hyper = {"prior_precision": 1e-6, "noise_precision": 100.0}
    found = fit(X=dummies, y=target, hyper=hyper).predict(dummies)
    np.testing.assert_allclose(found, target, atol=1e-2)
    np.testing.assert_array_equal(
        found, fit(X=dummies.astype(float), y=target, hyper=hyper).predict(dummies)
    )
    np.testing.assert_array_equal(
        found, bdl.Regressor(hyper=hyper).fit(dummies, target).predict(dummies)
    )


def test_the_package_is_light_until_it_is_used():
    code = "import sys, bdl; print(sorted({'torch', 'pandas', 'sklearn'} & set(sys.modules)), 'fit' in dir(bdl))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[] True\n", done.stderr
    with pytest.raises(AttributeError, match="module 'bdl' has no attribute 'fits'"):
        bdl.fits  # noqa: B018
    with pytest.raises(
        InputError, match=r"^fit: likelihood\."
    ):  # by its name, though given by its place
        bdl.fit("conjugate", "linear", X, Y)


@pytest.mark.parametrize("unit", [1e-25, 1e25])
def test_targets_in_units_far_from_one(unit):
    """The noise precision, 4e50 or 4e-50, has no place in float32: it goes to the unit of the model before that."""
    hyper = EXACT | {"noise_precision": BETA / unit**2}
    np.testing.assert_allclose(
        fit(y=Y * unit, hyper=hyper).predict(X) / unit, fit().predict(X), rtol=1e-7
    )
    double = TRAINED | {"training": {**TRAINED["training"], "dtype": "float64"}}
    there = {"y": Y * unit, "hyper": TRAINED["hyper"] | hyper}
    np.testing.assert_allclose(
        fit(**double | there).predict(X) / unit, fit(**double).predict(X), rtol=1e-7
    )
    with pytest.raises(
        InputError,
        match=r"noise_precision is 4e[+-]50, beyond what float32 holds: state the target",
    ):
        fit(**TRAINED | there)


MODULE = {
    "name": "module",
    "factory": f"{Path(__file__).parents[1] / 'methods/networks.py'}:small_net",
}
ENSEMBLE = {"name": "deep-ensemble", "members": 2}


@pytest.mark.parametrize("method", ["vifa", ENSEMBLE])
def test_statistics_are_recomputed_for_distributions_as_well(method):
    fitted = fit(**TRAINED | {"model": MODULE | {"batch_norm": "recompute"}, "method": method})
    np.testing.assert_allclose(fitted.predict_distribution(X).mean, fitted.predict(X), rtol=1e-12)
    for score in ("mse_at_mean", "neg_elbo") if method == "vifa" else ("mse_at_mean",):
        found = METRICS.build(score, {"rows": "training"} if score == "mse_at_mean" else {})(
            fitted.evaluation
        )
        assert np.isfinite(found if isinstance(found, float) else found[""])


@pytest.mark.parametrize("batch_norm", ["running", "recompute"])
def test_a_normalised_network_is_not_trained_by_one_row(batch_norm):
    training = {"epochs": 2, "batch_size": len(X) - 1, "incomplete": "keep"}
    model = MODULE | {"batch_norm": batch_norm}
    with pytest.raises(InputError, match=r"a minibatch of one row fails .* use incomplete: drop"):
        fit(**TRAINED | {"model": model, "method": "adam", "training": training})
    # a fifth of the 26 rows is held out
    rows = {"X": X[:26], "y": Y[:26], "hyper": "auto"}
    training["batch_size"] = 20
    with pytest.raises(InputError, match=r"a minibatch of one row fails .* use incomplete: drop"):
        fit(**TRAINED | rows | {"model": model, "method": "adam", "training": training})


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_a_network_that_cannot_be_pickled_is_not_saved(tmp_path):
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(X.shape[1], 1))
    fitted = fit(**TRAINED | {"model": layer, "method": "adam"})
    with pytest.raises(
        InputError, match=r"^save: Serialization of parametrized modules .*factory"
    ):
        fitted.save(tmp_path / "fit.bdl")


def test_members_do_not_share_running_statistics():
    """Nor do draws of a method that gathers none."""
    with pytest.raises(
        InputError,
        match=r"batch_norm: running keeps one set of statistics, .*: use batch_norm: rec",
    ):
        fit(**TRAINED | {"model": MODULE, "method": ENSEMBLE})
    with pytest.raises(
        InputError,
        match="'importance-sampling' gathers no running statistics; use batch_norm: recomp",
    ):
        fit(model=MODULE, method={"name": "importance-sampling", "proposal": "prior"})
