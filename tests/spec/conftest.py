import pytest
import yaml

from bdl.spec import load_benchmark

TEXT = """
name: small
title: A small benchmark
datasets: [diabetes, yacht]
splits: 3
entries:
  searched:
    model: {name: mlp}
    likelihood: {name: gaussian}
    method: {name: vifa, latent_dim: 2}
    training: {epochs: 5, batch_size: 10}
    search:
      trials: 4
      folds: 3
      metric: nmll
      space:
        learning_rate: {low: 1e-3, high: 1e-2, scale: log}
        prior_precision: {low: 0.1, high: 10}
        noise_precision: {low: 0.01, high: 1, scale: log}
  fixed:
    model: {name: linear}
    likelihood: {name: bernoulli}
    method: {name: vifa}
    training: {epochs: 5, batch_size: 10}
    hyper: {learning_rate: 0.01, prior_precision: 1}
metrics: [rmse, nmll]
papers:
  - {paper: some2020, tables: [Table 1], task: a_task, methods: {searched: theirs, fixed: theirs}}
notes:
  - {entry: fixed, text: about fixed}
  - {dataset: yacht, text: about yacht}
profiles:
  quick:
    splits: 1
    entries:
      searched: {training: {epochs: 2}, search: {space: {learning_rate: {low: 2e-3}}}}
"""


@pytest.fixture
def content():
    """The content of a valid file, to be changed by a test."""
    return yaml.safe_load(TEXT.replace("e-3", ".0e-3").replace("e-2", ".0e-2"))


@pytest.fixture
def put(content):
    """Set a dotted path of the content."""

    def call(path, value):
        *parents, last = path.split(".")
        place = content
        for key in parents:
            place = place.setdefault(key, {})
        place[last] = value

    return call


@pytest.fixture
def text():
    return TEXT


@pytest.fixture
def load(tmp_path):
    """Write text or content to a file and load it."""

    def write(source, *args, **kwargs):
        path = tmp_path / "small.yaml"
        path.write_text(
            source if isinstance(source, str) else yaml.safe_dump(source, sort_keys=False), "utf-8"
        )
        return load_benchmark(str(path), *args, **kwargs)

    return write
