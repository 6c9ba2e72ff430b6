"""Defaults that do not depend on units, both estimators within scikit-learn, calibration, and saved fits."""

import pickle
import pydoc
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.linear_model import BayesianRidge
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import bdl
import bdl.api
from bdl.api import automatic
from bdl.api.automatic import default_settings
from bdl.api.spread import CalibratedNmll, calibrate_noise
from bdl.errors import InputError
from bdl.methods.bbb import BayesByBackprop
from bdl.methods.vifa import Vifa
from bdl.metrics.targets import EqualMixture
from bdl.reports.certainty import coverage, reliability

EXACT = {"prior_precision": 1.0, "noise_precision": 4.0}
RNG = np.random.default_rng(0)
X = RNG.normal(3, 2, (40, 2))
Y = 100 + X @ [2.0, -1.0] + 0.5 * RNG.standard_normal(40)
WORDS = np.where(X[:, 0] > 3, "yes", "no")
NAMED = pd.DataFrame(X, columns=["a", "b"])
LIVE = {"hyper": EXACT | {"learning_rate": 0.01}, "training": {"epochs": 3, "batch_size": 20}}


def diabetes():
    return load_diabetes(return_X_y=True)


def houses():
    """Prices that are skewed, with a noise that grows with them, of inputs in very different units."""
    rng = np.random.default_rng(1)
    x = rng.lognormal(0, 0.5, (600, 5)) * [1, 10, 1000, 0.1, 30]
    price = 0.5 + 0.4 * x[:, 0] + 0.02 * x[:, 1] + 3 * x[:, 3]
    return x, np.minimum(price * rng.lognormal(0, 0.3, 600), 5.0)


@pytest.mark.parametrize("unit", [1e-3, 1e3])
@pytest.mark.parametrize("data", [diabetes, houses])
@pytest.mark.parametrize(
    "method",
    [
        "conjugate",
        "laplace",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("vifa", "bbb")),
    ],
)
def test_intervals_cover_what_they_say_in_any_unit(method, data, unit):
    """Of every fourth row the central 90 % interval, fitted on the others."""
    x, y = data()
    tested = np.arange(len(y)) % 4 == 0
    estimator = bdl.Regressor(method).fit(x[~tested], unit * y[~tested])
    low, high = estimator.predict_interval(x[tested]).T
    covered = np.mean((low <= unit * y[tested]) & (unit * y[tested] <= high))
    assert 0.80 <= covered <= 0.97


def test_the_defaults_are_those_of_evidence():
    """As scikit-learn's, whose flat hyper-priors of 1e-6 and unpenalised intercept change the fourth digit."""
    x, y = diabetes()
    scaled = (x - x.mean(0)) / x.std(0)
    ridge = BayesianRidge().fit(scaled, (y - y.mean()) / y.std())
    hyper = bdl.Regressor().fit(x, y).fitted_.hyper
    assert hyper["noise_precision"] * y.var() == pytest.approx(ridge.alpha_, rel=0.01)
    assert hyper["prior_precision"] == pytest.approx(
        ridge.lambda_, rel=0.15
    )  # of ten weights, and here a bias of 0


@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
def test_the_evidence_of_labels_does_not_depend_on_the_unit_of_inputs(scale):
    """Where inputs stay as they are: weights are as many times smaller as inputs are larger.

    The precision of the weights is that of the bias as well, which matters for large inputs.
    """
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 3))
    y = rng.random(200) < 1 / (1 + np.exp(-x @ [2.0, -1.0, 0.5]))
    fitted = bdl.fit("laplace", "linear", "bernoulli", scale * x, y, standardise="none")
    assert 0.1 < fitted.hyper["prior_precision"] / scale**2 < 2
    assert np.mean(fitted.predict(scale * x) == y) > 0.75


def test_the_evidence_of_labels_is_maximised_over_the_scales_of_all_inputs():
    """One column of years beside four of the others' scale, whose weights are about one."""
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.standard_normal((400, 4)), rng.normal(2000, 10, 400)])
    y = rng.random(400) < 1 / (1 + np.exp(-x[:, :4] @ [2.0, -1.5, 1.0, 1.0]))
    fitted = bdl.fit("laplace", "linear", "bernoulli", x, y, standardise="none")
    assert 0.05 < fitted.hyper["prior_precision"] < 5
    assert np.mean(fitted.predict(x) == y) > 0.75


@pytest.mark.parametrize("standardise", ["both", "inputs", "none"])
def test_a_bias_with_a_precision_of_its_own_does_not_choose_that_of_the_weights(standardise):
    """Targets about 100: weights of 1 are as they are wherever the targets are."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 5))
    y = 100 + x @ [1.0, -1.0, 0.5, 1.0, -0.5] + rng.standard_normal(40)
    fitted = bdl.fit(
        "conjugate",
        "linear",
        "gaussian",
        x,
        y,
        prior={"name": "gaussian", "bias_precision": 1e-6},
        standardise=standardise,
    )
    unit = y.var() if standardise == "both" else 1.0
    assert 0.5 < fitted.hyper["prior_precision"] / unit < 3


WAVE_X = np.random.default_rng(5).uniform(-2, 2, (150, 1))
WAVE = 1000 * (np.sin(2 * WAVE_X[:, 0]) + 0.1 * np.random.default_rng(6).standard_normal(150))


@pytest.mark.parametrize(
    ("method", "names"),
    [
        ("deep-ensemble", {"learning_rate"}),
        ("mc-dropout", {"learning_rate", "dropout_rate"}),
        ({"name": "laplace", "curvature": "ggn", "linearised": True}, set()),
    ],
)
def test_the_noise_of_predictions_of_a_network_is_that_of_held_out_rows(method, names):
    """It is 100; that of the best line is about 500."""
    net = nn.Sequential(nn.Linear(1, 10), nn.Tanh(), nn.Linear(10, 1))
    if method != "deep-ensemble":
        net = {"name": "mlp", "hidden": [10], "activation": "tanh"}
    fitted = bdl.fit(method, net, "gaussian", WAVE_X, WAVE)
    assert set(fitted.hyper) == {"prior_precision", "noise_precision"} | names
    assert np.isfinite(fitted.predict(WAVE_X)).all()
    if method != "mc-dropout":  # whose masks are noise as well
        assert 60 < fitted.predictive_hyper["noise_precision"] ** -0.5 < 300
    is_linearised = names == set()
    assert (fitted.noise_precision is None) == is_linearised  # it is the fit's own
    if is_linearised:
        ratio = fitted.hyper["prior_precision"] / fitted.hyper["noise_precision"] / WAVE.var()
        steps = np.log(ratio / 1e-4) / np.log(1e5) * 7  # of a grid of eight ratios
        assert steps == pytest.approx(round(steps), abs=1e-6)


DIVERGING, LEARNING = (EXACT | {"learning_rate": rate} for rate in (1e30, 0.01))
TINY_FIT = (
    "deep-ensemble",
    {"name": "mlp", "hidden": [5]},
    "gaussian",
    WAVE_X,
    WAVE,
)


@pytest.mark.parametrize("settings", [[DIVERGING, LEARNING], [LEARNING, DIVERGING]])
def test_a_setting_that_diverges_is_not_chosen(settings, monkeypatch):
    # known settings in place of random ones
    monkeypatch.setattr(automatic, "propose", lambda *_: settings)
    fitted = bdl.fit(*TINY_FIT, training={"epochs": 5, "batch_size": 30})
    assert fitted.hyper["learning_rate"] == 0.01


def test_a_search_of_which_every_setting_diverges_is_refused(monkeypatch):
    monkeypatch.setattr(automatic, "propose", lambda *_: [DIVERGING])
    with pytest.raises(InputError, match=r"every trial of the search failed \(non-finite"):
        bdl.fit(*TINY_FIT, training={"epochs": 5, "batch_size": 30})


SIGNAL_X = np.random.default_rng(1).normal(size=(120, 3))
SIGNAL = SIGNAL_X @ [1.0, 0.2, -1.0] + 0.1 * np.random.default_rng(2).standard_normal(120)


@pytest.mark.parametrize("method", ["vifa", "ivon", "swag", "sgld", "sgd"])
def test_the_rate_of_a_linear_model_is_one_that_fits(method):
    fitted = bdl.Regressor(method).fit(SIGNAL_X[:100], SIGNAL[:100])
    assert fitted.score(SIGNAL_X[100:], SIGNAL[100:]) > 0.9


def test_a_training_that_does_not_get_there_is_told_of():
    training = {"epochs": 1, "batch_size": 50}
    with pytest.warns(UserWarning, match="^adam: the automatic settings predict rows held out wo"):
        bdl.Regressor("adam", training=training).fit(SIGNAL_X, 100 * SIGNAL)


def test_settings_that_diverge_are_tried_at_a_lower_rate(monkeypatch):
    settings = {"learning_rate": 0.5, "prior_precision": 1.0, "noise_precision": 1000.0}
    monkeypatch.setattr(automatic, "propose", lambda *_: [settings])
    training = {"epochs": 50, "batch_size": 20}
    network = bdl.Regressor("sgd", {"name": "mlp", "hidden": [10]}, training=training)
    assert network.fit(SIGNAL_X, SIGNAL).fitted_.hyper["learning_rate"] in (0.5 / 30, 0.5 / 900)


@pytest.mark.parametrize("level", [3.0, 3.7])
def test_constant_targets_are_predicted(level):
    """Rounding gives some of them a variance."""
    network = bdl.Regressor("deep-ensemble", {"name": "mlp", "hidden": [5]})
    predicted = network.fit(X, np.full(40, level)).predict(X)
    np.testing.assert_allclose(predicted, level, atol=1e-6)


@pytest.mark.slow  # 325 parameters
def test_the_prior_of_many_weights_is_chosen_on_held_out_rows():
    x, digits = load_digits(n_class=5, return_X_y=True)
    chosen = bdl.Classifier().fit(x[:150], digits[:150])
    default = bdl.Classifier(prior_precision=1.0).fit(x[:150], digits[:150])
    losses = [log_loss(digits[150:], each.predict_proba(x[150:])) for each in (chosen, default)]
    assert losses[0] < 0.8 * losses[1]


def test_vifa_starts_at_small_deviations_on_a_network():
    assert default_settings(Vifa(), {}, "mlp", 9) == {"initial_std": 0.03}
    assert default_settings(Vifa(), {}, "linear", 9) == {}
    assert default_settings(Vifa(initial_std=0.5), {"initial_std": 0.5}, "mlp", 9) == {}
    assert default_settings(BayesByBackprop(), {}, "mlp", 9) == {}
    short = {"hyper": LIVE["hyper"], "training": None}
    fitted = bdl.fit("vifa", {"name": "mlp", "hidden": [2]}, "gaussian", X, Y, **short)
    assert fitted.cell.settings.method.settings["initial_std"] == 0.03
    published = bdl.fit("vifa", {"name": "mlp", "hidden": [2]}, "gaussian", X, Y, **LIVE)
    assert published.cell.settings.method.settings["initial_std"] == 1.0


def test_the_noise_of_predictions_leaves_the_fit_as_it_is():
    training = {"epochs": 20, "batch_size": 30}
    net = {"name": "mlp", "hidden": [5]}

    def fit(hyper):
        return bdl.fit("bbb", net, "gaussian", WAVE_X, WAVE, hyper, training=training)

    automatic = fit("auto")
    explicit = fit(automatic.hyper)
    assert explicit.noise_precision is None
    np.testing.assert_array_equal(automatic.posterior.loc, explicit.posterior.loc)
    variances = [f.predict_distribution(WAVE_X).variance for f in (automatic, explicit)]
    noises = [f.predictive_hyper["noise_precision"] ** -1 for f in (automatic, explicit)]
    np.testing.assert_allclose(variances[0] - variances[1], noises[0] - noises[1], rtol=1e-9)
    assert noises[0] != pytest.approx(noises[1], rel=0.01)
    assert f"noise_precision of predictions={automatic.noise_precision:.4g}" in str(automatic)


def test_precisions_scaled_together_scale_the_variance_of_a_linearised_network():
    method = {"name": "laplace", "curvature": "ggn", "linearised": True}
    net = {"name": "mlp", "hidden": [4], "activation": "tanh"}
    first, scaled = (
        bdl.fit(
            *(method, net, "gaussian", WAVE_X, WAVE),
            {"prior_precision": factor, "noise_precision": factor * 1e-4},
        ).predict_distribution(WAVE_X)
        for factor in (1.0, 4.0)
    )
    np.testing.assert_allclose(scaled.mean, first.mean, rtol=1e-2, atol=1)
    np.testing.assert_allclose(scaled.variance, first.variance / 4, rtol=1e-2)


def test_the_scale_of_a_linearised_network_covers_held_out_targets():
    """Deviations 3 times too small are widened, by both precisions."""
    fitted = bdl.fit(
        {"name": "laplace", "curvature": "ggn", "linearised": True},
        {"name": "mlp", "hidden": [2], "activation": "tanh"},
        "gaussian",
        *(WAVE_X, WAVE),
        {"prior_precision": 1.0, "noise_precision": 1e-4},
    )
    law = fitted.predict_distribution(WAVE_X)
    errors = torch.linspace(-3, 3, 149, dtype=torch.float64)
    y = law.mean[:149] + errors * law.stddev[:149]
    tested = fitted.evaluation.trained.take(slice(149))._replace(y=y)
    score = CalibratedNmll(1.0, can_scale=True)
    score(replace(fitted.evaluation, test=lambda: tested))
    hyper, noise_precision = score.calibrate(fitted.hyper)
    assert noise_precision is None
    # of 149 errors 135 are to be within 1.645 deviations
    factor = (float(errors.abs().sort().values[134]) / 1.6448536) ** 2
    assert hyper == pytest.approx(
        {"prior_precision": 1 / factor, "noise_precision": 1e-4 / factor}, rel=1e-6
    )


def test_the_noise_covers_nine_of_ten_held_out_targets():
    """Of 99 errors 90 are to be within 1.645 deviations: those up to the 90th smallest."""
    errors = torch.linspace(-1, 1, 99, dtype=torch.float64)
    sizes = errors.abs().sort().values
    deviation = calibrate_noise(errors.unsqueeze(0), 0.2) ** 0.5
    assert deviation == pytest.approx(float(sizes[89]) / 1.6448536, rel=1e-6)
    assert calibrate_noise(errors.unsqueeze(0), 100.0) == pytest.approx(25)  # at most a quarter
    assert calibrate_noise(errors.unsqueeze(0), 1e-4) == pytest.approx(4e-4)


def test_few_large_errors_do_not_widen_the_noise():
    """Noise of highest likelihood has the mean square of errors, here 10 times that of most."""
    errors = 0.1 * torch.randn(400, generator=torch.Generator().manual_seed(0)).double()
    errors[:4] = 3.0
    variance = float(errors.square().mean())
    assert variance**0.5 > 0.3
    assert calibrate_noise(errors.unsqueeze(0), variance) == pytest.approx(variance / 4)


def test_one_is_chosen_and_the_others_stay():
    fitted = bdl.fit(
        "conjugate",
        "linear",
        "gaussian",
        X,
        Y,
        {"prior_precision": 2.0, "noise_precision": "auto"},
    )
    assert fitted.hyper["prior_precision"] == 2.0
    assert 1 < fitted.hyper["noise_precision"] < 20  # 4, of 40 rows


@pytest.mark.parametrize(
    ("data", "classes", "score"), [((X, WORDS), ["no", "yes"], 0.9), (None, "abc", 0.95)]
)
def test_a_classifier_knows_its_labels(data, classes, score):
    if data is None:
        x, y = load_iris(return_X_y=True)
        data = x, np.array(["a", "b", "c"])[y]
    classifier = bdl.Classifier().fit(*data)
    assert classifier.classes_.tolist() == [*classes]
    assert classifier.score(*data) > score
    probabilities = classifier.predict_proba(data[0])
    np.testing.assert_allclose(probabilities.sum(1), 1)
    np.testing.assert_array_equal(
        classifier.predict(data[0]), classifier.classes_[probabilities.argmax(1)]
    )
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(classifier)).predict_proba(data[0]), probabilities
    )


def regressed(**settings):
    return bdl.Regressor(**settings).fit(X, Y)


def fitted(network):
    return bdl.fit("bbb", network, "gaussian", X, Y, **LIVE)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: bdl.Regressor(likelihood="bernoulli").fit(X, X[:, 0] > 3),
            "'bernoulli' describes labels: use bdl.Cl",
        ),
        (
            lambda: bdl.Classifier(likelihood="gaussian").fit(X, WORDS),
            "'gaussian' describes numbers: use bdl.Regr",
        ),
        (lambda: bdl.Classifier().fit(X, ["a"] * 40), "y has one class"),
        (
            lambda: bdl.Regressor().fit(X, Y, sample_weight=Y),
            "^sample_weight: the methods count every row once",
        ),
        (lambda: bdl.Classifier().fit(X, WORDS, weights=Y), "^fit: unknown argument 'weights'"),
        (
            lambda: bdl.Classifier().fit(X, WORDS, class_weight="balanced"),
            "^class_weight: the methods count every row once",
        ),
        (
            lambda: bdl.Classifier().fit(X, ["a", None, *WORDS[2:]]),
            r"^y has gaps \(None\), the first in row 1, from 0: drop those rows",
        ),
        (
            lambda: bdl.Classifier().fit(X, pd.Series(["a", None, *WORDS[2:]], dtype="str")),
            r"^y has gaps \(nan\), the first in row 1, from 0: drop those rows",
        ),
        (
            lambda: bdl.Regressor().fit(NAMED, pd.Series(Y)[::-1]),
            "same row labels in another order",
        ),
        (
            lambda: bdl.Regressor().fit(NAMED, Y).predict(NAMED[["b", "a"]]),
            "^X: The feature .* in the same order",
        ),
        (
            lambda: bdl.Regressor().fit(NAMED, Y).predict(NAMED.set_axis(["a", "c"], axis=1)),
            "^X: The feature .*- c",
        ),
        (lambda: regressed(random_state="one"), "^random_state: "),
        (lambda: regressed().predict_interval(X, 90), "level: Input should be less than 1"),
        (
            lambda: bdl.Classifier().fit(X, WORDS).fitted_.predict_interval(X),
            "labels have no intervals",
        ),
        (
            lambda: bdl.fit("noisy-adam", "linear", "gaussian", X, Y),
            "^hyper.kl_weight: there is no automatic choice",
        ),
        (lambda: fitted(nn.Linear(3, 1)), r"^model Linear: rows of shape \(2,\) fail"),
        (lambda: fitted(nn.Linear(2, 2)), r"^model Linear gives .*: make it \(2, 1\)"),
        (lambda: bdl.calibration(regressed()), "give X and y, one target a row"),
        (
            lambda: bdl.calibration(make_pipeline(PolynomialFeatures()), X, Y),
            "a pipeline that ends with one",
        ),
        (lambda: bdl.calibration(regressed(), X, Y[:5]), "give X and y, one target a row"),
        (lambda: bdl.calibration(regressed(), X, np.where(Y > 100, np.nan, Y)), "y has NaN"),
        (lambda: bdl.calibration(regressed(), X, np.stack([Y, Y], 1)), "give one target a row"),
        (
            lambda: bdl.calibration(bdl.Classifier().fit(X, WORDS), X, X[:, 0] > 3),
            "y has .*, which is none of the classes of the fit: 'no', 'yes'",
        ),
        (
            lambda: bdl.calibration(
                bdl.Classifier().fit(X, WORDS), X, np.where(X[:, 0] > 4, None, WORDS)
            ),
            "y has gaps",
        ),
        (
            lambda: bdl.calibration(bdl.Classifier().fit(X, WORDS).fitted_, X, 2 * (X[:, 0] > 3)),
            "y has 2.0, which is none of the classes of the fit: 0, 1",
        ),
        (
            lambda: bdl.Regressor().fit(X, 1e60 * Y),
            "^y has a standard deviation of .*: give it in a unit",
        ),
        (
            lambda: bdl.Regressor().fit(pd.DataFrame({"a": Y, "on": pd.to_datetime(Y)}), Y),
            "^X: column 'on' is datetime64.*, not numbers: encode text, dates and categories",
        ),
        (
            lambda: bdl.Classifier().fit(pd.DataFrame({"a": Y}), WORDS[:-1]),
            "^X, y: Found input variables with inconsistent numbers of samples",
        ),
        (lambda: bdl.Regressor.load("nowhere"), "cannot read nowhere: No such file"),
    ],
)
def test_what_cannot_be_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_an_estimator_is_saved_and_loaded(tmp_path):
    regressed().save(tmp_path / "fit")
    np.testing.assert_array_equal(
        bdl.Regressor.load(tmp_path / "fit").predict(X), regressed().predict(X)
    )
    with pytest.raises(
        InputError, match=r"has Regressor in it: give a file that Classifier\.save"
    ):
        bdl.Classifier.load(tmp_path / "fit")
    with pytest.raises(InputError, match=r"has Regressor in it: give a file that Fitted\.save"):
        bdl.load(tmp_path / "fit")


def test_a_fit_prints_what_it_is_and_a_linear_one_the_setting_for_networks():
    lines = str(regressed(**EXACT).fitted_).splitlines()
    assert lines[0] == "Fitted(conjugate, linear, prior_precision=1, noise_precision=4)"
    assert lines[1] == 'linear; for a network: method="deep-ensemble", model="mlp"'
    assert "linear" not in str(fitted(nn.Linear(2, 1)))
    assert 'Regressor("deep-ensemble", "mlp")' in bdl.Regressor.__doc__


def test_a_calibration_takes_targets_in_a_column():
    expected = bdl.calibration(regressed(), X, Y).table
    pd.testing.assert_frame_equal(bdl.calibration(regressed(), X, Y[:, None]).table, expected)


def test_a_pipeline_has_a_calibration():
    pipe = make_pipeline(PolynomialFeatures(2, include_bias=False), bdl.Regressor()).fit(X, Y)
    expected = bdl.calibration(pipe[-1], pipe[:-1].transform(X), Y)
    pd.testing.assert_frame_equal(bdl.calibration(pipe, X, Y).table, expected.table)
    bare = make_pipeline(bdl.Classifier()).fit(X, WORDS)
    assert bdl.calibration(bare, X, WORDS).rows == 40


def test_public_names_are_listed():
    assert dir(bdl) == sorted(bdl.__all__)
    assert bdl.Fitted is type(regressed().fitted_)
    page = pydoc.render_doc(bdl.api, renderer=pydoc.plaintext)
    for name in ("class Fitted", "class Regressor", "calibration(", "load("):
        assert f"\n    {name}" in page


def test_a_script_is_checked_strictly():
    """By mypy, with the package: it reads the libraries once, which takes most of its time."""
    root = Path(__file__).parents[2]
    settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["mypy"]
    assert settings["strict"]
    assert "tests/api/typed_script.py" in settings["files"]
    assert "assert_type" in (root / "tests/api/typed_script.py").read_text("utf-8")
    # Without this file mypy takes an installed package for one without types.
    assert (Path(bdl.__file__).parent / "py.typed").is_file()


def test_searches_find_flat_hyper_parameters():
    grid = {"prior_precision": [1e-3, 1e6]}
    search = GridSearchCV(bdl.Regressor(noise_precision=4.0), grid, cv=3).fit(X, Y)
    assert search.best_params_ == {"prior_precision": 1e-3}
    assert search.best_estimator_.fitted_.hyper == {
        "prior_precision": 1e-3,
        "noise_precision": 4.0,
    }
    assert cross_val_score(bdl.Classifier(prior_precision=0.1), X, WORDS, cv=3).mean() > 0.8
    both = bdl.Regressor(hyper=EXACT, noise_precision=9.0)
    assert clone(both).fit(X, Y).fitted_.hyper == {"prior_precision": 1.0, "noise_precision": 9.0}
    pipe = make_pipeline(
        PolynomialFeatures(2, include_bias=False), bdl.Regressor(noise_precision=4.0)
    ).fit(X, Y)
    _, deviation = pickle.loads(pickle.dumps(pipe)).predict(X, return_std=True)
    assert (deviation > 0.5).all()


def test_random_state_decides():
    first, same, other = (
        regressed(method="bbb", **LIVE, random_state=seed).predict(X) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)
    made = bdl.Regressor("bbb", **LIVE, random_state=np.random.RandomState(3))
    assert not np.array_equal(made.fit(X, Y).predict(X), made.fit(X, Y).predict(X))


def test_a_module_at_hand_is_the_model_and_stays_as_it_is(tmp_path):
    net = nn.Linear(2, 1).double()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    found = fitted(net)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    # A module's predictions are of draws, and those of a linear model are exact.
    np.testing.assert_allclose(found.predict(X), fitted("linear").predict(X), rtol=0.01)
    found.save(tmp_path / "fit")
    np.testing.assert_array_equal(bdl.load(tmp_path / "fit").predict(X), found.predict(X))
    np.testing.assert_array_equal(
        regressed(method="bbb", model=net, **LIVE).predict(X), found.predict(X)
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"nothing", "fit is not a saved fit"),
        (pickle.dumps([1]), "fit has list in it: give a file that Fitted.save wrote"),
        (b"\x80\x05\x8e\xff\xff\xff\xff\xff\xff\xff\xff.", "fit is not a saved fit"),
        (None, "No such file"),
    ],
)
def test_what_is_no_saved_fit(tmp_path, content, message):
    if content is not None:
        (tmp_path / "fit").write_bytes(content)
    with pytest.raises(InputError, match=message):
        bdl.load(tmp_path / "fit")


@parametrize_with_checks([bdl.Regressor()])
def test_the_regressor_is_an_estimator_of_scikit_learn(estimator, check):
    check(estimator)


@parametrize_with_checks([bdl.Classifier()])
@pytest.mark.slow  # some fifty checks that fit
def test_the_classifier_is_an_estimator_of_scikit_learn(estimator, check):
    check(estimator)


MANY = np.random.default_rng(0).normal(size=(4000, 2))
NOISY = MANY @ [2.0, -1.0] + 0.5 * np.random.default_rng(1).standard_normal(4000)
TRAINED, TESTED = slice(0, 1000), slice(1000, None)


def test_coverage_and_reliability_are_those_by_hand():
    """Of F(y) = 0.5, 0.7, 0.05, 1 the central intervals with probability 0, 0.4, 0.9 and 1 are the first with y."""
    found = coverage(np.array([0.5, 0.7, 0.05, 1.0]), np.array([0.1, 0.39, 0.41, 0.95, 1.0]))
    assert found.tolist() == [0.25, 0.25, 0.5, 0.75, 1.0]
    confidence, accuracy, rows = reliability(
        np.array([0.5, 0.6, 1.0, 0.9]), np.array([True, False, True, False]), 2
    )
    assert confidence.tolist() == [0.5, pytest.approx(2.5 / 3)]
    assert accuracy.tolist() == [1, pytest.approx(1 / 3)]
    assert rows.tolist() == [1, 3]


def test_the_right_model_covers_what_it_says():
    """3000 rows: three standard errors of a share are at most 3 sqrt(0.25 / 3000) = 0.027."""
    found = bdl.calibration(
        bdl.Regressor().fit(MANY[TRAINED], NOISY[TRAINED]), MANY[TESTED], NOISY[TESTED]
    )
    assert found.rows == 3000
    assert found.table["level"].tolist() == pytest.approx(
        [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    )
    assert found.table["coverage"].to_numpy() == pytest.approx(
        found.table["level"].to_numpy(), abs=0.028
    )
    (figure,) = found.plot().values()
    assert figure.axes[0].get_xlabel() == "level"
    small = bdl.Regressor(prior_precision=1, noise_precision=100).fit(
        MANY[TRAINED], NOISY[TRAINED]
    )
    table = bdl.calibration(small.fitted_, MANY[TESTED], NOISY[TESTED], bins=2).table
    assert table["coverage"].item() < 0.25, (
        "0.5 of deviations of 0.1 is 0.135 deviations of 0.5, which cover 0.11"
    )


def test_labels_have_a_reliability():
    words = np.where(RNG.uniform(size=4000) < 1 / (1 + np.exp(-NOISY)), "yes", "no")
    fitted = bdl.Classifier().fit(MANY[TRAINED], words[TRAINED])
    found = bdl.calibration(fitted, MANY[TESTED], words[TESTED], bins=4)
    codes = (words[TESTED] == "yes").astype(int)
    pd.testing.assert_frame_equal(
        bdl.calibration(fitted.fitted_, MANY[TESTED], codes, bins=4).table, found.table
    )
    assert found.table["rows"].sum() == 3000
    assert found.table["accuracy"].to_numpy() == pytest.approx(
        found.table["confidence"].to_numpy(), abs=0.06
    )
    (figure,) = found.plot().values()
    assert figure.axes[0].get_ylabel() == "accuracy"


@pytest.mark.parametrize("as_callers_have_them", [np.array, torch.tensor, pd.DataFrame])
def test_a_fit_keeps_its_numbers_when_the_callers_arrays_change(as_callers_have_them):
    rows, targets = as_callers_have_them(X), np.array(Y)
    fitted = bdl.fit("conjugate", "linear", "gaussian", rows, targets, EXACT)
    expected = fitted.predict(X[:5])
    rows *= 2
    targets += 100
    np.testing.assert_array_equal(fitted.predict(X[:5]), expected)


def test_columns_whose_names_are_no_text_are_in_order():
    frame = pd.DataFrame(X)
    model = bdl.Regressor(hyper=EXACT).fit(frame, Y)
    np.testing.assert_array_equal(model.predict(frame), model.predict(X))
    for other in (frame[[1, 0]], frame.rename(columns={0: 9})):
        with pytest.raises(
            InputError, match="give those that were fitted, '0', '1', in their ord"
        ):
            model.predict(other)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (np.ma.array(WORDS, mask=[True] + [False] * 39), "y has masked values"),
        (np.array(["NaT"] + ["2026-01-01"] * 20 + ["2026-01-02"] * 19, "M8[D]"), r"gaps \(NaT\)"),
        (pd.Series(WORDS, dtype="string").where(np.arange(40) > 0), r"gaps \(<NA>\)"),
    ],
)
def test_hidden_labels_are_no_class(labels, reason):
    with pytest.raises(InputError, match=reason):
        bdl.Classifier().fit(X, labels)


def test_fits_do_not_mind_that_the_caller_wants_no_gradients():
    with torch.inference_mode():
        within = bdl.Classifier().fit(X, WORDS).predict_proba(X)
    np.testing.assert_array_equal(within, bdl.Classifier().fit(X, WORDS).predict_proba(X))


def test_a_precision_beside_automatic_ones_is_positive():
    with pytest.raises(InputError, match="prior_precision is 0: give a positive number"):
        bdl.Regressor(prior_precision=0).fit(X, Y)


@pytest.mark.parametrize("unit", [1.6e-19, 1e20])
def test_a_unit_that_float32_does_not_hold_is_refused(unit):
    network = bdl.Regressor("bbb", {"name": "mlp", "hidden": [5]}, training=LIVE["training"])
    with pytest.raises(InputError, match="beyond what float32 holds: state the target in another"):
        network.fit(X, Y * unit)


@pytest.mark.parametrize(
    "method", ["last-layer-laplace", "swag", "multi-swag", "sgd-iterates", "sgld", "csgmcmc"]
)
def test_automatic_training_leaves_epochs_before_and_after_a_warm_up(method):
    """Of few and of many rows: 1,000 updates at the least descend."""
    rng = np.random.default_rng(2)
    for n in (64, 3000):
        x = rng.normal(size=(n, 3))
        y = np.tanh(2 * x[:, 0]) + 0.1 * rng.normal(size=n)
        rate = 0.001 if method == "csgmcmc" else 0.01
        hyper = {"learning_rate": rate, "prior_precision": 1.0, "noise_precision": 100.0}
        fitted = bdl.fit(method, {"name": "mlp", "hidden": [5]}, "gaussian", x, y, hyper)
        settings, training = fitted.cell.settings.method.settings, fitted.cell.settings.training
        idle = fitted.cell.settings.method.build().idle_epochs
        assert 0 < idle < training.epochs
        if method == "last-layer-laplace":
            assert settings["descent_epochs"] == training.epochs - 1
        assert np.std(y - fitted.predict(x)) < 0.5 * np.std(y)


def test_a_warm_up_that_the_caller_gives_comes_before_the_training():
    method = {"name": "swag", "warmup_epochs": 700}
    hyper = {"learning_rate": 0.01, "prior_precision": 1.0, "noise_precision": 1.0}
    fitted = bdl.fit(method, {"name": "mlp", "hidden": [2]}, "gaussian", X, Y, hyper)
    assert fitted.cell.settings.training.epochs == 700 + 2000 // (40 // 20)


def test_the_warm_up_of_cycles_that_the_caller_gives_is_half_of_one():
    method = {"name": "csgmcmc", "cycle_epochs": 20}
    hyper = {"learning_rate": 0.001, "prior_precision": 1.0, "noise_precision": 1.0}
    fitted = bdl.fit(method, {"name": "mlp", "hidden": [2]}, "gaussian", X, Y, hyper)
    settings = fitted.cell.settings.method.build()
    assert (settings.cycle_epochs, settings.warmup_epochs) == (20, 10)


def test_quantiles_at_the_ends_are_those_of_the_components():
    law = bdl.fit("bbb", "linear", "gaussian", X, Y, **LIVE).predict_distribution(X[:3])
    ends = law.icdf(torch.tensor([[0.0], [1.0]], dtype=torch.float64))
    assert ends[0].tolist() == [-np.inf] * 3
    assert ends[1].tolist() == [np.inf] * 3
    members = torch.distributions.Uniform(
        torch.tensor([[0.0, 1, 2]]), torch.tensor([[1.0, 3, 7]]), validate_args=False
    )
    ends = EqualMixture.of(members).icdf(torch.tensor([[0.0], [1.0]]))
    assert ends.flatten().tolist() == [0, 7]
