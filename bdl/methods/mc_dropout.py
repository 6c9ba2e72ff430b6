"""MC dropout: dropout on inputs and hidden units, kept at prediction (Gal and Ghahramani 2016).

Of a network that is not dense throughout, the inputs of its last layer alone are dropped.

The posterior draws m o theta, where the mask m zeroes all weights that leave a dropped unit and is
1 / (1 - p) on the others, 1 on biases; p is ``dropout_rate``. Adam descends E_m[-log p(D | m o
theta)] + (1/2) sum_i lambda_i theta_i^2. With the prior precision alpha (the square of their prior
length-scale) and the standard deviation s of the training targets, the decay lambda is

    corrected: alpha / (1 - p) for weights, alpha for biases, since E_m[alpha (m o theta)^2] / 2 is
    the prior's part; published: alpha (1 - p) s^2 / 2 for weights, 0 for biases.

docs/errata.md derives the second. The noise precision tau is that of the likelihood.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from bdl.methods.base import Noise, Shapes
from bdl.methods.optim import Descent, OptimState, Params, batch_gradients
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import Dropout


class State(NamedTuple):
    """Parameters ``theta`` (D,), the optimiser's state, and what describes the masks."""

    params: Params
    optim: OptimState
    source: Tensor  # Unit that each parameter leaves; a bias has the number of units, U; (D,)
    rate: Tensor  # Dropout rate of each unit in the last update, 0 before the first, (U,)


@dataclass(frozen=True)
class McDropout(Descent):
    """Settings of MC dropout.

    Parameters
    ----------
    gradients_per_update
        Minibatches L in an update, each under a mask of its own. The published code has a mask for
        each row of batches of 128: that is 128 minibatches of one row; fewer and larger ones are
        as unbiased, and faster.
    decay
        ``"corrected"`` or ``"published"``; module docstring.
    """

    initial_scale: Annotated[float, Gt(0)] | None = 0.1
    gradients_per_update: Annotated[int, Ge(1)] = 4
    decay: Literal["corrected", "published"] = "corrected"

    hyper = ("learning_rate", "dropout_rate")
    hyper_below: ClassVar[Mapping[str, float]] = {"dropout_rate": 1.0}

    @property
    def batches_per_step(self) -> int:
        return self.gradients_per_update

    def check(self, problem: Problem) -> None:
        _ = problem.layout.n_units

    def init(self, problem: Problem, noise: Noise) -> State:
        params = {"theta": self.start(problem, noise["theta"])}
        source = problem.layout.units.to(noise["theta"])
        rate = torch.zeros_like(noise["theta"][:1]).repeat(problem.layout.n_units)
        return State(params, self._optimizer.init(params), source, rate)

    def step_noise(self, problem: Problem) -> Shapes:
        return {"units": (self.gradients_per_update, problem.layout.n_units)}

    def step(
        self, state: State, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> State:
        state = state._replace(rate=torch.zeros_like(state.rate) + hyper["dropout_rate"])
        return super().step(state, batches, hyper, noise, problem)

    def gradients(
        self, state: State, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> Params:
        theta, q = state.params["theta"], self.posterior(state)
        masks = q.masks(noise["units"])
        G = batch_gradients(masks * theta, batches, hyper, problem)
        if self.decay == "published":  # lambda / alpha of each parameter
            factor = q.spread(0.5 * (1 - q.rate) * batches.y_unit.square(), 0.0)
        else:
            factor = q.spread(1 / (1 - q.rate), 1.0)
        return {"theta": (masks * G).mean(0) + problem.prior_precision(hyper) * factor * theta}

    def posterior(self, state: State) -> Dropout:
        return Dropout(state.params["theta"], state.source.long(), state.rate)
