"""Components, data sets and metrics by name: settings checked, defaults filled in, and what tables call them."""

import json
import pickle

import pytest

from bdl.data import Stream, load_stream
from bdl.errors import InputError
from bdl.methods.vifa import Vifa
from bdl.models.likelihoods import GaussianLikelihood
from bdl.models.networks import Mlp
from bdl.spec import DatasetName, MetricName, load_benchmark
from bdl.spec.components import MethodComponent, ModelComponent

OWN = """
from dataclasses import dataclass
from typing import ClassVar

from bdl.errors import InputError
from bdl.metrics import MetricInfo

@dataclass(frozen=True)
class Own:
    size: int
    even: int = 2
    def dim(self, d_in, d_out):
        return self.size
    def bias_mask(self, d_in, d_out):
        return None
    def initial(self, noise, d_in, d_out):
        return noise
    def __post_init__(self):
        if self.even % 2:
            raise InputError(f"even is {self.even}; give an even number")

class Plain:
    pass

@dataclass(frozen=True)
class Half:
    bias_mask: int = 0

@dataclass(frozen=True)
class Misses:
    limit: float
    info: ClassVar[MetricInfo] = MetricInfo('Misses', 'fraction', 'lower', 'predictive')
    def __call__(self, evaluation):
        return 0.0
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN, "utf-8")
    return f"{tmp_path}/own.py"


def test_build(load, text):
    entry = load(text).entries["searched"]
    assert (entry.method.build(), entry.model.build()) == (Vifa(latent_dim=2), Mlp(hidden=(50,)))
    assert entry.likelihood.build() == GaussianLikelihood()
    assert pickle.loads(pickle.dumps(entry)) == entry


def test_settings_are_resolved():
    component = MethodComponent.model_validate(
        {"name": "vifa", "max_grad_norm": 3, "lr_factors": [1, 2, 3]}
    )
    assert component.settings == {
        "latent_dim": 1,
        "gradients_per_update": 4,
        "max_grad_norm": 3.0,
        "optimizer": "adam",
        "lr_factors": [1.0, 2.0, 3.0],
        "initial_scale": 0.0,
        "initial_std": 1.0,
    }
    assert component.model_dump() == {"name": "vifa", **component.settings}
    assert component.build() == Vifa(max_grad_norm=3.0, lr_factors=(1.0, 2.0, 3.0))


def test_a_component_of_a_file(own):
    component = ModelComponent.model_validate({"name": f"{own}:Own", "size": 3})
    assert component.settings == {"size": 3, "even": 2}
    assert component.build().size == 3
    assert pickle.loads(pickle.dumps(component)).build().size == 3


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("Own", {}, r"size\n.*required"),
        ("Own", {"size": 1, "even": 3}, "even is 3; give an even number"),
        ("Plain", {}, "is not a dataclass"),
        ("Half", {}, r"Half' lacks dim, initial; see bdl\.models\.base:Model"),
    ],
)
def test_components_of_a_file_refused(own, name, settings, message):
    with pytest.raises(ValueError, match=message):
        ModelComponent.model_validate({"name": f"{own}:{name}", **settings})


def test_a_setting_that_is_gone_may_stand_in_stored_specs_at_its_default():
    gone = {"name": "bbb", "local_reparametrisation": False, "optimizer": "adam"}
    assert MethodComponent.model_validate(gone) == MethodComponent.model_validate({"name": "bbb"})
    with pytest.raises(ValueError, match="unknown setting of method 'bbb'"):
        MethodComponent.model_validate({"name": "bbb", "local_reparametrisation": True})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("yacht", "yacht"),
        ({"name": "yacht"}, "yacht"),
        ({"name": "fa", "dim": 100, "top": 1000}, "fa_100_1000"),
        ({"name": "fa", "scaling": "columns", "top": 1000.0, "dim": 100}, "fa_100_1000_columns"),
        ({"name": "fa", "dim": 20, "top": 2.5, "splits": 10}, "fa_20_2.5_10"),
        ({"name": "fa", "dim": 20, "top": 2, "label": "mine"}, "mine"),
    ],
)
def test_a_label_is_the_name_and_the_settings_that_are_given(given, text):
    """It is written, sent and read back with all that it knows."""
    label = DatasetName.read(given)
    assert (label, hash(label), json.dumps({label: label})) == (
        text,
        hash(text),
        json.dumps({text: text}),
    )
    assert DatasetName.read(label) is label
    for again in (
        pickle.loads(pickle.dumps(label)),
        DatasetName.read(json.loads(json.dumps(label.file_form))),
    ):
        assert (again, again.name, again.settings, again.key) == (
            label,
            label.name,
            label.settings,
            label.key,
        )


def test_a_label_knows_its_component():
    label = DatasetName.read({"name": "fa", "dim": 20, "top": 10})
    assert (label.name, label.settings["length"]) == ("fa", 100_000)
    assert label.build() == load_stream(label) == Stream(20, 10)
    one, other = (
        DatasetName.read({"name": "fa", "dim": 20, "top": top, "label": "same"}) for top in (1, 2)
    )
    assert one == other
    assert one.key != other.key


STREAMS = """
name: streams
title: Streams
datasets:
  - {name: fa, top: 10, dim: 20, splits: 3}
  - {name: fa, dim: 20, top: 10, label: mine}
  - {name: fa, dim: 20, top: 2.5, scaling: columns}
splits: 3
entries:
  online: {method: {name: online-em}}
  batch: {method: {name: batch-fa}, datasets: [mine], by_dataset: {mine: {method: {latent_dim: 3}}}}
preparation: {rows: {mine: 500}}
metrics: [rel_cov_dist]
papers:
  - {paper: p, tables: [T], task: t, methods: {online: m}, datasets: {fa_20_10_3: theirs}}
notes: [{dataset: mine, metric: rel_cov_dist, text: about mine}]
profiles:
  quick: {datasets: [{name: fa, dim: 20, top: 10, label: small}], entries: {batch: {datasets: [small]}}}
"""


def test_a_benchmark_refers_to_labels(load):
    benchmark = load(STREAMS)
    assert benchmark.datasets == ("fa_20_10_3", "mine", "fa_20_2.5_columns")
    assert benchmark.pairs[1:3] == (("mine", "online"), ("mine", "batch"))
    assert [benchmark.preparation.rows_of(name) for name in benchmark.datasets] == [
        None,
        500,
        None,
    ]
    assert benchmark.dataset("mine").settings["splits"] == 10
    assert benchmark.entries["batch"].on("mine").method.build().latent_dim == 3
    assert benchmark.select(["mine"]).datasets[0].settings == benchmark.dataset("mine").settings
    assert (
        pickle.loads(pickle.dumps(benchmark)).dataset("mine").key == benchmark.dataset("mine").key
    )


def test_a_profile_may_refer_to_the_labels_of_the_file(load):
    """Notes about data sets that it leaves out stay."""
    quick = load(STREAMS, "quick")
    assert (quick.datasets, quick.notes[0].dataset) == (("small",), "mine")
    assert load(STREAMS, "quick", ["splits=1"]).splits == 1


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("datasets: [mine]", "datasets: [main]", "entries.batch.datasets.0"),
        ("by_dataset: {mine", "by_dataset: {main", "entries.batch.by_dataset.main"),
        ("rows: {mine", "rows: {main", "preparation.rows.main"),
        ("{dataset: mine", "{dataset: main", "notes.0.dataset"),
        ("datasets: {fa_20_10_3", "datasets: {main", "papers.0.datasets.main"),
        ("profiles:", "by_dataset: {main: {}}\nprofiles:", "by_dataset.main"),
    ],
)
def test_an_unknown_label(load, old, new, place):
    assert old in STREAMS
    with pytest.raises(InputError) as caught:
        load(STREAMS.replace(old, new))
    assert f"small.yaml: {place}: unknown dataset 'main': did you mean mine" in str(caught.value)


def test_metrics_with_settings(load, content):
    content["metrics"] = [
        "nmll",
        {"name": "ece", "bins": 20},
        {"name": "ece", "bins": 5, "label": "ece_few"},
    ]
    content["notes"] = [{"metric": "ece_20", "text": "about it"}]
    content["entries"]["searched"]["search"]["metric"] = {"name": "ece", "bins": 7}
    benchmark = load(content)
    assert benchmark.metrics == ("nmll", "ece_20", "ece_few")
    steering = benchmark.entries["searched"].search.metric
    assert [metric.build().bins for metric in (*benchmark.metrics[1:], steering)] == [20, 5, 7]
    assert type(benchmark).model_validate(benchmark.model_dump(mode="json")) == benchmark


def test_a_metric_of_a_file_is_called_by_its_class(own):
    """Columns and files of figures have its name."""
    metric = MetricName.read({"name": f"{own}:Misses", "limit": 2.5})
    assert (metric, metric.info.label, metric.build().limit) == ("misses_2.5", "Misses", 2.5)
    assert MetricName.read(metric.file_form).key == metric.key


def test_published_labels_are_those_that_they_were():
    names = [
        f"fa_{d}_{s}{end}"
        for end in ("", "_columns")
        for d in (100, 1000)
        for s in (10, 100, 1000)
    ]
    datasets = load_benchmark("online-fa").datasets
    assert list(datasets) == names
    assert [name.build().name for name in datasets] == names
