"""The synthetic draws, and the ways in which an experiment prepares a data set."""

import pickle

import numpy as np
import pytest

from bdl.data import Dataset, Split, load, prepare
from bdl.data.simulations import _logistic
from bdl.errors import InputError
from bdl.registry import Label
from bdl.training.trials import fitted_scaling


@pytest.fixture(scope="module")
def synthetic() -> Dataset:
    return load("synthetic")


def test_each_split_is_a_draw_of_its_own(synthetic):
    splits = [synthetic.split(index) for index in range(10)]
    assert all(len(split.train) == 1000 and len(split.test) == 0 for split in splits)
    assert np.array_equal(np.concatenate([split.train for split in splits]), np.arange(10_000))


def test_draws_follow_the_declared_model(synthetic):
    """Moments of the inputs and of the residuals, within 4.5 standard errors."""
    covariance = np.cov(synthetic.x.T)
    declared = np.array([[1, 0.5], [0.5, 1]])
    # var of a sample covariance entry: (s_ii s_jj + s_ij^2) / n
    error = np.sqrt((1 + declared**2) / len(synthetic.x))
    assert (np.abs(covariance - declared) < 4.5 * error).all()
    for index in range(10):
        rows = synthetic.split(index).train
        residual = synthetic.y[rows] - synthetic.x[rows] @ np.linalg.lstsq(synthetic.x[rows], synthetic.y[rows])[0]
        assert residual.var(ddof=2) == pytest.approx(10, abs=4.5 * 10 * np.sqrt(2 / 998))


def test_the_draws_are_those_of_the_thesis(synthetic):
    """With its decay lambda = 0.1, SGD hovers about a ridge estimate far from the posterior mean (Table 4.1, row 1).

    The table prints a relative distance of 0.0666 for the noisy averages; other draws differ by its standard error
    over draws, 0.0078.
    """
    distances = []
    for index in range(10):
        rows = synthetic.split(index).train
        x, y = synthetic.x[rows], synthetic.y[rows]
        mean = np.linalg.solve(0.01 * np.eye(2) + 0.1 * x.T @ x, 0.1 * x.T @ y)
        ridge = np.linalg.solve(2 * x.T @ x / 1000 + 0.1 * np.eye(2), 2 * x.T @ y / 1000)
        distances.append(np.linalg.norm(ridge - mean) / np.linalg.norm(mean))
    assert np.mean(distances) == pytest.approx(0.0666, abs=0.001)
    assert np.std(distances, ddof=1) / np.sqrt(10) == pytest.approx(0.0078, abs=0.0003)


@pytest.fixture(scope="module")
def logistic() -> Dataset:
    return load("synthetic_logistic")


def test_first_logistic_draw_has_the_parameters_of_the_paper(logistic):
    """Appendix B.2 of the VIFA paper; the mean that it found for them is (10.5188, 4.0477)."""
    draw = _logistic(1)
    np.testing.assert_array_equal(np.round(draw.theta, 4), [10.7279, 3.9858])
    rows = logistic.split(0).train
    np.testing.assert_array_equal(logistic.x[rows], draw.x)
    np.testing.assert_array_equal(logistic.y[rows], draw.y)
    assert draw.y.sum() == 1524


def test_logistic_draws_follow_the_declared_model(logistic):
    assert (logistic.task, logistic.classes, logistic.splits, logistic.x.shape) == (
        *("classification", 2, 10),
        (30_000, 2),
    )
    declared = np.array([[1, 0.5], [0.5, 1]])
    error = np.sqrt((1 + declared**2) / len(logistic.x))
    assert (np.abs(np.cov(logistic.x.T) - declared) < 4.5 * error).all()
    for index in range(10):
        split, draw = logistic.split(index), _logistic(index + 1)
        assert split.train.tolist() == list(range(3000 * index, 3000 * (index + 1)))
        assert len(split.test) == 0
        # the score of the true parameters has mean zero and the Fisher information as its covariance
        p = 1 / (1 + np.exp(-draw.x @ draw.theta))
        score, information = draw.x.T @ (draw.y - p), (draw.x.T * (p * (1 - p))) @ draw.x
        assert score @ np.linalg.solve(information, score) < 23, "chi-square of 2 degrees, probability 1e-5"


FIVE = Dataset(
    "five",
    np.arange(10.0).reshape(5, 2),
    np.arange(5.0),
    splits=2,
    published=[Split(np.array([3, 1, 4]), np.array([0, 2])), Split(np.array([0, 1]), np.array([4]))].__getitem__,
)


def test_first_split_is_repeated():
    dataset = prepare(FIVE, "first", "none")
    for index in (0, 1, 7):
        assert dataset.split(index).train.tolist() == [3, 1, 4]
        assert dataset.split(index).test.tolist() == [0, 2]
    assert prepare(FIVE, "published", "none").split(1).train.tolist() == [0, 1]


def test_what_the_first_split_tests_trains():
    dataset = prepare(FIVE, "other-first", "none")
    for index in (0, 1, 7):
        assert [rows.tolist() for rows in dataset.split(index)] == [[0, 2], [], []]


@pytest.mark.parametrize(("scheme", "train"), [("published", [3, 1]), ("first", [3, 1]), ("half", [4, 0])])
def test_first_training_rows_are_kept(scheme, train):
    whole, short = prepare(FIVE, scheme, "none"), prepare(FIVE, scheme, "none", rows=2)
    assert short.split(0).train.tolist() == train == whole.split(0).train[:2].tolist()
    assert short.split(0).test.tolist() == whole.split(0).test.tolist()
    assert (short.splits, short.checksum) == (whole.splits, whole.checksum)


def test_no_more_rows_than_there_are():
    dataset = prepare(FIVE, "published", "none", rows=3)
    assert dataset.split(0).train.tolist() == [3, 1, 4]
    with pytest.raises(
        InputError, match=r"preparation.rows: split 1 of dataset 'five' has 2 training rows, so 3 cannot"
    ):
        dataset.split(1)


def test_prepared_data_pickle():
    dataset = pickle.loads(pickle.dumps(prepare(load("synthetic"), "first", "inputs", rows=9)))
    assert dataset.split(4).train.tolist() == list(range(9))


def test_half_is_what_pandas_sample_leaves(synthetic):
    """The thesis shuffles with ``DataFrame.sample(frac=1, random_state=1)`` and keeps the second half."""
    pandas = pytest.importorskip("pandas")
    diabetes = prepare(load("diabetes"), "half", "inputs")
    order = pandas.Series(range(442)).sample(frac=1, random_state=1).to_numpy()
    for index in (0, 7):
        split = diabetes.split(index)
        assert split.train.tolist() == order[221:].tolist()
        assert len(split.test) == 0
    assert prepare(load("diabetes"), "other-half", "inputs").split(7).train.tolist() == order[:221].tolist()


@pytest.mark.parametrize(("standardise", "inputs", "targets"), [("both", 1, 1), ("inputs", 1, 0), ("none", 0, 0)])
def test_only_what_is_named_is_standardised(standardise, inputs, targets):
    dataset = prepare(load("diabetes"), "published", standardise)
    rows = dataset.split(0).train
    scaling = fitted_scaling(dataset, [rows])
    for part, fitted, values in (("x", inputs, dataset.x[rows]), ("y", targets, dataset.y[rows])):
        mean, scale = getattr(scaling, f"{part}_mean")[0], getattr(scaling, f"{part}_scale")[0]
        np.testing.assert_allclose(mean, values.mean(0) if fitted else np.zeros_like(mean), rtol=1e-12)
        np.testing.assert_allclose(scale, values.std(0) if fitted else np.ones_like(scale), rtol=1e-12)


def test_the_cubic_follows_its_recipe():
    """NumPy's legacy generator with seed 1: x first, then the noise of sd 3."""
    data = load("cubic")
    generator = np.random.RandomState(1)
    x = generator.uniform(-4, 4, size=30)
    noise = 3 * generator.standard_normal(30)
    np.testing.assert_array_equal(data.x[:, 0], x)
    np.testing.assert_allclose(data.y - x**3, noise, atol=1e-12)
    train, test, _ = data.split(0)
    assert (len(train), len(test), data.task) == (30, 0, "regression")
    with pytest.raises(InputError, match="has no split 1"):
        data.split(1)


def test_the_outlier_of_the_cubic_is_its_last_row():
    plain, outlier = load("cubic"), load(Label("cubic_outlier", "cubic", {"variant": "outlier"}))
    np.testing.assert_array_equal(outlier.x[:-1], plain.x[:-1])
    np.testing.assert_array_equal(outlier.y[:-1], plain.y[:-1])
    assert outlier.x[-1, 0] == 8
    assert outlier.y[-1] - 8**3 == pytest.approx(plain.y[-1] - plain.x[-1, 0] ** 3)
    assert outlier.name == "cubic_outlier"
