"""The posterior of the bias."""

import pytest
import torch

from bdl.errors import InputError
from bdl.metrics import METRICS
from bdl.models.likelihoods import Bernoulli
from bdl.models.networks import Linear, Mlp
from bdl.models.problem import Problem
from bdl.posteriors import FullGaussian

from .fits import fit

NAMES = ["bias_mean", "bias_variance"]


@pytest.mark.parametrize(("name", "value"), [("bias_mean", -3.0), ("bias_variance", 25.0)])
def test_it_is_that_of_the_last_parameter_of_a_linear_model(name, value):
    posterior = FullGaussian(torch.tensor([1.0, 2, -3]), torch.tensor([[1.0, 0, 0], [0, 2, 0], [3, 0, 4]]))
    score = METRICS.build(name, {})
    assert score(fit(posterior, Problem(Linear(), Bernoulli(), 2))) == value
    assert score.info.direction == "none"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("model", "count"), [(Linear(bias=False), 0), (Mlp((2,)), 3)])
def test_no_bias_or_several_are_refused(name, model, count):
    with pytest.raises(InputError, match=f"^{name}: the model has {count} biases, not one: leave the metric out$"):
        METRICS.build(name, {})(fit(problem=Problem(model, Bernoulli(), 2)))
