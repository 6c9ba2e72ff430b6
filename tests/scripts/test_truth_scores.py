"""The score of the truth is that of its draws, in the target's unit."""

from types import SimpleNamespace

import numpy as np
import pytest
import truth_scores

from bdl.plan.planning import cells_of
from bdl.plan.truths import recipe
from bdl.spec import load_variant


def test_draws_that_are_zero_predict_the_mean_of_the_training_targets(monkeypatch):
    cell = cells_of(load_variant("network-posterior", overrides=["datasets=[gap_curve]"]).chosen)[0]
    theta = np.zeros((2, 3, recipe(cell, 0).problem.dim))
    monkeypatch.setattr(truth_scores, "obtain", lambda _: SimpleNamespace(theta=theta))
    split, y, noise = cell.data.split(0), cell.data.y, cell.settings.hyper["noise_precision"]
    judged = y[split.test if len(split.test) else split.train]
    error = (judged - y[split.train].mean()) ** 2
    expected = 0.5 * np.log(2 * np.pi / noise) + noise / 2 * error.mean()
    assert truth_scores.score(cell, 0) == pytest.approx(expected, rel=1e-9)
