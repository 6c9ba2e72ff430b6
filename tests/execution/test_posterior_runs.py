"""Runs that measure distances to a reference posterior."""

import numpy as np
import pytest
import torch

from bdl.errors import InputError
from bdl.execution.scoring import evaluation, scores
from bdl.plan.planning import plan
from bdl.plan.programs import final_fitting
from bdl.plan.truths import truth
from bdl.posteriors import FactorAnalysis, FullGaussian
from bdl.publishing.pictures import posteriors
from bdl.spec import load_benchmark
from bdl.store import artefacts

from .listeners import run_here


def finals(store, name, *overrides, splits=(0,), entries=()):
    """Run the quick profile with changes; the cells with their final rows."""
    cells = plan(load_benchmark(name, "quick", overrides).select(entries=entries), splits=splits, compile=False)
    run_here(cells, store)
    return [(cell, store.rows("final", cell.key)) for cell in cells]


@pytest.mark.parametrize("reference", ["conjugate", "grid"])
def test_the_exact_method_is_at_distance_zero(store, tmp_path, reference):
    """The exact posterior, through the whole run, differs from its reference by float32 rounding of the precisions."""
    text = (tmp_path / "exact.yaml").as_posix()
    (tmp_path / "exact.yaml").write_text(
        f"""
name: exact
title: Exact
datasets: [synthetic]
splits: 2
preparation: {{standardise: none}}
entries:
  exact:
    model: {{name: linear, bias: false}}
    likelihood: {{name: gaussian}}
    method: {{name: conjugate}}
    hyper: {{prior_precision: 0.01, noise_precision: 0.1}}
    reference: {{name: {reference}}}
metrics: [rel_mean_dist, rel_cov_dist, scaled_w2, runtime]
"""
    )
    cells = plan(load_benchmark(text), splits=(0, 1))
    run_here(cells, store)
    rows = store.rows("final", ("synthetic", "exact", "{}"))
    assert [row.status for row in rows] == ["ok", "ok"]
    for row in rows:
        assert max(row.metrics[name] for name in ("rel_mean_dist", "rel_cov_dist", "scaled_w2")) < 1e-5
        assert row.metrics["runtime"] > 0


def test_figures_get_the_density_of_the_truth(store):
    """Of a grid: at the mean it is higher than one standard deviation away, by half a nat."""
    reference = "entries.vifa-k1.reference={name: grid}"
    ((cell, _),) = finals(store, "vifa-synthetic", reference, "entries.vifa-k1.training.epochs=20", entries=["vifa-k1"])
    (pair,) = posteriors([cell], store)
    away = np.array([[0, 0], [1, 0], [0, 1]]) @ np.linalg.cholesky(pair.true_covariance).T
    fall = pair.true_log_density(pair.true_mean + away)
    np.testing.assert_allclose(fall - fall[0], [0, -0.5, -0.5], atol=1e-8)


def test_figures_know_moments_alone_of_a_closed_form(store):
    ((cell, _),) = finals(store, "vifa-synthetic", "entries.vifa-k1.training.epochs=20", entries=["vifa-k1"])
    (pair,) = posteriors([cell], store)
    assert pair.true_log_density is None


def test_a_reference_gives_its_precisions_to_the_method(store):
    ((cell, (row,)),) = finals(
        store, "uci-linear-posterior", "datasets=[diabetes]", "entries.vifa.training.epochs=20", entries=["vifa"]
    )
    found = truth(cell, 0)
    assert row.hyper == {"learning_rate": 0.01, **found.hyper}
    assert found.covariance.shape == (10, 10)
    assert found.mean.shape == (11,)


def test_distances_follow_from_the_stored_posterior(store):
    ((cell, rows),) = finals(store, "vifa-synthetic", "entries.vifa-k1.training.epochs=20", entries=["vifa-k1"])
    posterior, buffers = artefacts.read(store.posteriors, rows[0].artefact)
    assert isinstance(posterior, FactorAnalysis)
    assert posterior.dim == 2
    again = scores(evaluation(cell, 0, posterior, buffers, rows[0].hyper), cell.benchmark.metrics).values
    assert again.keys() == {"rel_mean_dist", "rel_cov_dist", "scaled_w2"}
    assert {name: rows[0].metrics[name] for name in again} == again
    reference = truth(cell, 0)
    expected = torch.linalg.norm(posterior.mean().double() - reference.mean) / reference.mean.norm()
    assert again["rel_mean_dist"] == pytest.approx(float(expected), rel=1e-12)


MIXED = """
name: mixed
title: Predictions and distances
datasets: [OWN]
splits: 2
preparation: {standardise: none}
entries:
  exact:
    model: {name: linear, bias: false}
    likelihood: {name: gaussian}
    method: {name: conjugate}
    hyper: {prior_precision: 0.01, noise_precision: 1}
    reference: {name: conjugate}
evaluation: {samples: 20000}
metrics: [nmll, rel_cov_dist, rmse]
"""


def test_scores_of_predictions_and_distances_mix(store, tmp_path, line):
    """The predictive density of the conjugate posterior is normal: to that the draws come close, at distance zero."""
    (tmp_path / "mixed.yaml").write_text(MIXED.replace("OWN", f"'{line}'"))
    (cell,) = plan(load_benchmark((tmp_path / "mixed.yaml").as_posix()), splits=(0, 1))
    run_here([cell], store)
    for row in store.rows("final", cell.key):
        train, test, _ = cell.data.split(row.split)
        x, y = (torch.tensor(values) for values in (cell.data.x, cell.data.y))
        precision = 0.01 * torch.eye(2).double() + x[train].T @ x[train]
        mean = torch.linalg.solve(precision, x[train].T @ y[train])
        variance = 1 + (x[test] * torch.linalg.solve(precision, x[test].T).T).sum(1)
        log_density = torch.distributions.Normal(x[test] @ mean, variance.sqrt()).log_prob(y[test])
        assert row.metrics["nmll"] == pytest.approx(-log_density.mean().item(), abs=2e-3)
        assert row.metrics["rmse"] == pytest.approx((x[test] @ mean - y[test]).square().mean().sqrt().item(), rel=1e-3)
        assert row.metrics["rel_cov_dist"] < 1e-5
        posterior, _ = artefacts.read(store.posteriors, row.artefact)
        assert isinstance(posterior, FullGaussian)


def test_a_diverged_fit_is_a_failed_row(store):
    ((_, (row,)),) = finals(
        store,
        "sgd-posterior",
        "entries.sgd-fast-prior.hyper.learning_rate=1000",
        "entries.sgd-fast-prior.method.warmup_epochs=1",
        "entries.sgd-fast-prior.training.epochs=20",
        entries=["sgd-fast-prior"],
    )
    assert row.status == "failed"
    assert "non-finite parameters in epoch" in row.reason
    assert row.metrics == {}


def test_a_warm_up_that_leaves_nothing_is_refused():
    benchmark = load_benchmark("sgd-posterior", "quick", ["entries.swag.training.epochs=50"])
    with pytest.raises(InputError, match="50 epochs leave nothing after a warm-up of 50"):
        plan(benchmark, splits=(0,))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("entries.vifa.reference=null", "entries.vifa: from_reference: unknown estimate of the reference"),
        ("entries.vifa.from_reference=[noise_precision]", "no value for prior_precision"),
        ("entries.fa-optimum.reference.name=ridge", "unknown reference 'ridge'"),
        ("entries.fa-optimum.training={epochs: 1, batch_size: 1}", "works without minibatches"),
        ("entries.vifa.by_dataset.bostn={}", r"unknown field 'bostn' \(did you mean boston\?\)"),
        ("preparation.split=thirds", "preparation.split"),
    ],
)
def test_bad_input(override, message):
    with pytest.raises(InputError, match=message):
        load_benchmark("uci-linear-posterior", "paper", [override])


def test_distances_need_a_reference():
    with pytest.raises(InputError, match=r"entries\.vifa-k1\.reference is missing: distances need one"):
        load_benchmark("vifa-synthetic", "paper", ["entries.vifa-k1.reference=null"])


DROPOUT = """
name: dropout
title: A posterior without a density
datasets: [diabetes]
splits: 1
preparation: {rows: 40}
entries:
  dropout:
    model: {name: mlp, hidden: [3]}
    likelihood: {name: gaussian}
    method: {name: mc-dropout}
    training: {epochs: 1, batch_size: 5}
    hyper: {learning_rate: 0.01, prior_precision: 1, noise_precision: 0.01, dropout_rate: 0.1}
metrics: [neg_elbo, nmll]
"""


def test_a_score_that_refuses_a_posterior_empties_its_column_alone(store, tmp_path):
    """Dropout has no density, so no evidence lower bound; the others are computed all the same."""
    (tmp_path / "dropout.yaml").write_text(DROPOUT)
    (cell,) = plan(load_benchmark((tmp_path / "dropout.yaml").as_posix()), splits=(0,), compile=False)
    run_here([cell], store)
    (row,) = store.rows("final", cell.key)
    assert row.status == "ok"
    assert row.artefact
    assert row.metrics.get("neg_elbo") is None
    assert list(row.refused) == ["neg_elbo"]
    work = final_fitting([(cell, 0)], [dict(cell.settings.hyper)], compile=False)
    (end,) = work.run()
    found = scores(evaluation(cell, 0, work.posterior(end, 0), {}, cell.settings.hyper), cell.benchmark.metrics)
    assert found.values["nmll"] == row.metrics["nmll"]
    assert dict(found.refused) == row.refused


def test_a_reference_may_only_estimate_and_predictions_are_scored(store, tmp_path):
    (tmp_path / "ridge.yaml").write_text(
        """
name: ridge
title: Ridge
datasets: [diabetes]
splits: 1
entries:
  exact:
    model: {name: linear}
    likelihood: {name: gaussian}
    method: {name: conjugate}
    from_reference: [prior_precision, noise_precision]
    reference: {name: bayesian-ridge}
metrics: [nmll, rmse]
"""
    )
    (cell,) = plan(load_benchmark((tmp_path / "ridge.yaml").as_posix()), splits=(0,))
    run_here([cell], store)
    (row,) = store.rows("final", cell.key)
    assert row.status == "ok", row.reason
    assert row.hyper["noise_precision"] == pytest.approx(54**-2, rel=0.1)  # residual standard deviation 54
    assert row.metrics["rmse"] < 70  # the targets have standard deviation 77
    posterior, _ = artefacts.read(store.posteriors, row.artefact)
    assert posterior.dim == 11
