"""Benchmarks, rows and notes made by hand, and what can be read off a figure."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from bdl.spec.sections import Preparation


def make_tables(paper, task, tables, methods, metrics={}, datasets={}, split=None):
    """Tables of a paper, as a benchmark lists them."""
    own = {"methods": methods, "metrics": metrics, "datasets": datasets, "split": split}
    own |= {"same_splits": {}, "uncounted": ()}
    return SimpleNamespace(paper=paper, task=task, tables=tables, **own)


def changed(base, **changes):
    return SimpleNamespace(**vars(base) | changes)


VIFA = make_tables(
    "vifa2023",
    "uci_nn_predictions",
    ["Table 1", "Table 11"],
    {"vifa-lr": "vifa_lr", "vifa-nn": "vifa_nn"},
)
"""Those of the VIFA paper that print the neural-network predictions."""


def make_note(text, dataset=None, entry=None, metric=None, statistic=None, verdict=None):
    place = {"dataset": dataset, "entry": entry, "metric": metric, "statistic": statistic}
    return SimpleNamespace(text=text, **place, verdict=verdict, cause=None)


def make_benchmark(sweep={}, **changes):
    """A benchmark; by default the one of the VIFA paper on two datasets.

    `sweep` has JSON texts by path.
    """
    defaults = {
        "name": "uci-nn",
        "title": "UCI neural networks",
        "datasets": ["energy", "yacht"],
        "splits": 20,
        "entries": {"vifa-lr": {}, "vifa-nn": {}},
        "baseline": None,
        "preparation": Preparation(split="published"),
        "metrics": ["nmll", "rmse", "runtime"],
        "papers": [VIFA],
        "notes": [],
    }
    content = defaults | changes
    content = {
        "pairs": list(product(content["datasets"], content["entries"])),
        "axes": tuple(sweep),
    } | content
    points = [
        SimpleNamespace(texts=dict(zip(sweep, texts, strict=True)))
        for texts in product(*sweep.values())
    ]
    cells = [
        (dataset, entry, point)
        for dataset in content["datasets"]
        for point in points
        for entry in content["entries"]
        if (dataset, entry) in content["pairs"]
    ]
    splits_by_dataset = content["preparation"].splits

    def splits_of(dataset):
        return range(splits_by_dataset.get(dataset, content["splits"]))

    def record_of(dataset, entry):
        return content.get("record")

    functions = {"splits_of": splits_of, "record_of": record_of}
    return SimpleNamespace(**content, points=points, cells=cells, **functions)


def make_paired(**changes):
    """A benchmark whose baseline is vifa-lr, by default on energy alone."""
    return make_benchmark(**{"baseline": "vifa-lr", "datasets": ["energy"]} | changes)


def three(centre):
    """Three values with the standard error 0.01: their 95 % interval reaches 0.043 to either side."""
    away = 0.01 * 3**0.5
    return [centre - away, centre, centre + away]


def unprinted(cells):
    return [
        replace(cell, paper=None, paper_se=None, z=None, p=None, verdict="no paper value")
        for cell in cells
    ]


def make_trials(dataset, entry, nmll, status=None, **metrics):
    """One row a value of `nmll`; a failed trial has status "failed"."""
    n = len(nmll)
    columns = {"split": range(n), "status": status or ["ok"] * n, "reason": None}
    metrics = {"nmll": nmll, "rmse": nmll, "runtime": [0.5] * n} | metrics
    return pd.DataFrame({"dataset": dataset, "entry": entry} | columns | metrics)


def shuffled(*rows):
    return pd.concat(rows).sample(frac=1, random_state=0)


def of(cells, metric="nmll", statistic="mean", **place):
    """The cells of a metric and a statistic, and of what else is given."""
    wanted = {"metric": metric, "statistic": statistic} | place
    return [
        cell
        for cell in cells
        if all(getattr(cell, name) == value for name, value in wanted.items())
    ]


def titles(figure):
    return [panel.get_title(loc="left") for panel in figure.axes]


def texts(found):
    return [text.get_text() for text in found]


def legend(figure):
    return texts(figure.legends[0].get_texts())


def columns(section):
    return [title for title, _ in section.columns]


@pytest.fixture
def scores():
    """NMLL of two entries on 20 splits; the second is better by 0.1 on average."""
    rng = np.random.default_rng(0)
    base = rng.normal(2.6, 0.3, 20)
    return base, base - 0.1 + rng.normal(0, 0.05, 20)


@pytest.fixture
def swept(scores):
    """Two widths on energy and yacht: at the second the other entry is worse.

    On yacht the baseline failed there.
    """
    base, other = scores
    benchmark = make_benchmark(
        {"model.hidden": ["[20]", "[50]"]}, baseline="vifa-lr", metrics=["nmll"]
    )
    rows = [
        make_trials(dataset, entry, values, ["failed" if gone else "ok"] * 20).assign(
            **{"model.hidden": text}
        )
        for dataset in ("energy", "yacht")
        for text, ours in (("[20]", other), ("[50]", 2 * base - other))
        for entry, values in (("vifa-lr", base + len(dataset)), ("vifa-nn", ours + len(dataset)))
        for gone in [(dataset, text, entry) == ("yacht", "[50]", "vifa-lr")]
    ]
    return benchmark, shuffled(*rows)
