"""What identifies a fit and what identifies a score: spec, data and versions, and nothing that is beside the point."""

import json
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import field, make_dataclass, replace
from importlib import import_module
from io import StringIO
from pathlib import Path

import pytest

import bdl
from bdl import registry
from bdl.plan.planning import list_tasks
from bdl.plan.task import Task
from bdl.spec import load_benchmark

EXACT = "entries.vifa.reference.bias=penalised"


def cell(*overrides, name="uci-regression", entry="vifa-lr"):
    profile = "check" if name == "uci-regression" else "quick"
    return list_tasks(load_benchmark(name, profile, overrides).select(entries=[entry]))[0]


def ridge(*overrides):
    """An entry with hyper-parameters that its reference estimates."""
    return cell("datasets=[diabetes]", *overrides, name="uci-linear-posterior", entry="vifa")


def scores(of):
    return {str(metric): of.score_hash(metric) for metric in of.benchmark.metrics}


@pytest.mark.parametrize(
    ("change", "decides"),
    [
        ("entries.vifa-lr.training.epochs=7", True),
        ("preparation.rows=100", True),
        ("metrics=[rmse]", False),
    ],
)
def test_what_decides_a_fit(change, decides):
    """See `tests/spec/test_parts.py` for all of it."""
    before, after = cell(), cell(change)
    assert (before.fit_hash != after.fit_hash) == decides
    assert decides or scores(after).items() <= scores(before).items()


def test_a_score_is_decided_by_its_settings_samples_and_reference():
    several = cell(
        "metrics=[nmll, {name: neg_elbo, samples: 3}, {name: neg_elbo, samples: 4}, rmse]"
    )
    assert len(set(scores(several).values())) == 4
    named = cell("metrics=[{name: neg_elbo, samples: 3, label: neg_elbo_few}]")
    assert scores(named)["neg_elbo_few"] == scores(several)["neg_elbo_3"], "a label is a name"
    for before, after in ((cell(), cell("evaluation.samples=7")), (ridge(), ridge(EXACT))):
        assert all(scores(before)[name] != found for name, found in scores(after).items())


@pytest.mark.parametrize(
    ("own", "change", "same"),
    [
        ({}, 1e-9, False),
        # sums of simulated data round differently on other processors, and are the same data
        ({"name": "vifa-synthetic", "entry": "vifa-k1"}, 1e-15, True),
    ],
)
def test_other_data_are_other_fits_unless_their_settings_make_them(monkeypatch, own, change, same):
    before, data = cell(**own).fit_hash, cell(**own).data
    changed = replace(data, y=data.y * (1 + change))
    assert (changed.y != data.y).any()
    monkeypatch.setattr(Task, "data", property(lambda self: changed))
    assert (cell(**own).fit_hash == before) == same


BUMPS = {
    "bdl.methods.vifa:Vifa": "fit",
    "bdl.models.networks:LinearModel": "fit",
    "bdl.models.likelihoods:GaussianLikelihood": "fit",
    "bdl.models.priors:GaussianPrior": "fit",
    "bdl.training.schedule:Constant": "fit",
    "bdl.metrics.likelihoods:Nmll": "both",
    "bdl.metrics.regression:Rmse": "rmse",
    "bdl.posteriors.low_rank:FactorAnalysis": "scores",
}


@pytest.mark.parametrize(("component", "what"), BUMPS.items())
def test_a_version_moves_what_rests_on_it(monkeypatch, component, what):
    module, _, name = component.partition(":")
    before = cell().fit_hash, scores(cell())
    monkeypatch.setattr(getattr(import_module(module), name), "version", 2, raising=False)
    after = cell().fit_hash, scores(cell())
    assert (after[0] != before[0]) == (what in ("fit", "both")), "nmll steers the search"
    moved = {name for name in before[1] if after[1][name] != before[1][name]}
    assert (
        moved == {"fit": set(), "both": {"nmll"}, "rmse": {"rmse"}, "scores": set(before[1])}[what]
    )


@pytest.mark.parametrize(
    ("constant", "fits", "scored"),
    [
        ("ENGINE_VERSION", True, False),
        ("PREPARATION_VERSION", True, True),
        ("SCORING_VERSION", False, True),
        ("SEARCH_VERSION", True, False),
    ],
)
def test_versions_of_what_is_no_component(monkeypatch, constant, fits, scored):
    before = cell().fit_hash, scores(cell())
    monkeypatch.setattr(f"bdl.plan.task.{constant}", 2)
    after = cell().fit_hash, scores(cell())
    assert (after[0] != before[0], after[1] != before[1]) == (fits, scored)


def test_a_reference_has_a_version():
    assert ridge().score_versions(ridge().benchmark.metrics[0])["reference"] == 1
    assert ridge().fit_versions["reference"] == 1
    assert "reference" not in cell(name="vifa-synthetic", entry="vifa-k1").fit_versions, (
        "it estimates nothing"
    )


def test_a_setting_that_is_added_later_moves_nothing():
    """Nor does one at its default that is taken away: identities hold what differs from defaults."""
    changes = (
        "entries.vifa-lr.method.latent_dim=2",
        "entries.vifa-lr.method.gradients_per_update=4",
    )
    for own, settings in ((cell(), {}), (cell(*changes), {"latent_dim": 2})):
        part = own.benchmark.fit_part("diabetes", "vifa-lr")
        assert part["entry"][1]["method"] == {"name": "vifa", **settings}
        assert part["preparation"] == {}


def add_declared_setting(monkeypatch, component):
    """Declare the setting that a component gains, as whoever adds one does."""
    declarations = registry._read_declarations()  # the content of a file, which is read once
    declaration = declarations[component]
    added = {"added": {"default": 3, "type": "integer"}}
    monkeypatch.setitem(
        declarations, component, declaration._replace(settings=declaration.settings | added)
    )


@pytest.mark.parametrize(
    ("component", "place"),
    [
        ("method:vifa", "bdl.methods.vifa:Vifa"),
        ("model:linear", "bdl.models.networks:LinearModel"),
        ("likelihood:gaussian", "bdl.models.likelihoods:GaussianLikelihood"),
        ("prior:gaussian", "bdl.models.priors:GaussianPrior"),
        ("rate:constant", "bdl.training.schedule:Constant"),
        ("metric:nmll", "bdl.metrics.likelihoods:Nmll"),
        ("metric:rmse", "bdl.metrics.regression:Rmse"),
        ("reference:bayesian-ridge", "bdl.references.exact:BayesianRidgeReference"),
    ],
)
def test_a_setting_that_every_kind_of_component_gains_moves_no_hash(monkeypatch, component, place):
    module, _, name = place.partition(":")
    labelled = "metrics=[{name: nmll, at: mean, label: nmll_mean}, {name: rmse, label: rmse_own}]"
    before = [(own.fit_hash, scores(own)) for own in (cell(labelled), ridge())]
    add_declared_setting(monkeypatch, component)
    known = getattr(import_module(module), name)
    settings = {"bases": (known,), "frozen": True, "namespace": {"__module__": module}}
    monkeypatch.setattr(
        import_module(module),
        name,
        make_dataclass(name, [("added", int, field(default=3))], **settings),
    )
    assert [(own.fit_hash, scores(own)) for own in (cell(labelled), ridge())] == before


def test_a_data_set_that_gains_a_setting_keeps_its_identity(monkeypatch):
    own = {"name": "online-fa", "entry": "online-em"}
    before = cell(**own).fit_hash
    label = cell(**own).dataset
    add_declared_setting(monkeypatch, f"dataset:{label.name}")
    module, _, name = label.registry().targets[label.name].partition(":")
    known = getattr(import_module(module), name)
    settings = {"bases": (known,), "frozen": True, "namespace": {"__module__": module}}
    monkeypatch.setattr(
        import_module(module),
        name,
        make_dataclass(name, [("added", int, field(default=3))], **settings),
    )
    assert cell(**own).fit_hash == before


@pytest.mark.parametrize("name", ["slang-uci", "network-posterior"])
def test_hashes_of_published_searches_are_those_of_today(name):
    """One has hashes from before scores had a setting, the other those made while its default was written."""
    path = Path(__file__).parents[2] / "results" / name / "run.json"
    recorded = json.loads(path.read_text("utf-8"))["fit_hashes"]
    own = list_tasks(load_benchmark(name, "paper").select(datasets=["yacht"]))
    assert {
        one.label: one.is_fit_hash(recorded[one.label]) for one in own if recorded[one.label]
    } == {one.label: True for one in own if recorded[one.label]}
    changed = own[0].benchmark.model_copy(update={"seed": 9})
    assert not replace(own[0], benchmark=changed).is_fit_hash(recorded[own[0].label])


# What improves the code and touches no number: each is an edit of a copy of the package.
EDITS = {
    "a metric is registered": (
        "bdl/metrics/__init__.py",
        '    "rmse": ',
        '    "rmse_again": "bdl.metrics.regression:Rmse",\n    "rmse": ',
    ),
    "a method is registered": (
        "bdl/methods/__init__.py",
        '        "vifa": ',
        '        "vifa-too": "bdl.methods.vifa:Vifa",\n        "vifa": ',
    ),
    "a message is reworded": ("bdl/methods/base.py", "exceeds the", "is more than the"),
    "a message of a reference is reworded": (
        "bdl/references/exact.py",
        "raise InputError(",
        "raise InputError('Sorry: ' + ",
    ),
    "a private name is changed": ("bdl/data/simulations.py", "_normals", "_standard_normals"),
    "a function is added": (
        "bdl/training/checkpoint.py",
        "import ",
        "def unused() -> None:\n    pass\n\n\nimport ",
    ),
}
IDENTITIES = """
from bdl.plan.planning import list_tasks
from bdl.spec import load_benchmark
for name, profile in [("uci-regression", "check"), ("vifa-synthetic", "paper"), ("online-fa", "paper")]:
    for cell in list_tasks(load_benchmark(name, profile)):
        print(cell.label, cell.fit_hash, *(cell.score_hash(metric) for metric in cell.benchmark.metrics))
"""


def test_improving_the_code_moves_no_identity(tmp_path):
    root = Path(bdl.__file__).parents[1]
    shutil.copytree(root / "bdl", tmp_path / "bdl", ignore=shutil.ignore_patterns("__pycache__"))
    if (root / "benchmarks").is_dir():  # else the package is installed, and has them within
        shutil.copytree(root / "benchmarks", tmp_path / "benchmarks")

    for what, (file, old, new) in EDITS.items():
        text = (tmp_path / file).read_text("utf-8")
        assert old in text, what
        (tmp_path / file).write_text(
            text.replace(old, new) if "private" in what else text.replace(old, new, 1), "utf-8"
        )
    with redirect_stdout(StringIO()) as before:
        exec(IDENTITIES, {})
    assert before.getvalue().count("\n") > 50
    after = subprocess.run(
        [sys.executable, "-c", IDENTITIES],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not after.returncode, after.stderr
    assert after.stdout == before.getvalue()
