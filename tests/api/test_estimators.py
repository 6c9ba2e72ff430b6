"""Defaults that do not depend on units, the classifier, and what scikit-learn does with both estimators."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import bdl
from bdl.errors import InputError

EXACT = {"prior_precision": 1.0, "noise_precision": 4.0}
RNG = np.random.default_rng(0)
X = RNG.normal(3, 2, (40, 2))
Y = 100 + X @ [2.0, -1.0] + 0.5 * RNG.standard_normal(40)
WORDS = np.where(X[:, 0] > 3, "yes", "no")


def diabetes():
    return load_diabetes(return_X_y=True)


def houses():
    """Prices that are skewed, with a noise that grows with them, of inputs in very different units."""
    rng = np.random.default_rng(1)
    x = rng.lognormal(0, 0.5, (600, 5)) * [1, 10, 1000, 0.1, 30]
    price = 0.5 + 0.4 * x[:, 0] + 0.02 * x[:, 1] + 3 * x[:, 3]
    return x, np.minimum(price * rng.lognormal(0, 0.3, 600), 5.0)


def covered(method, data, unit):
    """Share of the targets of every fourth row within their central 90 % interval, fitted on the others."""
    x, y = data()
    tested = np.arange(len(y)) % 4 == 0
    estimator = bdl.Regressor(method).fit(x[~tested], unit * y[~tested])
    low, high = estimator.predict_interval(x[tested]).T
    return np.mean((low <= unit * y[tested]) & (unit * y[tested] <= high))


@pytest.mark.parametrize("unit", [1e-3, 1e3])
@pytest.mark.parametrize("data", [diabetes, houses])
@pytest.mark.parametrize(
    "method",
    ["conjugate", "laplace", *(pytest.param(name, marks=pytest.mark.slow) for name in ("vifa", "bbb"))],
)
def test_intervals_cover_what_they_say_in_any_unit(method, data, unit):
    assert 0.80 <= covered(method, data, unit) <= 0.97


def test_the_defaults_are_those_of_evidence():
    """As scikit-learn's, whose flat hyper-priors of 1e-6 and unpenalised intercept change the fourth digit."""
    x, y = diabetes()
    scaled = (x - x.mean(0)) / x.std(0)
    ridge = BayesianRidge().fit(scaled, (y - y.mean()) / y.std())
    hyper = bdl.Regressor().fit(x, y).fitted_.hyper
    assert hyper["noise_precision"] * y.var() == pytest.approx(ridge.alpha_, rel=0.01)
    assert hyper["prior_precision"] == pytest.approx(ridge.lambda_, rel=0.15)  # of ten weights, and here a bias of 0


def test_a_network_is_searched():
    x = RNG.uniform(-2, 2, (120, 1))
    y = 1000 * (np.sin(2 * x[:, 0]) + 0.1 * RNG.standard_normal(120))
    training = {"epochs": 30, "batch_size": 20}
    net = nn.Sequential(nn.Linear(1, 10), nn.Tanh(), nn.Linear(10, 1))
    fitted = bdl.fit("bbb", net, "gaussian", x, y, training=training)
    assert set(fitted.hyper) == {"prior_precision", "noise_precision", "learning_rate"}
    assert np.isfinite(fitted.predict(x)).all()
    assert 1 <= fitted.hyper["noise_precision"] * y.var() <= 1e3


def test_one_is_chosen_and_the_others_stay():
    fitted = bdl.fit("conjugate", "linear", "gaussian", X, Y, {"prior_precision": 2.0, "noise_precision": "auto"})
    assert fitted.hyper["prior_precision"] == 2.0
    assert 1 < fitted.hyper["noise_precision"] < 20  # 4, of 40 rows
    with pytest.raises(InputError, match=r"^hyper\.kl_weight: there is no automatic choice: give a number"):
        bdl.fit("noisy-adam", "linear", "gaussian", X, Y)


def test_quantiles_undo_the_distribution_function():
    found = bdl.Regressor().fit(X, Y).predict_distribution(X)
    for level in (0.01, 0.5, 0.999):
        ends = found.icdf(torch.tensor(level, dtype=torch.float64))
        np.testing.assert_allclose(found.cdf(ends), level, atol=1e-9)


def test_a_wrong_level_of_an_interval():
    estimator = bdl.Regressor().fit(X, Y)
    with pytest.raises(InputError, match="level: Input should be less than 1"):
        estimator.predict_interval(X, 90)
    with pytest.raises(InputError, match="labels have no intervals"):
        bdl.Classifier().fit(X, WORDS).fitted_.predict_interval(X)


def test_a_classifier_knows_its_labels():
    classifier = bdl.Classifier().fit(X, WORDS)
    assert classifier.classes_.tolist() == ["no", "yes"]
    assert classifier.score(X, WORDS) > 0.9
    probabilities = classifier.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    np.testing.assert_array_equal(classifier.predict(X), classifier.classes_[probabilities.argmax(1)])


def test_a_classifier_of_several_classes():
    x, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    classifier = bdl.Classifier().fit(x, names)
    assert classifier.predict_proba(x).shape == (150, 3)
    assert classifier.score(x, names) > 0.95


def test_each_estimator_refuses_the_likelihoods_of_the_other():
    with pytest.raises(ValueError, match=r"'bernoulli' describes labels: use bdl.Classifier"):
        bdl.Regressor(likelihood="bernoulli").fit(X, X[:, 0] > 3)
    with pytest.raises(ValueError, match=r"'gaussian' describes numbers: use bdl.Regressor"):
        bdl.Classifier(likelihood="gaussian").fit(X, WORDS)
    with pytest.raises(ValueError, match="y has one class"):
        bdl.Classifier().fit(X, ["a"] * 40)


def test_weights_of_rows_are_refused():
    with pytest.raises(InputError, match=r"^sample_weight: the methods count every row once"):
        bdl.Regressor().fit(X, Y, sample_weight=np.ones(40))
    with pytest.raises(InputError, match=r"^fit: unknown argument 'sample_weights'"):
        bdl.Classifier().fit(X, WORDS, sample_weights=np.ones(40))


def test_searches_find_flat_hyper_parameters():
    grid = {"prior_precision": [1e-3, 1e6]}
    search = GridSearchCV(bdl.Regressor(noise_precision=4.0), grid, cv=3).fit(X, Y)
    assert search.best_params_ == {"prior_precision": 1e-3}
    assert search.best_estimator_.fitted_.hyper == {"prior_precision": 1e-3, "noise_precision": 4.0}
    assert cross_val_score(bdl.Classifier(prior_precision=0.1), X, WORDS, cv=3).mean() > 0.8
    both = bdl.Regressor(hyper=EXACT, noise_precision=9.0)
    assert clone(both).fit(X, Y).fitted_.hyper == {"prior_precision": 1.0, "noise_precision": 9.0}


def test_pickles_predict_the_same():
    classifier = bdl.Classifier().fit(X, WORDS)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(classifier)).predict_proba(X), classifier.predict_proba(X))


def test_random_state_decides():
    settings = {"method": "bbb", "hyper": EXACT | {"learning_rate": 0.01}, "training": {"epochs": 2, "batch_size": 20}}
    first, same, other = (bdl.Regressor(**settings, random_state=seed).fit(X, Y).predict(X) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)
    made = bdl.Regressor(**settings, random_state=np.random.RandomState(3))
    assert not np.array_equal(made.fit(X, Y).predict(X), made.fit(X, Y).predict(X))
    with pytest.raises(InputError, match=r"^random_state: "):
        bdl.Regressor(random_state="one").fit(X, Y)


LIVE = {"hyper": EXACT | {"learning_rate": 0.01}, "training": {"epochs": 3, "batch_size": 20}}


def test_a_module_at_hand_is_the_model_and_stays_as_it_is(tmp_path):
    net = nn.Linear(2, 1).double()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    fitted = bdl.fit("bbb", net, "gaussian", X, Y, **LIVE)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    linear = bdl.fit("bbb", "linear", "gaussian", X, Y, **LIVE)
    np.testing.assert_allclose(fitted.predict(X), linear.predict(X), rtol=1e-5)
    fitted.save(tmp_path / "fit")
    np.testing.assert_array_equal(bdl.load(tmp_path / "fit").predict(X), fitted.predict(X))
    estimator = bdl.Regressor("bbb", net, **LIVE)
    np.testing.assert_array_equal(clone(estimator).fit(X, Y).predict(X), fitted.predict(X))


def test_a_module_that_does_not_fit_is_told_in_one_line():
    with pytest.raises(InputError, match=r"^model Linear: rows of shape \(2,\) fail: RuntimeError"):
        bdl.fit("bbb", nn.Linear(3, 1), "gaussian", X, Y, **LIVE)
    with pytest.raises(InputError, match=r"^model Linear gives outputs \(2, 2\) for 2 rows: make it \(2, 1\)"):
        bdl.fit("bbb", nn.Linear(2, 2), "gaussian", X, Y, **LIVE)


def test_what_is_no_saved_fit(tmp_path):
    (tmp_path / "text").write_text("nothing")
    with pytest.raises(InputError, match="text is not a saved fit"):
        bdl.load(tmp_path / "text")
    (tmp_path / "other").write_bytes(pickle.dumps([1]))
    with pytest.raises(InputError, match=r"other has list in it: give a file that Fitted.save wrote"):
        bdl.load(tmp_path / "other")
    with pytest.raises(InputError, match="No such file"):
        bdl.load(tmp_path / "none")


def test_messages_do_not_speak_of_a_file():
    with pytest.raises(InputError, match=r"^training: no update fits into 40 rows"):
        bdl.fit("bbb", "linear", "gaussian", X, Y, **LIVE | {"training": {"epochs": 2, "batch_size": 50}})


@parametrize_with_checks([bdl.Classifier()])
@pytest.mark.slow  # some fifty checks that fit
def test_the_classifier_is_an_estimator_of_scikit_learn(estimator, check):
    check(estimator)
