"""Predictions of labels by stored posteriors."""

import pytest
import torch

from bdl.plan.planning import cells_of
from bdl.posteriors import Point
from bdl.publishing import pictures
from bdl.publishing.pictures import labelled
from bdl.spec import load_benchmark
from bdl.store import Outcome, Row, artefacts
from bdl.store.store import Store

TEXT = """
name: moons
title: Moons
datasets: [two_moons]
splits: 2
entries:
  adam:
    model: {{name: linear}}
    likelihood: {{name: categorical}}
    method: {{name: adam}}
    training: {{epochs: 1, batch_size: 10}}
    hyper: {{learning_rate: 0.01, prior_precision: 1}}
metrics: [{metrics}]
"""


@pytest.fixture
def read(tmp_path):
    """Store two fits that always say class 1 with probability 0.8, and read what they predict."""

    def make(metrics):
        path = tmp_path / "moons.yaml"
        path.write_text(TEXT.format(metrics=metrics))
        (cell,) = cells_of(load_benchmark(path.as_posix()))
        theta = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 4.0]).div(4).mul(torch.tensor(4.0).log())
        content = artefacts.encode(Point(theta), {})
        hyper = {"learning_rate": 0.01, "prior_precision": 1.0}
        with Store(tmp_path / f"{len(metrics)}.sqlite") as store:
            for split in range(2):
                row = Row(*cell.key, "final", split, 0, 0, "ok", None, hyper, {}, 1.0, {})
                store.append([Outcome(row, (), content)])
            return cell, labelled([cell], store)

    return make


def test_every_split_is_predicted_with_its_labels_and_risks(read):
    cell, found = read("accuracy, aurc")
    assert [(fit.dataset, fit.entry) for fit in found] == [("two_moons", "adam")] * 2
    for split, fit in enumerate(found):
        y = cell.data.y[cell.data.split(split).test]
        assert fit.labels.tolist() == y.tolist()
        assert fit.probabilities == pytest.approx(torch.tensor([0.2, 0.8]).repeat(len(y), 1).numpy())
        assert [*fit.risks] == ["entropy", "disagreement"]
        for risks in fit.risks.values():  # no row is more certain than another
            assert risks == pytest.approx([(y == 0).mean()] * len(y))


def test_none_is_predicted_without_the_score_or_of_a_large_model(read, monkeypatch):
    assert read("accuracy")[1] == []
    monkeypatch.setattr(pictures, "MOST", 5)
    assert read("accuracy, aurc")[1] == []
