"""Counts of small and large weights."""

import pytest
import torch

from bdl.errors import InputError
from bdl.metrics import METRICS
from bdl.models.likelihoods import Gaussian
from bdl.models.networks import Linear, Mlp
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian

from .fits import fit

MEAN = torch.tensor([0.0, -0.1, 0.1, -5.0, 0.5, 0.01])  # 2-1-1: two weights, a bias, a weight, a bias
NET = Problem(Mlp((1,)), Gaussian(), 2)


@pytest.mark.parametrize(
    ("name", "settings", "count"),
    [
        ("weights_below", {"limit": 0.1}, 1),
        ("weights_below", {"limit": 0.11}, 2),
        ("weights_from", {"limit": 0.1}, 1),
        ("weights_from", {"limit": 1.0, "layer": 1}, 1),
        ("weights_below", {"limit": 1.0, "layer": 1}, 0),
    ],
)
def test_sizes_of_the_means_are_counted_without_biases(name, settings, count):
    posterior = DiagonalGaussian(MEAN[:5], torch.ones(5))
    score = METRICS.build(name, settings)
    assert score(fit(posterior, NET)) == count
    assert score.info.direction == "none"


def test_a_layer_that_is_not_there():
    with pytest.raises(InputError, match="has 1 layers, counted from 0: there is no layer 1"):
        METRICS.build("weights_from", {"limit": 1.0, "layer": 1})(fit(problem=Problem(Linear(), Gaussian(), 2)))
