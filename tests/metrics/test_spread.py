"""Interquartile ranges of samples, against those of a normal distribution."""

import pytest
import torch

from bdl.errors import InputError
from bdl.metrics import METRICS
from bdl.models.likelihoods import Bernoulli, Categorical, Gaussian
from bdl.models.networks import Linear
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian

from .fits import examples, fit

WEIGHT = DiagonalGaussian(torch.tensor([1.0]), torch.tensor([4.0]))
QUARTILE = 0.674490  # of the standard normal distribution


def spread(likelihood, low, high, unit=1.0, posterior=WEIGHT, d_out=1):
    rows = examples(torch.tensor([[0.0], [0.5], [1.0], [3.0]]), torch.zeros(4), unit)
    problem = Problem(Linear(bias=False), likelihood, 1, d_out)
    found = fit(posterior, problem, test=lambda: rows, samples=20_000, hyper={"noise_precision": 1.0})
    return METRICS.build("spread", {"low": low, "high": high})(found)


def test_no_row_in_the_range():
    with pytest.raises(InputError, match=r"spread: no test row has its first input in \[1.5, 2\]: widen that"):
        spread(Gaussian(), 1.5, 2)


def test_several_outputs():
    two = DiagonalGaussian(torch.zeros(2), torch.ones(2))
    with pytest.raises(InputError, match="spread: the model has 2 outputs, not one"):
        spread(Categorical(), 0, 1, posterior=two, d_out=2)


@pytest.mark.parametrize(("low", "high", "scale"), [(0, 0.2, 0.0), (0.9, 1, 1.0), (1, 3, 2.0), (0, 3, 1.125)])
def test_means_of_targets(low, high, scale):
    """x w has the standard deviation 2 x, times the unit of 10: the noise of targets does not count."""
    assert spread(Gaussian(), low, high, 10.0) == pytest.approx(2 * QUARTILE * 20 * scale, rel=0.03)


def test_probabilities():
    """The quartiles of sigmoid(w) are those of w, mapped."""
    upper, lower = torch.sigmoid(1 + 2 * QUARTILE * torch.tensor([1.0, -1.0])).tolist()
    assert spread(Bernoulli(), 1, 2) == pytest.approx(upper - lower, rel=0.03)
