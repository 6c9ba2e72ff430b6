"""Functions of one input under stored posteriors."""

import numpy as np
import pytest
import torch

from bdl.errors import InputError
from bdl.plan.planning import cells_of
from bdl.posteriors import FullGaussian
from bdl.publishing.pictures import POINTS, bands
from bdl.references.base import Truth
from bdl.spec import load_benchmark
from bdl.store import Outcome, Row, artefacts

SAMPLES = 4000
MEAN, COVARIANCE = np.array([2.0, -1.0]), np.array([[0.5, 0.2], [0.2, 0.3]])
TEXT = """
name: line
title: Line
datasets: [{}]
splits: 1
preparation: {{standardise: {}}}
entries:
  line:
    model: {{name: linear}}
    likelihood: {{name: {}}}
    method: {{name: {}}}
    hyper: {}
evaluation: {{samples: {}}}
metrics: [neg_elbo]
"""


@pytest.fixture
def fitted(tmp_path, store):
    """A cell whose fit has left N(MEAN, COVARIANCE) over the slope and the offset."""

    def make(dataset="cubic", standardise="none", status="ok", labels=False):
        path = tmp_path / "line.yaml"
        hyper = {"prior_precision": 0.01} | ({} if labels else {"noise_precision": 0.1})
        settings = ("bernoulli", "laplace") if labels else ("gaussian", "conjugate")
        path.write_text(TEXT.format(dataset, standardise, *settings, hyper, SAMPLES))
        (cell,) = cells_of(load_benchmark(path.as_posix()))
        row = Row(*cell.key, "final", 0, 0, 0, status, None, hyper, {}, 1.0, {})
        root = torch.linalg.cholesky(torch.from_numpy(COVARIANCE))
        content = artefacts.encode(FullGaussian(torch.from_numpy(MEAN), root), {})
        store.append([Outcome(row, (), content if status == "ok" else None)])
        return cell

    return make


@pytest.mark.parametrize("standardise", ["none", "both"])
def test_moments_are_those_of_the_lines(fitted, store, standardise):
    """A line w x + b with (w, b) ~ N(m, S) has mean and variance in closed form; within 4.5 standard errors."""
    cell = fitted(standardise=standardise)
    (found,) = bands([cell], store)
    data = cell.data
    shift, scale, unit, origin = 0.0, 1.0, 1.0, 0.0
    if standardise == "both":
        shift, scale, unit, origin = data.x.mean(), data.x.std(), data.y.std(), data.y.mean()
    design = np.stack([(found.x - shift) / scale, np.ones(POINTS)], 1)
    sd = unit * np.sqrt(np.einsum("ni,ij,nj->n", design, COVARIANCE, design))
    assert (np.abs(found.mean - origin - unit * design @ MEAN) < 4.5 * sd / np.sqrt(SAMPLES)).all()
    np.testing.assert_allclose(found.sd, sd, rtol=4.5 / np.sqrt(2 * SAMPLES))
    np.testing.assert_array_equal(found.inputs, data.x[:, 0])
    np.testing.assert_allclose(found.targets, data.y, rtol=1e-12)
    np.testing.assert_allclose(found.quartiles[1], found.mean, atol=6 * found.sd.max() / np.sqrt(SAMPLES))
    quarter = (found.quartiles[2] - found.quartiles[0]) / 2  # 0.6745 sd; each quartile has a standard error of 1.36 sd
    np.testing.assert_allclose(quarter, 0.6745 * found.sd, atol=6 * found.sd.max() / np.sqrt(SAMPLES))
    reach = np.ptp(data.x)
    np.testing.assert_allclose(found.x[[0, -1]], [data.x.min() - reach / 2, data.x.max() + reach / 2])


def test_of_two_classes_it_is_the_probability_of_the_second(fitted, store):
    """Quartiles pass through the sigmoid; within 6 standard errors of a quartile, at most a quarter of those before."""
    (found,) = bands([fitted("overlapping_classes", labels=True)], store)
    design = np.stack([found.x, np.ones(POINTS)], 1)
    sd = np.sqrt(np.einsum("ni,ij,nj->n", design, COVARIANCE, design))
    expected = [design @ MEAN + z * sd for z in (-0.6745, 0, 0.6745)]
    error = 6 * 1.36 * sd.max() / 4 / np.sqrt(SAMPLES)
    np.testing.assert_allclose(found.quartiles, 1 / (1 + np.exp(-np.array(expected))), atol=error)
    assert found.labels
    assert set(found.targets) == {0.0, 1.0}


def test_pieces_change_nothing_but_rounding(fitted, store, monkeypatch):
    cell = fitted()
    (whole,) = bands([cell], store)
    monkeypatch.setattr("bdl.metrics.predictions._PARAMETERS_AT_ONCE", 14)
    (pieces,) = bands([cell], store)
    np.testing.assert_allclose(pieces.sd, whole.sd, rtol=1e-5)
    np.testing.assert_allclose(pieces.mean, whole.mean, rtol=1e-5, atol=1e-5)


def test_data_with_several_inputs_have_none(fitted, store):
    assert bands([fitted("synthetic")], store) == []


def test_a_fit_that_failed_has_none(fitted, store):
    assert bands([fitted(status="failed")], store) == []


def test_draws_of_a_sampled_reference_come_first(fitted, store, monkeypatch):
    """Under the name of the truth, once a data set; draws that broke a rule are not shown."""
    root = torch.linalg.cholesky(torch.from_numpy(COVARIANCE))
    noise = torch.randn(4, 1000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    nothing = torch.zeros(0, dtype=torch.float64)
    known = Truth(nothing, nothing.reshape(0, 0), {}, torch.from_numpy(MEAN) + noise @ root.T)
    monkeypatch.setattr("bdl.publishing.pictures.recipe", lambda *_: "sampled")
    monkeypatch.setattr("bdl.publishing.pictures.truth", lambda *_: known)
    cell = fitted()
    first, second, third = bands([cell, cell], store)
    assert [first.entry, second.entry, third.entry] == ["truth", "line", "line"]
    np.testing.assert_allclose(first.sd, second.sd, rtol=0.1)  # deviations of 4000 draws each are known to 1 %

    def refused(*_):
        raise InputError("reference refused")

    monkeypatch.setattr("bdl.publishing.pictures.truth", refused)
    assert [band.entry for band in bands([cell], store)] == ["line"]
