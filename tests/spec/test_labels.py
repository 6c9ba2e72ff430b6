"""Data sets and metrics with settings, and what rows and tables call them."""

import json
import pickle

import pytest

from bdl.data import Stream, load_stream
from bdl.errors import InputError
from bdl.spec import DatasetName, MetricName, load_benchmark

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
    label = DatasetName.read(given)
    assert label == text
    assert hash(label) == hash(text)
    assert json.dumps({label: label}) == json.dumps({text: text})


def test_a_label_knows_its_component():
    label = DatasetName.read({"name": "fa", "dim": 20, "top": 10})
    assert (label.name, label.settings["length"]) == ("fa", 100_000)
    assert label.build() == load_stream(label) == Stream(20, 10)
    again = pickle.loads(pickle.dumps(label))
    assert (again, again.name, again.settings, type(again)) == (label, label.name, label.settings, DatasetName)
    assert DatasetName.read(label) is label
    assert DatasetName.read("yacht").settings == {}


def test_the_key_tells_equal_labels_apart():
    one, other = (DatasetName.read({"name": "fa", "dim": 20, "top": top, "label": "same"}) for top in (1, 2))
    assert one == other
    assert one.key != other.key
    assert one.key == pickle.loads(pickle.dumps(one)).key


def test_what_a_file_says_is_read_back():
    for given in ("yacht", {"name": "fa", "dim": 20, "top": 10}):
        label = DatasetName.read(given)
        again = DatasetName.read(json.loads(json.dumps(label.plain)))
        assert (again, again.name, again.settings) == (label, label.name, label.settings)
    assert DatasetName.read("yacht").plain == "yacht"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "fa", "dim": 20}, "datasets.0.top: is missing"),
        ("fa", "datasets.0.dim: is missing"),
        ({"name": "fa", "dim": 5, "top": 2}, "datasets.0.dim: Input should be greater than or equal to 11 (got 5)"),
        ({"name": "fa", "rank": 5}, "datasets.0: unknown setting of dataset 'fa' 'rank'; allowed: dim, top, scaling,"),
        ({"name": "yacht", "dim": 5}, "datasets.0: dataset 'yacht' has no settings: remove dim"),
        ({"name": "yatch"}, "datasets.0: unknown dataset 'yatch': did you mean yacht"),
        ({"dim": 5}, "datasets.0: should be a name, or a mapping with a name and settings"),
        (3, "datasets.0: should be a name, or a mapping with a name and settings"),
        ({"name": "fa", "dim": 20, "top": 2, "label": 3}, "datasets.0: label: should be text (got 3)"),
    ],
)
def test_refusals(load, content, given, message):
    content["datasets"] = [given]
    with pytest.raises(InputError) as caught:
        load(content)
    assert f"small.yaml: {message}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_data_sets_of_one_label(load, content):
    content["datasets"] = [{"name": "fa", "dim": 20, "top": top, "label": "same"} for top in (1, 2)]
    with pytest.raises(InputError, match="datasets: 'same' comes twice: remove one"):
        load(content)


def test_a_benchmark_refers_to_labels(load):
    benchmark = load(STREAMS)
    assert benchmark.datasets == ("fa_20_10_3", "mine", "fa_20_2.5_columns")
    assert benchmark.pairs[1:3] == (("mine", "online"), ("mine", "batch"))
    assert [benchmark.preparation.rows_of(name) for name in benchmark.datasets] == [None, 500, None]
    assert benchmark.dataset("mine").settings["splits"] == 10
    assert benchmark.entries["batch"].on("mine").method.build().latent_dim == 3
    assert benchmark.select(["mine"]).datasets[0].settings == benchmark.dataset("mine").settings
    assert pickle.loads(pickle.dumps(benchmark)).dataset("mine").key == benchmark.dataset("mine").key


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
    ],
)
def test_an_unknown_label(load, old, new, place):
    assert old in STREAMS
    with pytest.raises(InputError) as caught:
        load(STREAMS.replace(old, new))
    assert f"small.yaml: {place}: unknown dataset 'main': did you mean mine" in str(caught.value)


def test_metrics_with_settings(load, content):
    content["metrics"] = ["nmll", {"name": "ece", "bins": 20}, {"name": "ece", "bins": 5, "label": "ece_few"}]
    content["notes"] = [{"metric": "ece_20", "text": "about it"}]
    benchmark = load(content)
    assert benchmark.metrics == ("nmll", "ece_20", "ece_few")
    assert [metric.build().bins for metric in benchmark.metrics[1:]] == [20, 5]
    assert benchmark.metrics[1].info == type(benchmark.metrics[1].build()).info
    assert MetricName.read("ece") == "ece"
    assert MetricName.read("ece").build().bins == 15
    assert type(benchmark).model_validate(benchmark.model_dump(mode="json")) == benchmark


def test_a_metric_of_a_file_is_called_by_its_class(tmp_path):
    """Columns and files of figures have its name."""
    path = tmp_path / "misses.py"
    path.write_text(
        "from dataclasses import dataclass\n"
        "from typing import ClassVar\n"
        "from bdl.metrics import MetricInfo\n"
        "@dataclass(frozen=True)\n"
        "class Misses:\n"
        "    limit: float\n"
        "    info: ClassVar[MetricInfo] = MetricInfo('Misses', 'fraction', 'lower', 'predictive')\n"
        "    def __call__(self, evaluation):\n"
        "        return 0.0\n"
    )
    metric = MetricName.read({"name": f"{path}:Misses", "limit": 2.5})
    assert (metric, metric.info.label, metric.build().limit) == ("misses_2.5", "Misses", 2.5)
    again = MetricName.read(metric.plain)
    assert (again, again.key) == (metric, metric.key)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("metrics", [{"name": "ece", "bins": 0}], "metrics.0.bins: Input should be greater than or equal to 1 (got 0)"),
        ("metrics", [{"name": "ece", "label": "error"}], "metrics.0: label: 'error' should be ece, or begin with ece_"),
        ("notes", [{"metric": "ece_20", "text": "t"}], "notes.0.metric: unknown metric 'ece_20': did you mean ece"),
    ],
)
def test_metrics_refused(load, content, path, value, message):
    content[path] = value
    with pytest.raises(InputError) as caught:
        load(content)
    assert message in str(caught.value)


def test_a_search_may_go_by_a_score_with_settings(load, content):
    content["entries"]["searched"]["search"]["metric"] = {"name": "ece", "bins": 7}
    metric = load(content).entries["searched"].search.metric
    assert (metric, metric.build().bins) == ("ece_7", 7)


def test_published_labels_are_those_that_they_were():
    names = [f"fa_{d}_{s}{end}" for end in ("", "_columns") for d in (100, 1000) for s in (10, 100, 1000)]
    datasets = load_benchmark("online-fa").datasets
    assert list(datasets) == names
    assert [name.build().name for name in datasets] == names
