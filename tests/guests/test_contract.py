"""What a guest is given, and what it may return."""

import numpy as np
import pytest
import torch
from torch import nn

from bdl.errors import InputError
from bdl.methods.guest import Train
from bdl.models.base import NoModel
from bdl.models.likelihoods import Bernoulli, Categorical, Gaussian
from bdl.models.modules import Module, torch_module
from bdl.models.networks import Linear, Mlp, Unit
from bdl.models.problem import Problem
from bdl.posteriors import Empirical, FullGaussian, Point
from bdl.posteriors.predictive import MeanVariance, Outputs, Probabilities, ask, check_fit, is_predictive

X = torch.randn(7, 4, generator=torch.Generator().manual_seed(0)).double()


@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "softplus", "gelu", "silu"])
def test_a_network_is_the_module_that_computes_the_same(activation):
    problem = Problem(Mlp((5, 3), activation), Categorical(), 4, 2)
    module = torch_module(problem, 1)
    theta = nn.utils.parameters_to_vector(module.parameters()).detach()
    torch.testing.assert_close(module(X.float()), problem.model(theta, X.float(), 2))
    assert [type(part).__name__ for part in module].count("Linear") == 3


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_model_is_one_layer(bias):
    problem = Problem(Linear(bias), Gaussian(), 4)
    module = torch_module(problem, 1)
    theta = nn.utils.parameters_to_vector(module.parameters()).detach()
    assert theta.shape == (problem.dim,)
    torch.testing.assert_close(module(X.float()), problem.model(theta, X.float(), 1))


def test_a_module_starts_as_the_engine_does():
    problem = Problem(Mlp((20,)), Gaussian(), 4)
    noise = torch.randn(problem.dim, generator=torch.Generator().manual_seed(3))
    start = nn.utils.parameters_to_vector(torch_module(problem, 3).parameters())
    torch.testing.assert_close(start, problem.initial(noise), rtol=0, atol=0)
    assert not torch.equal(start, nn.utils.parameters_to_vector(torch_module(problem, 4).parameters()))


def test_a_network_of_a_factory_has_its_shape_and_its_start():
    model = Module("bdl.models.resnet:resnet18", shape=(3, 32, 32))
    problem = Problem(model, Categorical(), 3 * 32 * 32, 3)
    module = torch_module(problem, 0).eval()
    assert module(torch.zeros(2, 3 * 32 * 32)).shape == (2, 3)
    noise = torch.randn(problem.dim, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(nn.utils.parameters_to_vector(module.parameters()), problem.initial(noise))


@pytest.mark.parametrize("model", [Unit(), NoModel()])
def test_what_is_no_module_is_refused(model):
    with pytest.raises(InputError, match="is no torch module: use linear, mlp or module"):
        torch_module(Problem(model, Gaussian(), 4), 0)


@pytest.mark.parametrize(
    ("likelihood", "outputs", "classes"), [(Gaussian(), 1, 0), (Bernoulli(), 1, 2), (Categorical(), 3, 3)]
)
def test_a_guest_is_told_the_number_of_classes(likelihood, outputs, classes):
    assert Train(X.numpy(), np.zeros(7), Problem(Linear(), likelihood, 4, outputs)).classes == classes


def test_answers_get_the_axis_of_samples():
    mean, variance = np.zeros(7), np.ones(7)
    assert MeanVariance(mean, variance).checked(7, 1, 0).mean.shape == (1, 7)
    assert MeanVariance(np.zeros((3, 7)), np.ones((3, 7))).checked(7, 1, 0).variance.shape == (3, 7)
    assert Outputs(np.zeros((3, 7))).checked(7, 1, 0).outputs.shape == (3, 7, 1)
    assert Outputs(np.zeros((3, 7, 2))).checked(7, 2, 2).outputs.shape == (3, 7, 2)
    assert Probabilities(np.full((7, 4), 0.25)).checked(7, 4, 4).probabilities.shape == (1, 7, 4)


def test_probabilities_of_low_precision_are_made_to_sum_to_one():
    rough = Probabilities(np.full((7, 3), 1 / 3, np.float16)).checked(7, 3, 3).probabilities
    torch.testing.assert_close(rough.sum(-1), torch.ones(1, 7).double(), rtol=1e-15, atol=0)


@pytest.mark.parametrize(
    ("answer", "classes", "message"),
    [
        (MeanVariance(np.zeros(6), np.ones(6)), 0, r"mean has shape \(6,\): give it shape \(7,\) or \(S, 7\)"),
        (MeanVariance(np.zeros((7, 1)), np.ones(7)), 0, r"mean has shape \(7, 1\)"),
        (MeanVariance(np.zeros((2, 7)), np.ones(7)), 0, r"shapes \(2, 7\) and \(7,\): give both the same"),
        (MeanVariance(np.zeros(7), np.zeros(7)), 0, "variance must be positive: its smallest value is 0"),
        (MeanVariance(np.full(7, np.nan), np.ones(7)), 0, "mean has values that are not finite"),
        (MeanVariance(np.zeros(7), np.full(7, np.inf)), 0, "variance has values that are not finite"),
        (MeanVariance(np.zeros(7), np.ones(7)), 2, "is for targets that are numbers"),
        (Outputs(np.zeros(7)), 0, r"outputs has shape \(7,\): give it shape \(S, 7, 1\) or \(S, 7\)"),
        (Outputs(np.zeros((0, 7))), 0, r"outputs has shape \(0, 7\)"),
        (Probabilities(np.full((7, 2), 0.5)), 0, "are for labels"),
        (
            Probabilities(np.full((7, 3), 0.5)),
            2,
            r"probabilities has shape \(7, 3\): give it shape \(7, 2\) or \(S, 7, 2\)",
        ),
        (Probabilities(np.full((7, 2), 0.6)), 2, "with sum 1 in each row"),
        (Probabilities(np.tile([1.5, -0.5], (7, 1))), 2, "must be 0 or more"),
    ],
)
def test_an_answer_of_another_shape_or_value_is_refused(answer, classes, message):
    with pytest.raises(InputError, match=message):
        ask(lambda x: answer, X, None, 1, classes)


def test_what_is_no_answer_is_refused():
    with pytest.raises(
        InputError, match="the predictive answers with tuple: let it return MeanVariance, Outputs or Prob"
    ):
        ask(lambda x: (x, x), X, None, 1, 0)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, "fit returned NoneType: return a posterior of bdl.posteriors, or a function of inputs"),
        (MeanVariance(np.zeros(7), np.ones(7)), "fit returned MeanVariance: return a function of inputs that answers"),
        (Point(torch.zeros(4)), "the posterior is over 4 parameters, and the model has 5"),
        (Point(torch.full((5,), torch.nan)), "Point has values that are not finite"),
        (Empirical(torch.zeros(5)), "."),
    ],
)
def test_what_cannot_be_a_fit_is_refused(found, message):
    with pytest.raises(InputError, match=message):
        check_fit(found, 5)


def test_posteriors_and_functions_are_told_apart():
    assert not is_predictive(FullGaussian.from_covariance(torch.zeros(2), torch.eye(2)))
    assert is_predictive(lambda x: x)
    assert is_predictive(MeanVariance(np.zeros(7), np.ones(7)))


def test_a_stored_answer_knows_its_rows_alone():
    kept = Outputs(np.arange(14.0).reshape(2, 7)).checked(7, 1, 0)._replace(rows=torch.arange(10, 17))
    some = ask(kept, X[:2], torch.tensor([16, 11]), 1, 0)
    assert some.outputs[..., 0].tolist() == [[6, 1], [13, 8]]
    for rows in (None, torch.tensor([9])):
        with pytest.raises(InputError, match="kept as its predictions at the test rows, and cannot predict others"):
            ask(kept, X[:1], rows, 1, 0)


def test_a_missing_package_is_one_line_with_the_extra(cells, guest):
    (cell,) = cells(f"line: {{method: {{{guest('Lacking')}}}, hyper: {{size: 1}}}}")
    with pytest.raises(InputError, match=r"Lacking needs no_such_package: pip install 'bdl-bench\[guests\]'"):
        cell.settings.method.build().check(cell.problem)
