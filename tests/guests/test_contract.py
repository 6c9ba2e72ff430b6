"""What a guest is given, and what it may return."""

import numpy as np
import pytest
import torch
from torch import nn

from bdl.errors import InputError
from bdl.models.base import NoModel
from bdl.models.likelihoods import Categorical, GaussianLikelihood
from bdl.models.modules import Module, torch_module
from bdl.models.networks import LinearModel, Mlp, Unit
from bdl.models.problem import Problem
from bdl.posteriors import Empirical, Point
from bdl.posteriors.predictive import (
    MeanVariance,
    Outputs,
    Probabilities,
    check_fit,
    query_predictive,
)

X = torch.randn(7, 4, generator=torch.Generator().manual_seed(0)).double()
ONES = np.ones(7)


@pytest.mark.parametrize(
    "model",
    [
        *(Mlp((5, 3), name) for name in ("relu", "tanh", "sigmoid", "softplus")),
        LinearModel(),
        LinearModel(bias=False),
    ],
    ids=str,
)
def test_a_module_computes_what_the_model_does_and_starts_as_the_engine_does(model):
    problem = Problem(model, Categorical(), 4, 2)
    module = torch_module(problem, 3)
    theta = nn.utils.parameters_to_vector(module.parameters()).detach()
    torch.testing.assert_close(module(X.float()), problem.model(theta, X.float(), 2))
    noise = torch.randn(problem.dim, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(theta, problem.initial(noise), rtol=0, atol=0)


def test_a_network_of_a_factory_has_its_shape_and_its_start():
    problem = Problem(
        Module("bdl.models.resnet:resnet18", shape=(3, 32, 32)), Categorical(), 3 * 32 * 32, 3
    )
    module = torch_module(problem, 0).eval()
    assert module(torch.zeros(2, 3 * 32 * 32)).shape == (2, 3)
    noise = torch.randn(problem.dim, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        nn.utils.parameters_to_vector(module.parameters()), problem.initial(noise)
    )


@pytest.mark.parametrize("model", [Unit(), NoModel()])
def test_what_is_no_module_is_refused(model):
    with pytest.raises(InputError, match="is no torch module: use linear, mlp or module"):
        torch_module(Problem(model, GaussianLikelihood(), 4), 0)


@pytest.mark.parametrize(
    ("answer", "outputs", "classes", "shape"),
    [
        (MeanVariance(0 * ONES, ONES), 1, 0, (1, 7)),
        (MeanVariance(np.zeros((3, 7)), np.ones((3, 7))), 1, 0, (3, 7)),
        (Outputs(np.zeros((3, 7))), 1, 0, (3, 7, 1)),
        (Outputs(np.zeros((3, 7, 2))), 2, 2, (3, 7, 2)),
        (Probabilities(np.full((7, 4), 0.25)), 4, 4, (1, 7, 4)),
    ],
)
def test_answers_get_the_axis_of_samples(answer, outputs, classes, shape):
    tensors = answer.validate(7, outputs, classes).tensors.values()
    assert {tensor.shape for tensor in tensors} == {shape}


def test_probabilities_of_low_precision_are_made_to_sum_to_one():
    rough = Probabilities(np.full((7, 3), 1 / 3, np.float16)).validate(7, 3, 3).probabilities
    torch.testing.assert_close(rough.sum(-1), torch.ones(1, 7).double(), rtol=1e-15, atol=0)


@pytest.mark.parametrize(
    ("answer", "classes", "message"),
    [
        (
            MeanVariance(np.zeros(6), np.ones(6)),
            0,
            r"mean has shape \(6,\): give it shape \(7,\) or \(S, 7\)",
        ),
        (MeanVariance(np.zeros((7, 1)), ONES), 0, r"mean has shape \(7, 1\)"),
        (
            MeanVariance(np.zeros((2, 7)), ONES),
            0,
            r"shapes \(2, 7\) and \(7,\): give both the same",
        ),
        (MeanVariance(ONES, 0 * ONES), 0, "variance must be positive: its smallest value is 0"),
        (MeanVariance(ONES * np.nan, ONES), 0, "mean has values that are not finite"),
        (MeanVariance(ONES, ONES * np.inf), 0, "variance has values that are not finite"),
        (MeanVariance(ONES, ONES), 2, "is for targets that are numbers"),
        (Outputs(ONES), 0, r"outputs has shape \(7,\): give it shape \(S, 7, 1\) or \(S, 7\)"),
        (Outputs(np.zeros((0, 7))), 0, r"outputs has shape \(0, 7\)"),
        (Probabilities(np.full((7, 2), 0.5)), 0, "are for labels"),
        (
            Probabilities(np.full((7, 3), 0.5)),
            2,
            r"has shape \(7, 3\): give it shape \(7, 2\) or \(S, 7, 2\)",
        ),
        (Probabilities(np.full((7, 2), 0.6)), 2, "with sum 1 in each row"),
        (Probabilities(np.tile([1.5, -0.5], (7, 1))), 2, "must be 0 or more"),
        (
            (X, X),
            0,
            "the predictive answers with tuple: let it return MeanVariance, Outputs or Prob",
        ),
    ],
)
def test_an_answer_of_another_shape_or_value_is_refused(answer, classes, message):
    with pytest.raises(InputError, match=message):
        query_predictive(lambda x: answer, X, None, 1, classes)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            None,
            "return a posterior of bdl.posteriors, or a function of inputs",
        ),
        (
            MeanVariance(ONES, ONES),
            "return a function of inputs that answers with it",
        ),
        (Point(torch.zeros(4)), r"loc has shape \(4,\): give it shape \(5,\)"),
        (
            Point(torch.full((5,), torch.nan)),
            "it has values that are not finite: the fit diverged",
        ),
        (Empirical(torch.zeros(5)), "."),
    ],
)
def test_what_cannot_be_a_fit_is_refused(found, message):
    with pytest.raises(InputError, match=message):
        check_fit(found, 5)


def test_a_stored_answer_knows_its_rows_alone():
    kept = (
        Outputs(np.arange(14.0).reshape(2, 7))
        .validate(7, 1, 0)
        ._replace(rows=torch.arange(10, 17))
    )
    some = query_predictive(kept, X[:2], torch.tensor([16, 11]), 1, 0)
    assert some.outputs[..., 0].tolist() == [[6, 1], [13, 8]]
    for rows in (None, torch.tensor([9])):
        with pytest.raises(
            InputError, match="kept as its predictions at the test rows, and cannot predict others"
        ):
            query_predictive(kept, X[:1], rows, 1, 0)
