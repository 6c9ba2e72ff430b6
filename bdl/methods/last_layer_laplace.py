"""Laplace's approximation of the last layer (Kristiadi, Hein and Hennig 2020; Daxberger et al. 2021).

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
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import LastLayer

_MOST = 10_000
"""Parameters of a last layer whose matrix is formed."""


class State(NamedTuple):
    """What has been descended to, and what has been added up there."""

    point: DescentState  # Parameters and Adam's moments
    curvature: Tensor  # Sum of J^T Lambda J over the rows seen, (k, k)
    seen: Tensor  # Rows seen, a scalar
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
        if (size := _size(problem)) > _MOST:
            raise InputError(
                f"the last layer has {size} parameters: its matrix is formed for {_MOST} at most"
            )

    def init(self, problem: Problem, noise: Noise) -> State:
        point = self._adam.init(problem, noise)
        ones = torch.ones_like(point.params["theta"][-_size(problem) :])
        curvature = torch.zeros_like(ones).unsqueeze(1) * ones
        return State(point, curvature, 0 * ones[0], ones, ones[0])

    def step_noise(self, problem: Problem) -> Shapes:
        """Declare none, and build the network that puts out what enters the last layer before it is mapped."""
        problem.model.dim(problem.d_in, problem.layout.last_layer[0])
        return {}

    def phase(self, counters: StepCounters) -> str:
        return "step" if counters.epoch < self.descent_epochs else "look"

    def step(
        self, state: State, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> State:
        point = self._adam.step(state.point, batches, hyper, noise, problem)
        prior = (torch.zeros_like(point.params["theta"]) + problem.prior_precision(hyper))[
            -len(state.prior) :
        ]
        return state._replace(point=point, prior=prior, rows=batches.n)

    def look(
        self, state: State, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> State:
        """Add the matrix of a minibatch."""
        inputs = _inputs(problem, state.point.params["theta"], batches.x)
        n_in, n_out, bias = problem.layout.last_layer
        weight, *shift = torch.split(
            state.point.params["theta"][-len(state.prior) :], [n_in * n_out, *[n_out] * bias]
        )
        f = inputs[:, :n_in] @ weight.view(n_out, n_in).T + sum(shift)
        root = problem.likelihood.root_fisher(f, hyper, batches.y_unit)
        factors = (
            root.mT.unsqueeze(-1) * inputs[:, None, None]
        )  # (M, r, out, in), with r columns of the root
        parts = (factors[..., :n_in], factors[..., n_in:])  # biases come last
        rows = torch.cat([part.flatten(2) for part in parts], 2).flatten(0, 1)
        return state._replace(
            curvature=state.curvature + rows.T @ rows, seen=state.seen + len(inputs)
        )

    def posterior(self, state: State) -> LastLayer:
        """Return N(theta, H^-1) in the last layer.

        The sum over rows that were left out is made up for.
        """
        share = state.rows / state.seen.clamp(min=1)
        precision = share * state.curvature + state.prior.diag_embed()
        root: Tensor = torch.linalg.cholesky_ex(precision).L
        return LastLayer(state.point.params["theta"], root)


def _size(problem: Problem) -> int:
    n_in, n_out, bias = problem.layout.last_layer
    return n_out * (n_in + bias)


def _inputs(problem: Problem, theta: Tensor, x: Tensor) -> Tensor:
    """Return what enters the last layer, (M, in), with a last column of ones where it has biases.

    A last layer that is the identity puts it out.
    """
    n_in, _, bias = problem.layout.last_layer
    layer = [torch.eye(n_in).flatten(), *[torch.zeros(n_in)] * bias]
    inputs = problem.model(
        torch.cat([theta[: -_size(problem)], *(part.to(theta) for part in layer)]), x, n_in
    )
    return torch.cat([inputs, *[torch.ones_like(inputs[:, :1])] * bias], 1)
