from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from bdl.reports import compare
from bdl.spec.sections import Preparation


@pytest.fixture
def vifa():
    """The tables of the VIFA paper that print the neural-network predictions."""
    return SimpleNamespace(
        paper="vifa2023",
        tables=["Table 1", "Table 11"],
        task="uci_nn_predictions",
        methods={"vifa-lr": "vifa_lr", "vifa-nn": "vifa_nn"},
        metrics={},
        datasets={},
        split=None,
    )


def note(text, dataset=None, entry=None, metric=None, statistic=None, verdict=None):
    place = {"dataset": dataset, "entry": entry, "metric": metric, "statistic": statistic}
    return SimpleNamespace(text=text, **place, verdict=verdict)


@pytest.fixture
def make_benchmark(vifa):
    """Build a benchmark; by default the one of the VIFA paper on two datasets. `sweep` has JSON texts by path."""

    def make(sweep={}, **changes):
        defaults = {
            "name": "uci-nn",
            "title": "UCI neural networks",
            "datasets": ["energy", "yacht"],
            "splits": 20,
            "entries": {"vifa-lr": {}, "vifa-nn": {}},
            "baseline": None,
            "preparation": Preparation(split="published"),
            "metrics": ["nmll", "rmse", "runtime"],
            "papers": [vifa],
            "notes": [],
        }
        content = defaults | changes
        content = {"pairs": list(product(content["datasets"], content["entries"])), "axes": tuple(sweep)} | content
        points = [dict(zip(sweep, texts, strict=True)) for texts in product(*sweep.values())]
        cells = [
            (dataset, entry, SimpleNamespace(texts=point))
            for dataset in content["datasets"]
            for point in points
            for entry in content["entries"]
            if (dataset, entry) in content["pairs"]
        ]
        return SimpleNamespace(**content, cells=cells)

    return make


def trials(dataset, entry, nmll, status=None, **metrics):
    """One row a value of `nmll`; a failed trial has status "failed"."""
    n = len(nmll)
    status = status or ["ok"] * n
    columns = {"nmll": nmll, "rmse": nmll, "runtime": [0.5] * n} | metrics
    return pd.DataFrame(
        {"dataset": dataset, "entry": entry, "split": range(n), "status": status, "reason": None} | columns
    )


@pytest.fixture
def make_trials():
    return trials


@pytest.fixture
def make_note():
    return note


@pytest.fixture
def scores():
    """NMLL of two entries on 20 splits; the second is better by 0.1 on average."""
    rng = np.random.default_rng(0)
    base = rng.normal(2.6, 0.3, 20)
    return base, base - 0.1 + rng.normal(0, 0.05, 20)


@pytest.fixture
def paired_benchmark(make_benchmark):
    """Build a benchmark whose baseline is vifa-lr, by default on energy alone and with 20 splits."""
    return lambda **changes: make_benchmark(**{"baseline": "vifa-lr", "splits": 20, "datasets": ["energy"]} | changes)


@pytest.fixture
def swept(make_benchmark, make_trials, scores):
    """Two widths on energy and yacht: at the second the other entry is worse; on yacht the baseline failed there."""
    base, other = scores
    benchmark = make_benchmark({"model.hidden": ["[20]", "[50]"]}, baseline="vifa-lr", splits=20, metrics=["nmll"])
    rows = [
        make_trials(dataset, entry, values, ["failed" if gone else "ok"] * 20).assign(**{"model.hidden": text})
        for dataset in ("energy", "yacht")
        for text, ours in (("[20]", other), ("[50]", 2 * base - other))
        for entry, values in (("vifa-lr", base + len(dataset)), ("vifa-nn", ours + len(dataset)))
        for gone in [(dataset, text, entry) == ("yacht", "[50]", "vifa-lr")]
    ]
    return benchmark, pd.concat(rows).sample(frac=1, random_state=0)


@pytest.fixture
def drawn(make_benchmark, make_trials):
    """Benchmark and cells: one entry fails on yacht."""
    rng = np.random.default_rng(0)
    rows = pd.concat(
        [
            make_trials("energy", "vifa-lr", rng.normal(2.6, 0.1, 20)),
            make_trials("energy", "vifa-nn", rng.normal(2.5, 0.1, 20)),
            make_trials("yacht", "vifa-lr", rng.normal(3.6, 0.1, 20)),
            make_trials("yacht", "vifa-nn", [np.nan] * 20, status=["failed"] * 20),
        ]
    )
    benchmark = make_benchmark()
    return benchmark, compare(benchmark, rows)
