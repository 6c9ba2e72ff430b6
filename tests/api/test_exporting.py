"""Draws for ArviZ, and files in the layout of posteriordb."""

import json
import math
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import bdl
from bdl.errors import InputError
from bdl.metrics import METRICS
from bdl.models.problem import Batch
from bdl.references.base import JudgedDraws
from bdl.references.certificate import Certificate

SPEC = """
name: exported
title: What is exported
datasets: [diabetes]
splits: 1
preparation: {rows: 60}
entries:
  exact:
    model: {name: linear}
    likelihood: {name: gaussian}
    method: {name: conjugate}
    reference: {name: conjugate}
    hyper: {prior_precision: 1, noise_precision: 3e-4}
  ensemble:
    model: {name: mlp, hidden: [2]}
    likelihood: {name: gaussian}
    method: {name: deep-ensemble, members: 3}
    training: {epochs: 1, batch_size: 10}
    hyper: {learning_rate: 0.01, prior_precision: 1, noise_precision: 3e-4}
  answers:
    method: {name: 'bdl.guests.bayesian_ridge:BayesianRidge'}
metrics: [nmll, rmse]
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    (folder / "exported.yaml").write_text(SPEC)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bdl.publishing.published_files.draw_figures", lambda *_, pdf: [])
        return bdl.benchmark(folder / "exported.yaml").run(
            results=folder / "results", compile=False
        )


@pytest.fixture(scope="module")
def exact(run):
    return bdl.posterior(run, "diabetes", "exact")


def chains(path):
    with zipfile.ZipFile(path) as file:
        (name,) = file.namelist()
        found = json.loads(file.read(name))
    return np.array([[chain[f"theta[{i + 1}]"] for i in range(len(chain))] for chain in found])


def test_arviz_gets_draws_and_the_likelihood_of_each_row(run, exact):
    pytest.importorskip("arviz")
    found = exact.to_inferencedata(draws=500, seed=4)
    theta = found.posterior["theta"].values
    assert theta.shape == (1, 500, 11)
    np.testing.assert_array_equal(theta[0], exact.sample(500, seed=4))
    rows = exact.evaluation.trained
    unit, origin = torch.tensor(rows.y_unit).double(), rows.y_origin
    batch = Batch(rows.x, (rows.y - origin) / unit, torch.tensor(len(rows.y)), unit)
    hyper = {name: torch.tensor(value).double() for name, value in exact.hyper.items()}
    own = exact.problem.log_likelihoods(torch.from_numpy(theta[0, 7]), batch, hyper) - math.log(
        rows.y_unit
    )
    # outputs are float32
    np.testing.assert_allclose(found.log_likelihood["y"].values[0, 7], own, rtol=1e-4)
    np.testing.assert_array_equal(found.observed_data["y"].values, rows.y)
    assert found.attrs["entry"] == "exact"
    ensemble = bdl.posterior(run, "diabetes", "ensemble")  # which is taken as it is
    np.testing.assert_array_equal(
        ensemble.to_inferencedata().posterior["theta"].values[0], ensemble.posterior.draws
    )


@pytest.mark.parametrize(
    ("method", "model"),
    [
        (
            {"name": "laplace", "curvature": "ggn", "linearised": True},
            {"name": "mlp", "hidden": [5], "activation": "tanh"},
        ),
        ("vifa", nn.Sequential(nn.Linear(1, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 1))),
    ],
    ids=["linearised", "batch-norm"],
)
def test_the_likelihood_of_draws_is_that_of_predictions(method, model):
    """By the linearised model, and with the running statistics of the fit: the same numbers on average."""
    pytest.importorskip("arviz")
    x = np.linspace(-2, 2, 30)[:, None]
    hyper = {"prior_precision": 1.0, "noise_precision": 10.0, "learning_rate": 0.01}
    if method != "vifa":
        del hyper["learning_rate"]
    fitted = bdl.fit(method, model, "gaussian", x, np.sin(2 * x[:, 0]), hyper=hyper)
    evaluation = fitted.evaluation
    predicted = evaluation.predict(evaluation.trained, fitted.draws._replace(samples=4000))
    per_draw = fitted.to_inferencedata(draws=4000).log_likelihood["y"].values[0].sum(1)
    expected = predicted.sample_log_likelihood.numpy()
    error = np.hypot(per_draw.std(), expected.std()) / 4000**0.5
    assert abs(per_draw.mean() - expected.mean()) < 4 * error


def test_scores_of_the_density_have_the_precision_of_the_fit():
    """Predictions of a network have a noise precision of their own."""
    x = np.linspace(-2, 2, 40)[:, None]
    y = np.sin(2 * x[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(40)
    model = {"name": "mlp", "hidden": [5], "activation": "tanh"}
    fitted = bdl.fit({"name": "laplace", "curvature": "ggn"}, model, "gaussian", x, y)
    assert fitted.noise_precision != fitted.hyper["noise_precision"]
    own = replace(fitted.evaluation, hyper=fitted.hyper, fitted_hyper=None)
    for name in ("log_evidence", "neg_log_joint", "neg_elbo"):
        score = METRICS.build(name, {})
        assert score(fitted.evaluation) == score(own)


def test_a_posterior_is_files_of_posteriordb(run, exact, tmp_path):
    path = bdl.export(exact, tmp_path, draws=200, seed=4)
    name = "diabetes-exact-0-posterior"
    assert path == tmp_path / f"reference_posteriors/draws/draws/{name}.json.zip"
    np.testing.assert_allclose(chains(path)[0].T, exact.sample(200, seed=4), rtol=1e-15)
    described = json.loads((tmp_path / f"posteriors/{name}.json").read_text())
    assert (described["reference_posterior_name"], described["dimensions"]) == (
        name,
        {"theta": 11},
    )
    info = json.loads((tmp_path / f"reference_posteriors/draws/info/{name}.info.json").read_text())
    assert info["inference"]["method"] == "conjugate"
    quality = json.loads((tmp_path / f"quality/{name}.json").read_text())
    row = run.rows[run.rows.entry == "exact"].iloc[0]
    # outputs are float32, summed on another number of threads
    assert quality["scores"] == pytest.approx({"nmll": row.nmll, "rmse": row.rmse}, rel=1e-6)
    content = path.read_bytes()
    assert bdl.export(exact, tmp_path, draws=200, seed=4).read_bytes() == content


def test_a_reference_is_files_of_posteriordb(exact, tmp_path):
    """Of 4000 draws, within four standard errors."""
    drawn = chains(bdl.export(exact, tmp_path, what="reference", draws=4000))[0].T
    truth = exact.evaluation.reference
    errors = (drawn.mean(0) - truth.mean.numpy()) / truth.covariance.diag().sqrt().numpy()
    assert np.abs(errors).max() < 4 / math.sqrt(4000)


def test_a_sampled_reference_brings_its_certificate(exact, tmp_path, monkeypatch):
    published = Path(__file__).parents[2] / "results/logistic-posterior/references/australian.json"
    certificate = Certificate.read(json.loads(published.read_text("utf-8"))["certificate"])
    monkeypatch.setattr(
        "bdl.plan.reference_posteriors.find_recipe", lambda cell, split: "what is sampled"
    )
    monkeypatch.setattr(
        "bdl.references.base.load_or_sample",
        lambda recipe: JudgedDraws(np.zeros((4, 100, 1)), certificate),
    )
    bdl.export(exact, tmp_path, what="reference", draws=10)
    told = json.loads((tmp_path / "quality/diabetes-exact-0-reference.json").read_text("utf-8"))
    assert told["certificate"]["origin"]["sampler"] == certificate.origin.sampler


@pytest.mark.parametrize(
    ("entry", "named", "message"),
    [
        (
            "answers",
            {},
            "the method left predictions, and no distribution of parameters: use predict",
        ),
        (
            "ensemble",
            {"what": "reference"},
            "entry ensemble has no reference: export the posterior",
        ),
        ("exact", {"draws": 0}, "draws"),
        ("exact", {"folder": __file__}, "cannot write .*: .*; choose another folder"),
        ("exact", {"fitted": "diabetes"}, "export: fitted is str: give what bdl"),
    ],
)
def test_what_cannot_be_exported_is_refused(run, tmp_path, entry, named, message):
    with pytest.raises(InputError, match=message):
        bdl.export(**{"fitted": bdl.posterior(run, "diabetes", entry), "folder": tmp_path} | named)
    assert not list(tmp_path.iterdir())


def test_a_guest_predicts_its_test_rows_and_says_why_no_others(run):
    fitted = bdl.posterior(run, "diabetes", "answers")
    data = fitted.cell.data
    assert fitted.evaluation.predictions.mean.shape == (len(data.split(0).test),)
    with pytest.raises(
        InputError, match="kept as its predictions at the test rows, and cannot predict others"
    ):
        fitted.predict(data.x[:3])
