"""Training, posteriors and predictions make every tensor where the data are: tried on a device without hardware.

Each method trains there in the settings of its golden trials, and ends with the bits that it ends
with on the CPU; on a GPU it ends where it ends on the CPU.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from bdl.methods import METHODS
from bdl.methods.base import MinibatchMethod, StreamMethod
from bdl.methods.point_estimate import Sgd
from bdl.posteriors import FAMILIES
from bdl.training import graphs, traced
from bdl.training.fitting import run_to_end
from bdl.training.schedule import Schedule
from bdl.training.setup import TrainingSetup
from bdl.training.trials import Pool
from bdl.training.updates import UpdateFunctions, cached_update_functions

from .elsewhere import ELSEWHERE, WrongDevice, elsewhere, here, none_left_behind

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from goldens import methods, parts, problems
from goldens.catalogue import default
from goldens.shipped_settings import NETWORK, used

LINEAR = {
    "model": {"name": "linear"},
    "likelihood": {"name": "gaussian"},
    "prior": {"name": "gaussian"},
}
STEPPED = [name for name in METHODS.names() if issubclass(METHODS.get(name), MinibatchMethod)]
STREAMS = [
    name
    for name in METHODS.names()
    if issubclass(METHODS.get(name), StreamMethod) and name != "batch-fa"
]
"""Streams that are learnt from by tensors alone; batch-fa hands its numbers to solvers on the
CPU.
"""


def trials(method: str) -> list[dict]:
    """Settings of a method with each kind of model that a benchmark gives it.

    Else with a linear one.
    """
    found = {}
    for settings in used()["method"]:
        if settings["method"]["name"] == method:
            full = {**LINEAR, **{kind: value for kind, value in settings.items() if value}}
            found.setdefault(full["model"]["name"], full)
    return [*found.values()] or [
        {**LINEAR, "method": default("method", method) or {"name": method}}
    ]


@pytest.fixture
def strict(monkeypatch):
    """Refuse tensors that an update makes without a device and leaves there.

    Programs are made anew for it.
    """
    repeated = UpdateFunctions._trace_over_trials

    def call(self, one, compile):
        def update(*args):
            with none_left_behind():
                return one(*args)

        return repeated(self, update, compile)

    monkeypatch.setattr(UpdateFunctions, "_trace_over_trials", call)
    cached_update_functions.cache_clear()
    yield
    cached_update_functions.cache_clear()


@pytest.mark.parametrize("method", STEPPED)
def test_methods_train_where_the_data_are(method, strict):
    for settings in trials(method):
        expected = methods.fitted(settings, "float32")
        with elsewhere():
            found = methods.fitted(settings, "float32", ELSEWHERE)
        for name, value in here(found).items():
            assert torch.equal(value, expected[name]), (settings["model"], name)


@dataclass(frozen=True)
class Wrong(Sgd):
    """Does something else with its parameters in every step."""

    also: Callable[[Tensor], Any] = Tensor.clone

    def step(self, state, batches, hyper, noise, problem):
        self.also(state.params["theta"])
        return super().step(state, batches, hyper, noise, problem)


@pytest.mark.parametrize(
    ("also", "message"),
    [
        (lambda theta: theta + torch.zeros(len(theta)), r"tensor of shape \(2, 4\)|is on the CPU"),
        (lambda theta: theta.cpu(), "leaves the device"),
        (lambda theta: torch.zeros(3), "made without a device"),
    ],
)
def test_a_tensor_in_the_wrong_place_is_found(also, message, strict):
    data = problems.table(0)
    problem = methods.problem_of(LINEAR, data)
    given = (
        [("one", 0)],
        [problems.rows(0)],
        [{"learning_rate": 0.1, "prior_precision": 1.0, "noise_precision": 1.0}],
    )

    def train(device: str) -> None:
        program = TrainingSetup(
            data, Pool.load(data, device), problem, Wrong(also=also), Schedule(1, 6)
        )
        run_to_end(program.fitting(program.trials(*given)))

    train("cpu")
    with elsewhere(), pytest.raises(WrongDevice, match=message):
        train(ELSEWHERE)


@pytest.mark.parametrize("name", STREAMS)
def test_streams_are_learnt_from_where_they_are(name):
    method = METHODS.get(name)(latent_dim=2)
    noise = {key: problems.wave(*shape) for key, shape in method.init_noise(12).items()} | {
        "seed": torch.tensor(3)
    }
    observations = problems.wave(method.warmup + 20, 12, phase=2.0)

    def learn(device: str):
        state = method.init({key: value.to(device) for key, value in noise.items()})
        return methods.about(method.posterior(method.update_block(state, observations.to(device))))

    expected = learn("cpu")
    with elsewhere():
        found = learn(ELSEWHERE)
    for key, value in here(found).items():
        assert torch.equal(value, expected[key]), key


@pytest.mark.parametrize("name", FAMILIES.names())
def test_posteriors_answer_where_they_are(name):
    posterior = parts.families()[name]()

    def answers(own):
        return methods.about(own) | {"covariance": own.covariance()}

    expected = answers(posterior)
    with elsewhere():
        found = answers(
            type(posterior)(
                *(tree_map(lambda leaf: leaf.to(ELSEWHERE), part) for part in posterior)
            )
        )
    for key, value in here(found).items():
        assert torch.equal(value, expected[key]), key


@pytest.mark.parametrize("batch_norm", ["running", "recompute"])
def test_predictions_are_made_where_the_data_are(batch_norm):
    settings = {
        "model": {"name": "module", **NETWORK, "batch_norm": batch_norm},
        "likelihood": {"name": "categorical"},
    }
    data = methods.dataset_of(LINEAR | settings)
    problem = methods.problem_of(LINEAR | settings, data)
    hyper = {"learning_rate": 0.01, "prior_precision": 1.0}

    def predicted(device: str):
        program = TrainingSetup(
            data,
            Pool.load(data, device),
            problem,
            METHODS.get("vifa-two-stage")(),
            Schedule(2, 6),
            samples=3,
        )
        own = program.trials([("one", 0)], [problems.rows(0)], [hyper])
        return program.predict(own, run_to_end(program.fitting(own)), [0], problems.rows(0)[:8])

    expected = predicted("cpu")
    with elsewhere():
        found = predicted(ELSEWHERE)
    assert all(
        torch.equal(one, other)
        for one, other in zip(here(found), expected, strict=True)
        if one is not None
    )


@pytest.fixture
def early(monkeypatch):
    """Trace from the second call on; programs are made anew for it."""
    monkeypatch.setattr(traced, "TRACE_AFTER_CALLS", 2)
    cached_update_functions.cache_clear()
    yield
    cached_update_functions.cache_clear()


@pytest.fixture
def same_signs(monkeypatch):
    """Make the largest part of an eigenvector positive: libraries differ in signs, which noisy K-FAC's noise has."""
    decomposed = torch.linalg.eigh

    def eigh(matrix):
        values, vectors = decomposed(matrix)
        largest = vectors.gather(-2, vectors.abs().argmax(-2, keepdim=True))
        return torch.return_types.linalg_eigh((values, vectors * largest.sign()))

    monkeypatch.setattr(torch.linalg, "eigh", eigh)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("method", STEPPED)
def test_methods_end_on_a_gpu_where_they_end_on_the_cpu(method, early, same_signs):
    for settings in trials(method):
        expected = methods.fitted(settings, "float64")
        cached_update_functions.cache_clear()
        for name, value in methods.fitted(settings, "float64", "cuda").items():
            scale = expected[name].double().abs()
            near = 1e-7 * float(scale[scale.isfinite()].max()) if scale.isfinite().any() else 0.0
            torch.testing.assert_close(
                value.double().cpu(), expected[name].double(), rtol=0, atol=near
            )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("method", STEPPED)
def test_launches_by_graphs_have_the_bits_of_plain_launches(method, early, monkeypatch):
    for settings in trials(method):
        by_graphs = methods.fitted(settings, "float32", "cuda")
        with monkeypatch.context() as plain:
            plain.setattr(graphs.CudaRecorder, "records", lambda self, leaves: False)
            cached_update_functions.cache_clear()
            one_by_one = methods.fitted(settings, "float32", "cuda")
        cached_update_functions.cache_clear()
        assert all(torch.equal(value, one_by_one[name]) for name, value in by_graphs.items())
