"""Small benchmarks on small data sets, and how tests look at what a command did with them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

LINEAR = {"model": {"name": "linear"}, "likelihood": {"name": "gaussian"}}
EXACT = LINEAR | {
    "method": {"name": "conjugate"},
    "hyper": {"prior_precision": 1, "noise_precision": 0.0003},
}
"""An entry without minibatches, for `diabetes`."""
STEPPED = LINEAR | {
    "method": {"name": "vifa", "gradients_per_update": 2},
    "training": {"epochs": 2, "batch_size": 50},
    "hyper": {"learning_rate": 0.01, "prior_precision": 1, "noise_precision": 0.001},
}
"""An entry that trains by minibatches, for `diabetes`."""

TINY = """
name: tiny
title: A tiny benchmark
datasets: [diabetes]
splits: 2
entries:
  fixed:
    model: {name: linear}
    likelihood: {name: gaussian}
    method: {name: vifa, gradients_per_update: 2}
    training: {epochs: 1, batch_size: 10}
    hyper: {learning_rate: 0.01, prior_precision: 1, noise_precision: 0.001}
evaluation: {samples: 5}
metrics: [nmll]
profiles:
  quick: {splits: 1}
"""


def benchmark_text(entries: Mapping[str, Mapping[str, Any]], **fields: object) -> str:
    """Write a benchmark file: entries, and fields other than those of a small one."""
    content = {
        "name": "small",
        "title": "Small",
        "datasets": ["diabetes"],
        "splits": 2,
        "entries": entries,
        "evaluation": {"samples": 5},
        "metrics": ["nmll", "rmse", "runtime"],
    }
    return yaml.safe_dump(content | fields, sort_keys=False)


def refusal(result: tuple[int, str, str], expected: int = 2) -> str:
    """Return the one line on stderr that a command ended with."""
    code, out, err = result
    assert (code, out) == (expected, ""), out + err
    assert err.startswith("bdl-bench: ")
    assert err.count("\n") == 1
    return err


def contents(folder: Path) -> dict[Path, bytes | None]:
    """Files and folders below a folder."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def raising(error: BaseException):
    """Make a function that raises an error."""

    def raise_it(*args, **kwargs):
        raise error

    return raise_it
