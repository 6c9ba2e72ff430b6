"""What decides a fit and what decides a score: spec, data and code, and nothing that is beside the point."""

from dataclasses import replace

import pytest

from bdl.plan import fingerprint
from bdl.plan.cell import Cell
from bdl.plan.fingerprint import fit_hash, score_hash
from bdl.plan.planning import cells_of
from bdl.spec import load_benchmark

EXACT = "entries.vifa.reference.bias=penalised"


def cell(*overrides, name="uci-regression", entry="vifa-lr"):
    return cells_of(load_benchmark(name, "quick", overrides).select(entries=[entry]))[0]


def ridge(*overrides):
    """An entry with hyper-parameters that its reference estimates."""
    return cell("datasets=[diabetes]", *overrides, name="uci-linear-posterior", entry="vifa")


def scores(of):
    return {str(metric): score_hash(of, metric) for metric in of.benchmark.metrics}


@pytest.mark.parametrize(
    "change",
    [
        "seed=1",
        "entries.vifa-lr.training.epochs=7",
        "entries.vifa-lr.training.dtype=float64",
        "entries.vifa-lr.search.metric=rmse",
        "entries.vifa-lr.prior.bias_precision=1",
        "evaluation.samples=7",
        "record={unit: epochs, every: 2}",
        "preparation.rows=100",
    ],
)
def test_what_decides_a_fit(change):
    assert fit_hash(cell()) != fit_hash(cell(change))


@pytest.mark.parametrize(
    "change", ["metrics=[rmse]", "splits=2", "title=Other", "entries.vifa-nn.training.epochs=7", "notes=[]"]
)
def test_what_does_not(change):
    before, after = cell(), cell(change)
    assert fit_hash(before) == fit_hash(after)
    assert all(scores(before)[name] == found for name, found in scores(after).items())


def test_without_a_search_the_number_of_samples_decides_scores_alone():
    rates = "{learning_rate: 1, prior_precision: 1, noise_precision: 1}"
    fixed = "entries.vifa-lr.search=null", f"entries.vifa-lr.hyper={rates}"
    before, after = cell(*fixed), cell(*fixed, "evaluation.samples=7")
    assert fit_hash(before) == fit_hash(after)
    assert all(scores(before)[name] != scores(after)[name] for name in scores(before))


def test_a_reference_decides_fits_only_where_it_estimates():
    before, after = ridge(), ridge(EXACT)
    assert fit_hash(before) != fit_hash(after)
    assert all(scores(before)[name] != scores(after)[name] for name in scores(before))
    rates = "{learning_rate: 1, prior_precision: 1, noise_precision: 1}"
    own = "entries.vifa.from_reference=[]", f"entries.vifa.hyper={rates}"
    before, after = ridge(*own), ridge(*own, EXACT)
    assert fit_hash(before) == fit_hash(after)
    assert all(scores(before)[name] != scores(after)[name] for name in scores(before))


def test_a_score_is_decided_by_its_own_settings():
    several = cell("metrics=[nmll, {name: neg_elbo, samples: 3}, {name: neg_elbo, samples: 4}, rmse]")
    assert len(set(scores(several).values())) == 4
    named = cell("metrics=[{name: neg_elbo, samples: 3, label: neg_elbo_few}]")
    assert scores(named)["neg_elbo_few"] == scores(several)["neg_elbo_3"], "a label is a name"


def test_other_data_are_other_fits(monkeypatch):
    before = fit_hash(cell())
    data = cell().data
    changed = replace(data, y=data.y + 1e-9)
    monkeypatch.setattr(Cell, "data", property(lambda self: changed))
    assert fit_hash(cell()) != before


def roots(monkeypatch, of):
    """Modules that a hash begins with, whose closures it takes."""
    asked = []
    monkeypatch.setattr(fingerprint, "_code", lambda found: asked.append(set(found)) or "")
    fit_hash(of)
    for metric in of.benchmark.metrics:
        score_hash(of, metric)
    return asked


def test_the_code_that_counts(monkeypatch):
    fit, nmll, *_ = roots(monkeypatch, cell("metrics=[nmll]"))
    assert {"bdl.methods.vifa", "bdl.models.networks", "bdl.models.likelihoods", "bdl.models.priors"} < fit
    assert {"bdl.search.crossval", "bdl.metrics.likelihoods"} < fit, "what steers the search"
    assert "bdl.metrics.likelihoods" in nmll
    assert not {"bdl.methods.vifa", "bdl.search.crossval"} & nmll
    fit, distance, *_ = roots(monkeypatch, ridge("metrics=[rel_mean_dist]"))
    assert {"bdl.references.linear"} < fit
    assert {"bdl.references.linear", "bdl.metrics.posterior"} < distance
    assert not {name for name in fit if name.startswith(("bdl.metrics", "bdl.search"))}
    fit, *_ = roots(monkeypatch, cell(name="vifa-synthetic", entry="vifa-k1"))
    assert not {name for name in fit if name.startswith("bdl.references")}, "it estimates nothing"
