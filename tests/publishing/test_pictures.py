"""What figures show of stored posteriors: functions of one input, and predictions of labels."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bdl.errors import InputError
from bdl.plan.planning import list_tasks
from bdl.posteriors import FullGaussian, Point
from bdl.publishing import pictures
from bdl.publishing.pictures import GRID_POINTS, evaluate_credible_bands, predict_labels
from bdl.records import posterior_files
from bdl.records.row import FitResult, Row
from bdl.references.base import Truth
from bdl.spec import load_benchmark

SAMPLES = 4000
MEAN, COVARIANCE = np.array([2.0, -1.0]), np.array([[0.5, 0.2], [0.2, 0.3]])
ROOT = torch.linalg.cholesky(torch.from_numpy(COVARIANCE))
TEXT = """
name: small
title: Small
datasets: [{}]
splits: 2
preparation: {{standardise: {}}}
entries:
  linear:
    model: {{name: linear}}
    likelihood: {{name: {}}}
    method: {{name: laplace}}
    hyper: {}
evaluation: {{samples: {}}}
metrics: [{}]
"""


@pytest.fixture
def fitted(tmp_path, store):
    """A linear model on a data set, whose fits have left a posterior.

    By default N(MEAN, COVARIANCE).
    """
    normal = FullGaussian(torch.from_numpy(MEAN), ROOT)

    def make(
        dataset="cubic",
        likelihood="gaussian",
        standardise="none",
        status="ok",
        metrics="nll",
        left=normal,
    ):
        path = tmp_path / "small.yaml"
        hyper = {"prior_precision": 0.01} | (
            {"noise_precision": 0.1} if likelihood == "gaussian" else {}
        )
        path.write_text(TEXT.format(dataset, standardise, likelihood, hyper, SAMPLES, metrics))
        (cell,) = list_tasks(load_benchmark(path.as_posix()))
        content = posterior_files.encode_posterior(left, {}) if status == "ok" else None
        for split in cell.splits:
            row = Row(*cell.key, "final", split, 0, 0, status, None, hyper, {}, 1.0, {})
            store.append([FitResult(row, (), content)])
        return cell

    return make


@pytest.mark.parametrize("standardise", ["none", "both"])
def test_moments_are_those_of_the_lines(fitted, store, standardise):
    """A line w x + b with (w, b) ~ N(m, S) has mean and variance in closed form.

    Within 4.5 standard errors.
    """
    cell = fitted(standardise=standardise, metrics="nmll")
    (found,) = evaluate_credible_bands([cell], store)
    rows = cell.data.split(0).train
    x, y = cell.data.x[rows, 0], cell.data.y[rows]
    shift, scale, unit, origin = (
        (0.0, 1.0, 1.0, 0.0) if standardise == "none" else (x.mean(), x.std(), y.std(), y.mean())
    )
    design = np.stack([(found.x - shift) / scale, np.ones(GRID_POINTS)], 1)
    sd = unit * np.sqrt(np.einsum("ni,ij,nj->n", design, COVARIANCE, design))
    assert (np.abs(found.mean - origin - unit * design @ MEAN) < 4.5 * sd / np.sqrt(SAMPLES)).all()
    np.testing.assert_allclose(found.sd, sd, rtol=4.5 / np.sqrt(2 * SAMPLES))
    np.testing.assert_array_equal(found.inputs, x)
    np.testing.assert_allclose(found.targets, y, rtol=1e-12)
    np.testing.assert_allclose(
        found.quartiles[1], found.mean, atol=6 * found.sd.max() / np.sqrt(SAMPLES)
    )
    quarter = (
        found.quartiles[2] - found.quartiles[0]
    ) / 2  # 0.6745 sd; each quartile has a standard error of 1.36 sd
    np.testing.assert_allclose(
        quarter, 0.6745 * found.sd, atol=6 * found.sd.max() / np.sqrt(SAMPLES)
    )
    np.testing.assert_allclose(
        found.x[[0, -1]], [x.min() - np.ptp(x) / 2, x.max() + np.ptp(x) / 2]
    )


def test_of_two_classes_it_is_the_probability_of_the_second(fitted, store):
    """Quartiles pass through the sigmoid.

    Within 6 standard errors of a quartile, at most a quarter of those before.
    """
    (found,) = evaluate_credible_bands([fitted("overlapping_classes", "bernoulli")], store)
    design = np.stack([found.x, np.ones(GRID_POINTS)], 1)
    sd = np.sqrt(np.einsum("ni,ij,nj->n", design, COVARIANCE, design))
    expected = [design @ MEAN + z * sd for z in (-0.6745, 0, 0.6745)]
    error = 6 * 1.36 * sd.max() / 4 / np.sqrt(SAMPLES)
    np.testing.assert_allclose(found.quartiles, 1 / (1 + np.exp(-np.array(expected))), atol=error)
    assert found.labels
    assert set(found.targets) == {0.0, 1.0}


def test_fits_that_failed_and_data_with_several_inputs_have_none(fitted, store):
    assert evaluate_credible_bands([fitted("synthetic", metrics="nmll")], store) == []
    assert evaluate_credible_bands([fitted(status="failed", metrics="nmll")], store) == []


def test_draws_of_a_sampled_reference_come_first(fitted, store, monkeypatch):
    """Under the name of the truth, once a data set; draws that broke a rule are not shown."""
    noise = torch.randn(
        4, 1000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    nothing = torch.zeros(0, dtype=torch.float64)
    known = Truth(nothing, nothing.reshape(0, 0), {}, torch.from_numpy(MEAN) + noise @ ROOT.T)
    monkeypatch.setattr(pictures, "find_recipe", lambda *_: "sampled")
    monkeypatch.setattr(pictures, "compute_truth", lambda *_: known)
    cell = fitted(metrics="nmll")
    first, second, third = evaluate_credible_bands([cell, cell], store)
    assert [first.entry, second.entry, third.entry] == ["truth", "linear", "linear"]
    np.testing.assert_allclose(
        first.sd, second.sd, rtol=0.1
    )  # deviations of 4000 draws each are known to 1 %

    def refused(*_):
        raise InputError("reference refused")

    monkeypatch.setattr(pictures, "compute_truth", refused)
    assert [band.entry for band in evaluate_credible_bands([cell], store)] == ["linear"]


def test_every_split_is_predicted_with_its_labels_and_risks(fitted, store, monkeypatch):
    """Class 1 has always the probability 0.8.

    Without the score, and of a large model, none is predicted.
    """
    always = Point(
        torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 4.0]).div(4).mul(torch.tensor(4.0).log())
    )
    cell = fitted("two_moons", "categorical", metrics="accuracy, aurc", left=always)
    found = predict_labels([cell], store)
    assert [(fit.dataset, fit.entry) for fit in found] == [("two_moons", "linear")] * 2
    for split, fit in enumerate(found):
        y = cell.data.y[cell.data.split(split).test]
        assert fit.labels.tolist() == y.tolist()
        assert fit.probabilities == pytest.approx(
            torch.tensor([0.2, 0.8]).repeat(len(y), 1).numpy()
        )
        assert [*fit.risks] == ["entropy", "disagreement"]
        for risks in fit.risks.values():  # no row is more certain than another
            assert risks == pytest.approx([(y == 0).mean()] * len(y))
    monkeypatch.setattr(pictures, "MAX_PARAMETERS", 5)
    assert predict_labels([cell], store) == []
    monkeypatch.undo()
    unscored = cell.benchmark.model_copy(update={"metrics": cell.benchmark.metrics[:1]})
    assert predict_labels([replace(cell, benchmark=unscored)], store) == []
