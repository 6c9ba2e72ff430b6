"""Laplace's approximation of the last layer
(Kristiadi, Hein and Hennig 2020; Daxberger et al. 2021).

Adam descends the cost of `bdl.methods.point_estimate`. After `descent_epochs` it stands still, and
the epoch that follows adds up the generalised Gauss-Newton matrix of the last layer's k
parameters,

    H = sum_i J_i^T Lambda_i J_i + diag(prior precision),

J_i being the derivative of the outputs of row i and Lambda_i the Fisher information of its
likelihood. Outputs are linear in the last layer, so that H has a block sum_i (Lambda_i)_cd phi_i
phi_i^T for each pair of outputs c, d, with phi_i what enters the layer. Under batch normalisation
that is what enters in training minibatches.
"""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from annotated_types import Ge
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import Noise, Shapes, StartedMethod
from bdl.methods.counters import StepCounters
from bdl.methods.optim import DescentState
from bdl.methods.point_estimate import Adam
from bdl.models.modules import Module, NetworkModule
from bdl.models.networks import Unit
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import LastLayer, cholesky_or_nan

_MAX_PARAMETERS = 10_000
"""Parameters of a last layer whose matrix is formed."""


class State(NamedTuple):
    """The point of the descent, and the curvature that is added up there."""

    point: DescentState  # Parameters and Adam's moments
    curvature: Tensor  # Sum of J^T Lambda J over the rows so far, (k, k)
    n_rows: Tensor  # Number of these rows, a scalar
    prior: Tensor  # Prior precision of the last layer, (k,)
    rows: Tensor  # Training rows N, a scalar


@dataclass(frozen=True)
class LastLayerLaplace(StartedMethod):
    """Settings of Laplace's approximation of the last layer.

    Parameters
    ----------
    descent_epochs
        Epochs of descent; train for one more. Until the matrix is there the precision is that of
        the prior.
    """

    descent_epochs: Annotated[int, Ge(1)] = 1

    @property
    def _adam(self) -> Adam:
        return Adam(initial_scale=self.initial_scale)

    @property
    def idle_epochs(self) -> int:
        """Epochs after which there must be another."""
        return self.descent_epochs

    def check(self, problem: Problem) -> None:
        if isinstance(problem.model, Unit):
            raise InputError(
                "outputs of the model 'unit' are not linear in its layer: use mlp or linear"
            )
        if isinstance(problem.model, NetworkModule):
            raise InputError(
                "last-layer-laplace makes the network once more, with other outputs: give a model "
                "{name: module, factory: path/to/file.py:function} in place of the module itself"
            )
        size = _size(problem)
        if size > _MAX_PARAMETERS:
            raise InputError(
                f"the last layer has {size} parameters: "
                f"its matrix is formed for {_MAX_PARAMETERS} at most"
            )
        if isinstance(problem.model, Module):
            _check_outputs(problem)

    def init(self, problem: Problem, noise: Noise) -> State:
        point = self._adam.init(problem, noise)
        prior = torch.ones_like(point.params["theta"][-_size(problem) :])
        curvature = torch.zeros_like(prior).unsqueeze(1) * prior
        return State(point, curvature, 0 * prior[0], prior, prior[0])

    def step_noise(self, problem: Problem) -> Shapes:
        """Declare none, and build the network whose output is the input of the last layer.

        It has to be there before a step is mapped over trials.
        """
        problem.model.dim(problem.d_in, problem.layout.last_layer[0])
        return {}

    def phase(self, counters: StepCounters) -> str:
        return "step" if counters.epoch < self.descent_epochs else "add_curvature"

    def step(
        self, state: State, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> State:
        point = self._adam.step(state.point, batches, hyper, noise, problem)
        prior = (torch.zeros_like(point.params["theta"]) + problem.prior_precision(hyper))[
            -len(state.prior) :
        ]
        return state._replace(point=point, prior=prior, rows=batches.n)

    def add_curvature(
        self, state: State, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> State:
        """Add the matrix of a minibatch."""
        inputs = _inputs(problem, state.point.params["theta"], batches.x)
        n_in = problem.layout.last_layer[0]
        f = _outputs(problem, state.point.params["theta"], inputs)
        root = problem.likelihood.root_fisher(f, hyper, batches.y_unit)
        # (M, r, out, in), with r columns of the root
        factors = root.mT.unsqueeze(-1) * inputs[:, None, None]
        weights, biases = factors[..., :n_in].flatten(2), factors[..., n_in:].flatten(2)
        rows = torch.cat([weights, biases], 2).flatten(0, 1)  # in the order of the parameters
        return state._replace(
            curvature=state.curvature + rows.T @ rows, n_rows=state.n_rows + len(inputs)
        )

    def posterior(self, state: State) -> LastLayer:
        """Return N(theta, H^-1) in the last layer.

        The curvature is scaled up for rows that were left out.
        """
        scale = state.rows / state.n_rows.clamp(min=1)
        precision = scale * state.curvature + state.prior.diag_embed()
        return LastLayer(state.point.params["theta"], cholesky_or_nan(precision))


def _size(problem: Problem) -> int:
    n_in, n_out, bias = problem.layout.last_layer
    return n_out * (n_in + bias)


def _inputs(problem: Problem, theta: Tensor, x: Tensor) -> Tensor:
    """Return the inputs of the last layer, (M, in), with a last column of ones for biases, if any.

    They are the outputs of the model with a last layer that is the identity.
    """
    n_in, _, bias = problem.layout.last_layer
    identity = [torch.eye(n_in).flatten(), *[torch.zeros(n_in)] * bias]
    parameters = [theta[: -_size(problem)], *(tensor.to(theta) for tensor in identity)]
    inputs = problem.model(torch.cat(parameters), x, n_in)
    return torch.cat([inputs, *[torch.ones_like(inputs[:, :1])] * bias], 1)


def _outputs(problem: Problem, theta: Tensor, inputs: Tensor) -> Tensor:
    """Return the outputs of the last layer, (M, out), from what `_inputs` returns."""
    n_in, n_out, bias = problem.layout.last_layer
    weight, *shift = torch.split(theta[-_size(problem) :], [n_in * n_out, *[n_out] * bias])
    return inputs[:, :n_in] @ weight.view(n_out, n_in).T + sum(shift)


def _check_outputs(problem: Problem) -> None:
    """Raise `InputError` if the model does more after its last layer than return its outputs.

    It is tried with large outputs of either sign, which no activation function leaves as they are.
    """
    n_in, _, bias = problem.layout.last_layer
    if problem.model.dim(problem.d_in, n_in) - n_in * (n_in + bias) != problem.dim - _size(
        problem
    ):
        raise InputError(
            "layers of the model before the last one depend on the number of outputs, which "
            "last-layer-laplace changes: give them sizes that do not"
        )
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(2, problem.d_in, generator=generator)  # below 1, as an index may have to be
    start = problem.initial(torch.randn(problem.dim, generator=generator))
    last = 10 * torch.randn(_size(problem), generator=generator)  # biases as well
    for sign in (1, -1):
        theta = torch.cat([start[: -_size(problem)], sign * last])
        expected = _outputs(problem, theta, _inputs(problem, theta, x).to(theta))
        outputs = problem.model(theta, x, problem.d_out).to(expected)
        if not torch.allclose(outputs, expected, rtol=1e-3, atol=1e-3, equal_nan=True):
            raise InputError(
                "outputs of the model are not those of its last layer: let forward end with that "
                "layer, and leave an activation function to the likelihood"
            )
