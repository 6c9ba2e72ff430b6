"""What methods cost: the numbers are what the documentation says, and the script writes what it documents."""

import math
from dataclasses import replace

import bench_methods
import numpy as np
import pytest
import torch
from peers import gradients, methods, slang_scaling, timing, workload
from peers.comparison import Contender, Cost, compare
from peers.machine import alone, peak_memory

from bdl.methods.swag import Swag
from bdl.training.trials import Trials


def test_costs_are_medians_and_ratios_medians_within_a_repeat():
    """Ratios are 3, 2 and 0.5; the ratio of the medians would be 4 / 2."""
    first, second = iter([1.0, 2.0, 10.0]), iter([3.0, 4.0, 5.0])
    costs = compare({"a": Contender(lambda: next(first), 7.0), "b": Contender(lambda: next(second))}, 3)
    assert costs["a"] == Cost(2e6, 1e6, 1.0, 7.0)
    assert costs["b"] == Cost(4e6, 3e6, 2.0, None)
    first, second = iter([1.0, 4.0, 10.0]), iter([3.0, 4.0, 5.0])
    other = compare({"a": Contender(lambda: next(first)), "b": Contender(lambda: next(second))}, 3)
    assert other["b"].ratio == 1.0


@pytest.mark.parametrize("name", methods.ENTRIES)
def test_gradients_of_an_update_are_as_many_as_its_noise(name):
    """Each gradient is taken at parameters, or under a mask, of its own."""
    method, count = methods.ENTRIES[name]
    shapes = {shape[0] for shape in method.step_noise(workload.make(1).problem).values()}
    assert (shapes or {1}) == {count}


def test_unit_of_cost_is_a_gradient(monkeypatch):
    """A minibatch takes SLANG four gradients, SWAG one, and is one of the four of an update of VIFA."""
    monkeypatch.setattr(methods, "engine_seconds", lambda work, epochs, compile: 1e-6)
    costs = methods.measure(2, 1, 1, compile=False)
    assert {name: cost.us for name, cost in costs.items()} == pytest.approx(
        {"VIFA": 1, "SLANG": 0.25, "SLANG-OnlineEig": 0.25, "BBB": 0.25, "MC dropout": 1, "SWAG": 1}
    )
    assert {name: cost.update_us for name, cost in costs.items()} == pytest.approx(
        {"VIFA": 4, "SLANG": 1, "SLANG-OnlineEig": 1, "BBB": 1, "MC dropout": 4, "SWAG": 1}
    )
    assert costs["SWAG"].update_ratio == pytest.approx(0.25)


def test_targets():
    costs = {"SLANG": Cost(1, 1, 3.0, None), "BBB": Cost(1, 1, 1.01, None)}
    assert [target.holds for target in methods.targets(costs).values()] == [True, False]


def test_another_method_keeps_data_and_minibatches():
    work = replace(workload.make(2), batch_size=7)
    other = work.with_method(Swag())
    assert other.method == Swag()
    assert other.trials is work.trials
    assert other.cost_units == 2 * (364 // 7)


def test_what_diverges_is_not_timed():
    work = workload.make(2, hidden=5).with_method(Swag(warmup_epochs=0))
    hyper = {**work.trials.hyper, "learning_rate": torch.tensor([1e-3, 1e9])}
    wild = replace(work, trials=Trials(work.trials.identities, work.trials.rows, work.trials.view, hyper))
    with pytest.raises(ArithmeticError, match="1 of 2 models of Swag diverged"):
        timing.engine_epochs(wild, 2, compile=False)


def test_both_ways_give_the_products_of_gradients():
    """The oracle is autograd, one example at a time."""
    given = gradients.task(hidden=4, examples=6)
    theta = given.theta[0].clone().requires_grad_()
    values = given.problem.log_likelihoods(theta, given.batch, given.hyper)
    G = torch.stack([torch.autograd.grad(value, theta, retain_graph=True)[0] for value in values])
    expected = {
        "gram": G @ G.T,
        "times": G @ given.columns,
        "combine": G.T @ given.weights,
        "sum": G.sum(0),
        "squares": G.square().sum(0),
    }
    for found in (gradients.outer(given), gradients.matrix(given)):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_large_matrices_are_skipped(monkeypatch):
    """A matrix of 10 x 106 numbers has 4240 bytes, one of 11 x 106 has 4664."""
    monkeypatch.setattr(gradients, "MEMORY", 4240)
    both, outer = gradients.measure((106,), (10, 11), 1)
    assert both.ratio == pytest.approx(both.matrix_us / both.outer_us)
    assert both.difference < gradients.TOLERANCE
    assert (outer.dim, outer.examples, outer.matrix_gb) == (106, 11, 4664e-9)
    assert outer.matrix_us is outer.ratio is outer.difference is None
    assert outer.outer_us > 0


@pytest.mark.parametrize("difference", [1.01 * gradients.TOLERANCE, math.nan])
def test_disagreement_fails(difference, monkeypatch, capsys):
    point = gradients.GradientPoint(106, 10, 1e-6, 1.0, 2.0, 2.0, difference)
    monkeypatch.setattr(gradients, "measure", lambda *sizes: [point])
    assert bench_methods.main(["--parts", "gradients", "--threads", str(torch.get_num_threads())]) == 1
    assert "disagree" in capsys.readouterr().out


def test_power_is_fitted_to_the_last_three():
    x = np.array([1.0, 10.0, 20.0, 50.0])
    assert slang_scaling.power(x, [99.0, *(3 * x[1:] ** 1.5)]) == pytest.approx(1.5)
    assert slang_scaling.power(x, [1.0, 1.0, 0.0, 1.0]) is None


def test_exponents_of_each_series():
    """Seconds rise with D and the square of L, memory beyond 1 GB with D L."""
    sizes = slang_scaling.Sizes(ranks=(1, 2, 4), paper=20, hidden=(10, 20, 30), hidden_ranks=(1,))
    points = [
        slang_scaling.SlangPoint(hidden, dim, rank, 1e-3 * dim * rank**2, 1 + 1e-3 * dim * rank, 1.0)
        for hidden, rank in sizes.points()
        for dim in [100 * hidden]
    ]
    assert slang_scaling.exponents(points, sizes) == pytest.approx(
        {
            "seconds by rank": 2,
            "memory by rank": 1,
            "seconds by parameters at rank 1": 1,
            "memory by parameters at rank 1": 1,
        }
    )


def test_memory_of_a_process_is_its_own():
    """A new process does not start at the peak of the one that starts it, and this one's counts what was freed."""
    before = peak_memory()
    np.ones(10**8)
    assert peak_memory() >= 0.8
    assert peak_memory() >= before
    assert alone(1, peak_memory) < 0.6
