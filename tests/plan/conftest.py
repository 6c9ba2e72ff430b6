from pathlib import Path

import pytest
import yaml

from bdl.spec import load_benchmark

PARTS = """
from dataclasses import dataclass

import numpy as np
import torch

from bdl.data import Dataset
from bdl.data.splits import Split
from bdl.references.base import Reference, Truth


def three():
    x = np.random.default_rng(0).normal(size=(90, 2))
    return Dataset("three", x, np.arange(90.0) % 3, "classification")


def split(index):
    train, validation, test = np.split(np.random.default_rng(index).permutation(90), [50, 70])
    return Split(train, test, validation)


def kept():
    return Dataset("kept", three().x, three().y, "classification", splits=2, published=split)


def without():
    return Dataset("kept", three().x, three().y, "classification", published=lambda index: Split(*split(index)[:2]))


@dataclass(frozen=True)
class Far(Reference):
    def check(self, problem):
        pass

    def fit(self, problem, x, y, hyper):
        return Truth(torch.ones(problem.dim).double(), torch.eye(problem.dim).double(), {})
"""
VIFA = {
    "model": {"name": "linear"},
    "method": {"name": "vifa"},
    "training": {"epochs": 2, "batch_size": 10},
}
RATES = {"learning_rate": 0.01, "prior_precision": 1}
LABEL = "parts_three"
"""What a benchmark calls the function `three` of the file parts.py."""


@pytest.fixture
def parts(tmp_path) -> Path:
    (tmp_path / "parts.py").write_text(PARTS)
    return tmp_path / "parts.py"


@pytest.fixture
def load(tmp_path, parts):
    """Load a benchmark of a classification and a regression, with changes: (dotted path, value)."""

    def read(*changes):
        far = {"reference": {"name": f"{parts}:Far"}}
        classes = {"likelihood": {"name": "categorical"}, "hyper": RATES, "datasets": [LABEL]}
        numbers = {"likelihood": {"name": "gaussian"}, "hyper": {**RATES, "noise_precision": 0.1}}
        content = {
            "name": "labels",
            "title": "Labels",
            "datasets": [f"{parts}:three", "diabetes"],
            "splits": 2,
            "entries": {
                "classes": VIFA | far | classes,
                "numbers": VIFA | far | numbers | {"datasets": ["diabetes"]},
            },
            "metrics": ["rel_mean_dist"],
        }
        for path, value in changes:
            *parents, last = path.split(".")
            place = content
            for key in parents:
                place = place.setdefault(key, {})
            place[last] = value
        (tmp_path / "labels.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        return load_benchmark(str(tmp_path / "labels.yaml"))

    return read
