"""What an update takes: products counted by hand, operations that grow with what they should, and time from both."""

from dataclasses import dataclass
from math import inf

import pytest
import yaml

from bdl.methods.bbb import BayesByBackprop
from bdl.models.likelihoods import Gaussian
from bdl.models.networks import Linear
from bdl.models.problem import Problem
from bdl.plan.effort import Effort, _counted, effort
from bdl.plan.planning import cells_of
from bdl.spec import load_benchmark

FIXED = {"learning_rate": 0.01, "prior_precision": 1, "noise_precision": 0.001}


def counted(tmp_path, model, method, batch_size=20, **training):
    entry = {
        "model": model,
        "likelihood": {"name": "gaussian"},
        "method": method,
        "training": {"epochs": 1, "batch_size": batch_size, **training},
        "hyper": FIXED,
    }
    content = {
        "name": "one",
        "title": "One",
        "datasets": ["diabetes"],
        "splits": 1,
        "entries": {"entry": entry},
        "metrics": ["nmll"],
    }
    path = tmp_path / "one.yaml"
    path.write_text(yaml.safe_dump(content))
    (cell,) = cells_of(load_benchmark(str(path)))
    return effort(cell)


def test_products_of_a_linear_model(tmp_path):
    """Ten inputs, 20 rows: 2 x 20 x 10 for the outputs and as many for the gradient of the weights."""
    assert counted(tmp_path, {"name": "linear"}, {"name": "adam"}).products == 800


def test_products_of_a_network(tmp_path):
    """2 x 20 x 10 x 50 twice for the first layer; 2 x 20 x 50 for outputs, weights and inputs of the second."""
    found = counted(tmp_path, {"name": "mlp", "hidden": [50]}, {"name": "adam"})
    assert found.products == 2 * 20_000 + 3 * 2_000


def test_products_grow_with_the_rows(tmp_path):
    model, method = {"name": "mlp", "hidden": [50]}, {"name": "adam"}
    assert counted(tmp_path, model, method, 40).products == 2 * counted(tmp_path, model, method).products


def test_a_higher_rank_takes_more_and_has_the_same_operations(tmp_path):
    model = {"name": "mlp", "hidden": [50]}
    one, eight = (counted(tmp_path, model, {"name": "slang", "rank": rank, "samples": 4}) for rank in (1, 8))
    assert eight.products > one.products
    assert eight.numbers > one.numbers
    assert eight.operations == one.operations


def test_factorisations_are_counted(tmp_path):
    model, method = {"name": "linear"}, {"name": "natural-gradient", "samples": 4}
    full, diagonal = (counted(tmp_path, model, method | {"structure": own}) for own in ("full", "diagonal"))
    assert (full.solves > 0, diagonal.solves) == (True, 0)


def test_rates_that_change_and_double_precision_take_the_same_operations(tmp_path):
    method = {"name": "vifa"}
    plain = counted(tmp_path, {"name": "linear"}, method)
    schedule = {name: {"name": "constant"} for name in ("c", "F", "gamma")} | {"c": {"name": "decay", "power": 0.5}}
    other = counted(tmp_path, {"name": "linear"}, method, schedule=schedule, dtype="float64")
    assert other.products == plain.products


@dataclass(frozen=True)
class ByValue(BayesByBackprop):
    """EvaluationSchedule at a number, which a tensor made of its shape alone does not have."""

    def step(self, state, batches, hyper, noise, problem):
        assert float(next(iter(noise.values())).sum()) < inf
        return super().step(state, batches, hyper, noise, problem)


def test_a_method_that_cannot_be_counted_is_guessed_by_its_parameters():
    problem = Problem(Linear(), Gaussian(), d_in=10)
    counted, guessed = (
        _counted(method, problem, (20, 10), "float32", False, 0)
        for method in (BayesByBackprop(samples=3), ByValue(samples=3))
    )
    assert counted.products > 0
    assert (guessed.products, guessed.numbers) == (0, 40 * problem.dim)


def test_fits_of_a_group_share_launches_and_nothing_else():
    """One fit takes a launch and its numbers; of ten each takes a tenth of the launches, and its own numbers."""
    launches, numbers = Effort(operations=100), Effort(numbers=10**6, products=10**8, solves=10)
    for compiled in (False, True):
        assert launches.seconds(5, 10, compiled) == pytest.approx(launches.seconds(5, 1, compiled) / 10)
        assert numbers.seconds(5, 10, compiled) == pytest.approx(numbers.seconds(5, 1, compiled))
    assert launches.seconds(5, 1, True) < launches.seconds(5, 1, False)


def test_what_has_no_updates_takes_as_long_as_one():
    assert Effort(operations=32).seconds(0, 1, False) == Effort(operations=32).seconds(1, 1, False) > 0
