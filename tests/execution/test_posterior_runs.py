"""Runs that measure distances to a reference posterior."""

import numpy as np
import pytest
import torch

from bdl.errors import InputError
from bdl.execution.scoring import compute_scores, make_evaluation
from bdl.plan.fittings import build_final_fitting
from bdl.plan.planning import plan_tasks
from bdl.plan.reference_posteriors import compute_truth
from bdl.posteriors import FullGaussian
from bdl.publishing.pictures import pair_posteriors
from bdl.spec import load_benchmark

from .listeners import run_here

K1 = "vifa-synthetic", "entries.vifa-k1.training.epochs=20"


def ran(store, benchmark, splits=(0,)):
    """Run; the cell with its final rows."""
    (cell,) = plan_tasks(benchmark, splits=splits, compile=False)
    run_here([cell], store)
    return cell, store.load_rows("final", cell.key)


def quick(store, entry, name, *overrides):
    """Run an entry of the quick profile, with changes."""
    return ran(store, load_benchmark(name, "quick", overrides).select(entries=[entry]))


@pytest.fixture
def load(tmp_path):
    """Load a benchmark of one linear entry on one data set."""

    def call(dataset, **entry):
        parts = {
            "model": "{name: linear, bias: false}",
            "likelihood": "{name: gaussian}",
            "method": "{name: conjugate}",
        }
        metrics, more = entry.pop("metrics"), entry.pop("more", "preparation: {standardise: none}")
        lines = "\n".join(f"    {name}: {value}" for name, value in (parts | entry).items())
        text = f"datasets: ['{dataset}']\nsplits: 2\n{more}\nentries:\n  own:\n{lines}\nmetrics: {metrics}\n"
        (tmp_path / "own.yaml").write_text(f"name: own\ntitle: Own\n{text}")
        return load_benchmark((tmp_path / "own.yaml").as_posix())

    return call


@pytest.mark.parametrize("reference", ["conjugate", "grid"])
def test_the_exact_method_is_at_distance_zero(store, load, reference):
    """The exact posterior, through the whole run, differs from its reference by float32 rounding of the precisions."""
    distances = "rel_mean_dist", "rel_cov_dist", "scaled_w2"
    own = {
        "hyper": "{prior_precision: 0.01, noise_precision: 0.1}",
        "reference": f"{{name: {reference}}}",
    }
    _, rows = ran(
        store, load("synthetic", **own, metrics=f"[{', '.join(distances)}, runtime]"), (0, 1)
    )
    assert [row.status for row in rows] == ["ok", "ok"]
    for row in rows:
        assert max(row.metrics[name] for name in distances) < 1e-5
        assert row.metrics["runtime"] > 0


def test_figures_get_the_density_of_a_grid_and_moments_alone_of_a_closed_form(store):
    """At the mean it is higher than one standard deviation away, by half a nat."""
    cell, _ = quick(store, "vifa-k1", *K1, "entries.vifa-k1.reference={name: grid}")
    (pair,) = pair_posteriors([cell], store)
    away = np.array([[0, 0], [1, 0], [0, 1]]) @ np.linalg.cholesky(pair.true_covariance).T
    fall = pair.true_log_density(pair.true_mean + away)
    np.testing.assert_allclose(fall - fall[0], [0, -0.5, -0.5], atol=1e-8)
    store.forget([cell.key])
    cell, _ = quick(store, "vifa-k1", *K1)
    (pair,) = pair_posteriors([cell], store)
    assert pair.true_log_density is None


def test_a_reference_gives_its_precisions_to_the_method(store, load):
    """Also where predictions alone are scored."""
    cell, (row,) = quick(
        store,
        "vifa",
        "uci-linear-posterior",
        "datasets=[diabetes]",
        "entries.vifa.training.epochs=20",
    )
    found = compute_truth(cell, 0)
    assert row.hyper == {"learning_rate": 0.01, **found.hyper}
    assert (found.mean.shape, found.covariance.shape) == ((11,), (10, 10))

    ridge = {
        "from_reference": "[prior_precision, noise_precision]",
        "reference": "{name: bayesian-ridge}",
    }
    _, (row,) = ran(
        store, load("diabetes", model="{name: linear}", **ridge, metrics="[nmll, rmse]", more="")
    )
    assert row.status == "ok", row.reason
    assert row.hyper["noise_precision"] == pytest.approx(
        54**-2, rel=0.1
    )  # residual standard deviation 54
    assert row.metrics["rmse"] < 70  # the targets have standard deviation 77
    assert store.posteriors.read(row.artefact)[0].dim == 11


def test_fits_of_a_search_have_the_precisions_of_the_reference(store, load):
    cell, (row,) = ran(
        store,
        load(
            "diabetes",
            model="{name: linear}",
            method="{name: vifa, gradients_per_update: 2}",
            training="{epochs: 2, batch_size: 50}",
            search="{sampler: grid, folds: 2, metric: nmll, grid: {learning_rate: [0.001, 0.01]}}",
            from_reference="[prior_precision, noise_precision]",
            reference="{name: bayesian-ridge}",
            metrics="[nmll]",
            more="",
        ),
    )
    folds = store.load_rows("search", cell.key)
    assert {fold.status for fold in folds} | {row.status} == {"ok"}
    found = compute_truth(cell, 0).hyper
    assert all(fold.hyper == {**found, **fold.hyper} for fold in folds)
    assert row.hyper == {**found, "learning_rate": row.hyper["learning_rate"]}


def test_scores_of_predictions_and_distances_mix(store, load, line):
    """The predictive density of the conjugate posterior is normal: to that the draws come close, at distance zero."""
    own = {
        "hyper": "{prior_precision: 0.01, noise_precision: 1}",
        "reference": "{name: conjugate}",
    }
    more = "preparation: {standardise: none}\nevaluation: {samples: 20000}"
    cell, rows = ran(
        store, load(line, **own, metrics="[nmll, rel_cov_dist, rmse]", more=more), (0, 1)
    )
    for row in rows:
        train, test, _ = cell.data.split(row.split)
        x, y = (torch.tensor(values) for values in (cell.data.x, cell.data.y))
        precision = 0.01 * torch.eye(2).double() + x[train].T @ x[train]
        mean = torch.linalg.solve(precision, x[train].T @ y[train])
        variance = 1 + (x[test] * torch.linalg.solve(precision, x[test].T).T).sum(1)
        log_density = torch.distributions.Normal(x[test] @ mean, variance.sqrt()).log_prob(y[test])
        assert row.metrics["nmll"] == pytest.approx(-log_density.mean().item(), abs=2e-3)
        assert row.metrics["rmse"] == pytest.approx(
            (x[test] @ mean - y[test]).square().mean().sqrt().item(), rel=1e-3
        )
        assert row.metrics["rel_cov_dist"] < 1e-5
        assert isinstance(store.posteriors.read(row.artefact)[0], FullGaussian)


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        (
            "sgd-posterior",
            "entries.swag.training.epochs=50",
            "50 epochs leave nothing after a warm-up of 50",
        ),
        (
            "vifa-synthetic",
            "entries.vifa-k1.reference=null",
            r"vifa-k1\.reference is missing: distances need one",
        ),
        (
            "uci-linear-posterior",
            "entries.vifa.reference=null",
            "from_reference: unknown estimate of the reference",
        ),
        (
            "uci-linear-posterior",
            "entries.vifa.from_reference=[noise_precision]",
            "no value for prior_precision",
        ),
        (
            "uci-linear-posterior",
            "entries.fa-optimum.reference.name=ridge",
            "unknown reference 'ridge'",
        ),
        (
            "uci-linear-posterior",
            "entries.fa-optimum.training={epochs: 1, batch_size: 1}",
            "without minibatches",
        ),
    ],
)
def test_bad_input(name, override, message):
    with pytest.raises(InputError, match=message):
        plan_tasks(load_benchmark(name, "quick", [override]), splits=(0,))


def test_a_score_that_refuses_a_posterior_empties_its_column_alone(store, load):
    """Dropout has no density, so no evidence lower bound; the others are computed all the same."""
    parts = {"model": "{name: mlp, hidden: [3]}", "method": "{name: mc-dropout}"}
    hyper = "{learning_rate: 0.01, prior_precision: 1, noise_precision: 0.01, dropout_rate: 0.1}"
    own = {**parts, "training": "{epochs: 1, batch_size: 5}", "hyper": hyper}
    more = "preparation: {rows: 40}"
    cell, (row,) = ran(store, load("diabetes", **own, metrics="[neg_elbo, nmll]", more=more))
    assert row.status == "ok"
    assert row.artefact
    assert row.metrics.get("neg_elbo") is None
    assert list(row.refusals) == ["neg_elbo"]
    work = build_final_fitting([(cell, 0)], [dict(cell.settings.hyper)], compile=False)
    (end,) = work.run()
    found = compute_scores(
        make_evaluation(cell, 0, work.posterior(end, 0), {}, cell.settings.hyper),
        cell.benchmark.metrics,
    )
    assert found.values["nmll"] == row.metrics["nmll"]
    assert dict(found.refused) == row.refusals
