"""Properties that hold for any input, which Hypothesis looks for counterexamples of."""

import copy
import io
from contextlib import redirect_stderr
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from metrics.fits import answered, labelled, regression
from tiny import TINY
from torch.distributions import Normal

from bdl.cli.terminal import run_to_exit_code
from bdl.data import DATASETS
from bdl.metrics import METRICS
from bdl.spec import load_request

settings.register_profile("same", derandomize=True, deadline=None, database=None)
settings.load_profile("same")

TEXTS = st.text(max_size=8) | st.sampled_from(["", "vifa", "1e999", "../x", "[red]", "a.b", "on"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
TREES = st.recursive(
    SCALARS,
    lambda nodes: st.lists(nodes, max_size=3) | st.dictionaries(SCALARS, nodes, max_size=3),
    max_leaves=6,
)
CELLS = st.sampled_from(
    ["1", "-2.5", "3e4", "1,5", "1.234,5", "1e999", "1 234", "5%", "2026-01-31", "10:30", "NA"]
) | st.sampled_from(["nan", "inf", "red", "blue", "true", "", " ", '"', "é", "\x00"])
SEEDS = st.integers(0, 2**32 - 1)


def assert_done_or_refused(command) -> None:
    """Run a command, which ends well, or in one printable line that says what is wrong."""
    with redirect_stderr(io.StringIO()) as stderr:
        code = run_to_exit_code(command)
    message = stderr.getvalue()
    assert code in (0, 2), message
    line = message.removesuffix("\n")
    assert line.isprintable()
    assert line.startswith("bdl-bench: ") == (code == 2)


def list_paths(tree, path=()):
    """List the keys that lead to each node below a tree of mappings."""
    if isinstance(tree, dict):
        for key, node in tree.items():
            yield (*path, key)
            yield from list_paths(node, (*path, key))


BENCHMARK = yaml.safe_load(TINY)
PATHS = list(list_paths(BENCHMARK))


@st.composite
def changed_benchmarks(draw):
    """Draw a benchmark of which a few nodes are other trees, are gone, or have another name."""
    tree = copy.deepcopy(BENCHMARK)
    for *parents, key in draw(st.lists(st.sampled_from(PATHS), min_size=1, max_size=3)):
        node = tree
        for parent in parents:
            node = node.get(parent) if isinstance(node, dict) else None
        if isinstance(node, dict):
            value = node.pop(key, None)
            if draw(st.booleans()):
                name = draw(st.just(key) | SCALARS)
                node[name] = draw(st.just(value) | TREES)
    return tree


@given(TREES | changed_benchmarks())
@settings(max_examples=200)
def test_any_yaml_tree_is_a_benchmark_or_is_refused_in_one_line(tree):
    with TemporaryDirectory() as folder:
        path = Path(folder, "any.yaml")
        path.write_text(yaml.safe_dump(tree, allow_unicode=True), "utf-8", errors="replace")
        assert_done_or_refused(lambda: load_request(str(path)) and None)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_benchmark_or_are_refused_in_one_line(content):
    with TemporaryDirectory() as folder:
        path = Path(folder, "any.yaml")
        path.write_bytes(content)
        assert_done_or_refused(lambda: load_request(str(path)) and None)


TABLE_SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "decimal": st.sampled_from([".", ","]),
        "thousands": st.sampled_from([",", ".", "'", " "]),
        "separator": st.sampled_from([",", ";", "\t"]),
        "header": st.booleans(),
        "missing": st.sampled_from(["refuse", "drop"]),
        "gaps": st.lists(CELLS, max_size=2).map(tuple),
        "task": st.sampled_from(["regression", "classification"]),
        "time": st.sampled_from("abz"),
        "group": st.sampled_from("abc"),
        "split_column": st.sampled_from("abc"),
        "leave_out": st.lists(st.sampled_from("abcz"), max_size=2).map(tuple),
        "categories": st.lists(st.sampled_from("abc"), max_size=2).map(tuple),
        "classes": st.lists(SCALARS, max_size=3).map(tuple),
        "positive": SCALARS,
    },
)


def read_table(name: str, path: Path, options: dict) -> None:
    data = DATASETS.build(name, {"path": str(path), "target": "a", **options})()
    assert np.isfinite(data.x).all()
    assert np.isfinite(data.y).all()
    assert len(data.x) == len(data.y) > 0


@given(
    st.lists(st.lists(CELLS, min_size=3, max_size=3), max_size=12), TABLE_SETTINGS, st.booleans()
)
@settings(max_examples=200)
def test_any_table_is_read_or_refused_in_one_line(rows, options, as_parquet):
    """A table of Parquet has columns of pandas' own types where all cells are numbers."""
    with TemporaryDirectory() as folder:
        if as_parquet:
            name, path = "parquet", Path(folder, "any.parquet")
            frame = pd.DataFrame(rows, columns=["a", "b", "c"])
            for column in frame:
                numbers = pd.to_numeric(frame[column], errors="coerce")
                frame[column] = frame[column] if numbers.isna().any() else numbers
            frame.to_parquet(path)
            csv_alone = {"decimal", "thousands", "separator", "header", "gaps"}
            options = {key: value for key, value in options.items() if key not in csv_alone}
        else:
            name, path = "csv", Path(folder, "any.csv")
            mark = options.get("separator", ";")
            path.write_text("\n".join(mark.join(row) for row in [["a", "b", "c"], *rows]), "utf-8")
        assert_done_or_refused(lambda: read_table(name, path, options))


@given(st.binary(max_size=80), TABLE_SETTINGS)
def test_any_bytes_are_a_table_or_are_refused_in_one_line(content, options):
    with TemporaryDirectory() as folder:
        path = Path(folder, "any.csv")
        path.write_bytes(content)
        assert_done_or_refused(lambda: read_table("csv", path, options))


def mixture(means, y):
    """Evaluate mixtures of normals with means (S, n) at targets (n,)."""
    return answered(Normal(means.T, torch.ones_like(means.T)), y)


def draw_numbers(seed: int):
    """Draw outputs (S, n) and targets (n,)."""
    generator = torch.Generator().manual_seed(seed)
    f = torch.randn(5, 12, generator=generator, dtype=torch.float64)
    return f, f[0] + torch.randn(12, generator=generator, dtype=torch.float64)


def draw_labels(seed: int):
    """Draw probabilities (S, n, C) and classes (n,)."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(5, 12, 3, generator=generator, dtype=torch.float64)
    return logits.softmax(-1), torch.randint(3, (12,), generator=generator).double()


SCORES = {
    "rmse": regression,
    "nmll": regression,
    "crps": mixture,
    "coverage": mixture,
    "interval_width": mixture,
    "pit_distance": mixture,
    "nll": labelled,
    "accuracy": labelled,
    "brier": labelled,
    "ece": labelled,
    "entropy": labelled,
}
"""Scores of predictions, by how these are evaluated."""


@pytest.mark.parametrize("name", SCORES)
@given(seed=SEEDS)
@settings(max_examples=20)
def test_scores_do_not_depend_on_the_order_of_rows_or_samples(name, seed):
    """Nor on how often all samples are there."""
    evaluate = SCORES[name]
    outputs, y = (draw_labels if evaluate is labelled else draw_numbers)(seed)
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(y), generator=generator)
    samples = torch.randperm(len(outputs), generator=generator)
    metric = METRICS.build(name, {})
    expected = pytest.approx(metric(evaluate(outputs, y)), rel=1e-9)
    assert metric(evaluate(outputs[:, rows], y[rows])) == expected
    assert metric(evaluate(outputs[samples], y)) == expected
    assert metric(evaluate(outputs.repeat_interleave(2, 0), y)) == expected
