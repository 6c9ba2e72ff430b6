"""Simulations: laws and moments that are declared or printed, and targets that follow from the parameters.

A variance of n draws is within five standard errors, sqrt(2 / n) of it each.
"""

import numpy as np
import pytest
from scipy.special import expit

from bdl.data import DATASETS, load_dataset, prepare_dataset
from bdl.data.simulations import UnitTeacher, draw_logistic_problem
from bdl.data.teachers import PriorDraws, SparseLinear, SparseNetwork
from bdl.registry import Label


def five_errors(variance: float, count: int):
    return pytest.approx(variance, rel=5 * (2 / count) ** 0.5)


@pytest.mark.parametrize(
    ("name", "task", "shape", "splits", "train", "test"),
    [
        ("synthetic", "regression", (10_000, 2), 10, 1000, 0),
        ("synthetic_logistic", "classification", (30_000, 2), 10, 3000, 0),
        ("sparse_linear", "regression", (2500, 1000), 5, 250, 250),
        ("sparse_network", "regression", (2200, 200), 5, 220, 220),
        ("teacher_unit", "regression", (20_000, 100), 10, 1000, 1000),
        ("teacher_network", "regression", (12_200, 200), 10, 220, 1000),
        ("prior_draws", "regression", (33_000, 3), 300, 100, 10),
        ("waves", "regression", (12_000, 1), 10, 200, 1000),
        ("overlapping_classes", "classification", (12_000, 1), 10, 200, 1000),
        ("gap_curve", "regression", (1410, 1), 10, 40, 101),
        ("two_moons", "classification", (3000, 2), 10, 100, 200),
    ],
)
def test_each_split_is_a_draw_of_its_own(name, task, shape, splits, train, test):
    data = load_dataset(name)
    assert (data.name, data.task, data.x.shape, data.splits, data.simulated) == (
        name,
        task,
        shape,
        splits,
        True,
    )
    rows = np.arange(len(data.y)).reshape(splits, train + test)
    for index in (0, 3, splits - 1):
        assert [part.tolist() for part in data.split(index)[:2]] == [
            rows[index, :train].tolist(),
            rows[index, train:].tolist(),
        ]
    assert not np.array_equal(data.y[rows[0]], data.y[rows[3]])


def assert_declared_covariance(x):
    """Within 4.5 standard errors: an entry of a sample covariance has the variance (s_ii s_jj + s_ij^2) / n."""
    declared = np.array([[1, 0.5], [0.5, 1]])
    assert (np.abs(np.cov(x.T) - declared) < 4.5 * np.sqrt((1 + declared**2) / len(x))).all()


def test_synthetic_draws_follow_the_declared_model_and_are_those_of_the_thesis():
    """With its decay lambda = 0.1, SGD hovers about a ridge estimate far from the posterior mean (Table 4.1, row 1).

    The table prints a relative distance of 0.0666 for the noisy averages; other draws differ by
    its standard error over draws, 0.0078.
    """
    data, distances = load_dataset("synthetic"), []
    assert_declared_covariance(data.x)
    for index in range(10):
        rows = data.split(index).train
        x, y = data.x[rows], data.y[rows]
        residual = y - x @ np.linalg.lstsq(x, y)[0]
        assert residual.var(ddof=2) == pytest.approx(10, abs=4.5 * 10 * np.sqrt(2 / 998))
        mean = np.linalg.solve(0.01 * np.eye(2) + 0.1 * x.T @ x, 0.1 * x.T @ y)
        ridge = np.linalg.solve(2 * x.T @ x / 1000 + 0.1 * np.eye(2), 2 * x.T @ y / 1000)
        distances.append(np.linalg.norm(ridge - mean) / np.linalg.norm(mean))
    assert np.mean(distances) == pytest.approx(0.0666, abs=0.001)
    assert np.std(distances, ddof=1) / np.sqrt(10) == pytest.approx(0.0078, abs=0.0003)


def test_logistic_draws_follow_the_declared_model_and_the_first_is_that_of_the_paper():
    """Appendix B.2 of the VIFA paper.

    The mean that it found for the parameters is (10.5188, 4.0477).
    """
    _, labels, theta = draw_logistic_problem(1)
    np.testing.assert_array_equal(np.round(theta, 4), [10.7279, 3.9858])
    assert labels.sum() == 1524
    data = load_dataset("synthetic_logistic")
    assert_declared_covariance(data.x)
    for index in range(10):
        rows, (x, y, theta) = data.split(index).train, draw_logistic_problem(index + 1)
        np.testing.assert_array_equal(data.x[rows], x)
        np.testing.assert_array_equal(data.y[rows], y)
        # the score of the true parameters has mean zero and the Fisher information as its
        # covariance
        p = expit(x @ theta)
        score, information = x.T @ (y - p), (x.T * (p * (1 - p))) @ x
        assert score @ np.linalg.solve(information, score) < 23, (
            "chi-square of 2 degrees, probability 1e-5"
        )


def test_the_cubic_follows_its_recipe():
    """NumPy's legacy generator with seed 1: x first, then the noise of sd 3.

    The outlier is the last row.
    """
    data, outlier = (
        load_dataset("cubic"),
        load_dataset(Label("cubic_outlier", "cubic", {"variant": "outlier"})),
    )
    generator = np.random.RandomState(1)
    x = generator.uniform(-4, 4, size=30)
    noise = 3 * generator.standard_normal(30)
    np.testing.assert_array_equal(data.x[:, 0], x)
    np.testing.assert_allclose(data.y - x**3, noise, atol=1e-12)
    assert [len(part) for part in data.split(0)] == [30, 0, 0]
    x[-1] = 8
    np.testing.assert_array_equal(outlier.x[:, 0], x)
    np.testing.assert_allclose(outlier.y - x**3, noise, atol=1e-12)
    assert outlier.name == "cubic_outlier"


def test_the_linear_teacher():
    """Counts of Table 4.4 (2018)."""
    data, draw = load_dataset("sparse_linear"), SparseLinear()
    for index in range(5):
        weights, split = draw.weights(index), data.split(index)
        sizes = np.abs(weights)
        assert ((sizes < 0.05).sum(), (sizes < 0.25).sum(), (sizes >= 30).sum()) == (990, 990, 10)
        assert sizes.max() < 60
        for rows in split[:2]:
            assert (data.y[rows] - data.x[rows] @ weights).var() == five_errors(3, 250)
    assert data.x.mean() == pytest.approx(2, abs=0.01)
    assert data.x.var() == pytest.approx(4, rel=0.01)


def test_the_network_teacher():
    """Counts of Table 4.5 (2018)."""
    data = load_dataset("sparse_network")
    first, second, last = SparseNetwork().weights(3)
    assert ((np.abs(first) < 1e-4).sum(), (np.abs(first) >= 1).sum()) == (39_800, 200)
    assert ((first[-1] >= 4) & (first[-1] <= 6)).all()
    assert np.array_equal(first[:-1], np.zeros((199, 200)))
    assert np.abs(last).max() < 0.1
    train = data.split(3).train
    only = (
        np.maximum(data.x[train] @ first[-1], 0) * second[-1, -1] * last[0, -1]
    )  # one unit of a layer does anything
    assert (data.y[train] - only).var() == five_errors(1, 220)


def test_targets_of_a_sparse_teacher_of_sigmoid_units_are_noise():
    """Weights and inputs are those of rectified units; 199 units of the first layer are 1/2.

    The second layer adds up to some 500, where the sigmoid is 1 to double precision.
    """
    teacher = SparseNetwork(activation="sigmoid")
    data, rectified = teacher(), SparseNetwork()()
    np.testing.assert_array_equal(data.x, rectified.x)
    for index in range(5):
        first, second, last = teacher.weights(index)
        split = data.split(index)
        rows = np.concatenate([split.train, split.test])
        signal = expit(expit(data.x[rows] @ first.T) @ second.T) @ last[0]
        assert signal.std() < 1e-12
        assert data.y[rows].var() == five_errors(1, 440)


def test_a_unit_as_teacher():
    data = UnitTeacher(rows=4000)()
    assert (data.x.mean(), data.x.var()) == (
        pytest.approx(2, abs=0.01),
        pytest.approx(4, rel=0.01),
    )
    train, test, _ = data.split(7)
    weights, residual, *_ = np.linalg.lstsq(data.x[train], data.y[train], rcond=None)
    assert residual / 3900 == five_errors(3, 3900)
    assert weights.var() == five_errors(1 / 25, 100)
    assert ((data.x[test] @ weights - data.y[test]) ** 2).mean() == pytest.approx(3, rel=0.25)


@pytest.mark.parametrize(
    ("small", "large"),
    [
        (UnitTeacher(rows=100), UnitTeacher(rows=250)),
        (PriorDraws(draws=2, rows=5), PriorDraws(draws=3, rows=9)),
    ],
)
def test_smaller_draws_are_parts_of_larger_ones(small, large):
    one, other = small(), large()
    a, b = one.split(1), other.split(1)
    assert np.array_equal(one.x[a.train], other.x[b.train[: small.rows]])
    assert np.array_equal(one.y[a.train], other.y[b.train[: small.rows]])
    assert np.array_equal(one.y[a.test], other.y[b.test])


@pytest.mark.parametrize("activation", ["identity", "tanh"])
@pytest.mark.parametrize("snr", [1.0, 10.0])
def test_signal_and_noise_have_the_ratio(activation, snr):
    """The same draw with next to no noise is the signal."""
    noisy, clean = (
        UnitTeacher(rows=128, activation=activation, snr=value)() for value in (snr, 1e12)
    )
    rows = slice(0, 1128)  # the first draw
    noise = noisy.y[rows] - clean.y[rows]
    assert clean.y[rows].var() / noise.var() == five_errors(snr, 1128)
    assert (np.abs(clean.y).max() <= 1 + 1e-4) == (activation == "tanh")


def test_a_network_as_teacher():
    data = load_dataset("teacher_network")
    test = data.split(9).test
    generator = np.random.default_rng(9)
    hidden, last = generator.normal(size=(200, 200)), generator.normal(size=200)
    assert (data.y[test] - expit(data.x[test] @ hidden.T) @ last).var() == five_errors(1, 1000)


@pytest.mark.parametrize("variance", [0.02, 0.0004])
def test_waves_come_from_the_same_noise_in_all_places(variance):
    """Inputs are drawn first, then the noise, and the test rows are the first thousand of both."""
    data = DATASETS.build("waves", {"variance": variance})()
    train, test, _ = data.split(0)
    for rows, ends in ((train, (0, 0.5)), (test, (-0.5, 1))):
        assert (data.x[rows].min(), data.x[rows].max()) == pytest.approx(ends, abs=0.01)
    generator = np.random.default_rng(0)
    generator.uniform(size=1200)
    e = np.roll(generator.normal(0, variance**0.5, 1200), -1000)
    x, y = data.x[:1200, 0], data.y[:1200]
    assert np.allclose(
        y - x - e, 0.3 * np.sin(2 * np.pi * (x + e)) + 0.3 * np.sin(4 * np.pi * (x + e))
    )


def test_classes_overlap_in_the_middle():
    data = load_dataset("overlapping_classes")
    for label, ends in ((0, (0, 0.6)), (1, (0.4, 1))):
        own = data.x[data.y == label, 0]
        assert (own.min(), own.max()) == pytest.approx(ends, abs=1e-3)
    assert data.y.mean() == pytest.approx(0.5, abs=0.03)


def test_numbers_of_prior_draws_follow_from_the_parameters():
    data = PriorDraws(draws=200, rows=40, inputs=2, prior_precision=4.0, noise_precision=0.25)()
    assert data.generating.shape == (200, 3)
    assert data.generating.var() == five_errors(0.25, 600)
    assert np.corrcoef(data.x.T)[0, 1] == pytest.approx(0.9, abs=5 * 0.19 / 100)
    f = [
        data.x[np.concatenate(data.split(i))] @ theta[:2] + theta[2]
        for i, theta in enumerate(data.generating)
    ]
    assert (data.y - np.concatenate(f)).var() == five_errors(4, 10_000)


def test_labels_of_prior_draws_have_the_probabilities_of_a_network():
    data = PriorDraws(task="classification", draws=400, inputs=2, hidden=[3])()
    probabilities = []
    for index, theta in enumerate(data.generating):
        x = data.x[data.split(index).train]
        hidden = np.tanh(x @ theta[:6].reshape(3, 2).T + theta[6:9])
        probabilities.append(expit(hidden @ theta[9:12] + theta[12]))
    y = np.concatenate([data.y[data.split(index).train] for index in range(400)])
    p = np.concatenate(probabilities)
    for low, high in ((0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1)):
        chosen = (p > low) & (p <= high)
        error = np.sqrt((p * (1 - p))[chosen].sum()) / chosen.sum()
        assert y[chosen].mean() == pytest.approx(p[chosen].mean(), abs=5 * error)


@pytest.mark.parametrize(
    ("split", "standardise", "known"),
    [("published", "none", True), ("first", "none", False), ("published", "both", False)],
)
def test_parameters_are_known_for_rows_as_they_were_drawn(split, standardise, known):
    assert (
        prepare_dataset(PriorDraws(draws=2)(), split, standardise).generating is not None
    ) is known
