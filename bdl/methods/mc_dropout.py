"""MC dropout: dropout on inputs and hidden units, kept at prediction (Gal and Ghahramani 2016).

Of a network that is not dense throughout, the inputs of its last layer alone are dropped.

The posterior draws m o theta, where the mask m zeroes all weights that leave a dropped unit and is 1 / (1 - p) on
the others, 1 on biases; p is ``dropout_rate``. Adam descends E_m[-log p(D | m o theta)] + (1/2) sum_i lambda_i
theta_i^2. With the prior precision alpha (the square of their prior length-scale) and the standard deviation s of
the training targets, the decay lambda is

    corrected: alpha / (1 - p) for weights, alpha for biases, since E_m[alpha (m o theta)^2] / 2 is the prior's part;
    published: alpha (1 - p) s^2 / 2 for weights, 0 for biases.

docs/errata.md says how the second comes about. The noise precision tau is that of the likelihood.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from bdl.methods.base import MinibatchMethod, Noise, Shapes, stacked, start
from bdl.methods.optim import OPTIMIZERS, OptimState, Params
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import Dropout


class McDropoutState(NamedTuple):
    """Parameters ``theta`` (D,), the optimiser's state, and what describes the masks."""

    params: Params
    optim: OptimState
    source: Tensor
    """Unit that each parameter leaves; a bias has the number of units, U; (D,)."""
    rate: Tensor
    """Dropout rate of each unit in the last update, 0 before the first, (U,)."""


@dataclass(frozen=True)
class McDropout(MinibatchMethod):
    """Settings of MC dropout.

    Parameters
    ----------
    gradients_per_update
        Minibatches L in an update, each under a mask of its own. The published code has a mask for each row of
        batches of 128: that is 128 minibatches of one row; fewer and larger ones are as unbiased, and faster.
    decay
        ``"corrected"`` or ``"published"``; module docstring.
    initial_scale
        Standard deviation of the initial parameters, which are normal with mean 0; null for the model's own start.
    """

    gradients_per_update: Annotated[int, Ge(1)] = 4
    decay: Literal["corrected", "published"] = "corrected"
    initial_scale: Annotated[float, Gt(0)] | None = 0.1

    @property
    def hyper(self) -> tuple[str, ...]:
        """Names of the per-trial hyper-parameters it needs beside those of the problem."""
        return ("learning_rate", "dropout_rate")

    @property
    def hyper_below(self) -> Mapping[str, float]:
        """Hyper-parameters that must stay below a value."""
        return {"dropout_rate": 1.0}

    @property
    def batches_per_step(self) -> int:
        """Minibatches that one `step` consumes, L."""
        return self.gradients_per_update

    def check(self, problem: Problem) -> None:
        """Raise `InputError` if the model has no dense layer in the end."""
        _ = problem.layout.n_units

    def init(self, problem: Problem, noise: Noise) -> McDropoutState:
        """Start with nothing dropped."""
        params = {"theta": start(problem, noise["theta"], self.initial_scale)}
        source = problem.layout.units.to(noise["theta"])
        rate = torch.zeros_like(noise["theta"][:1]).repeat(problem.layout.n_units)
        return McDropoutState(params, OPTIMIZERS["adam"].init(params), source, rate)

    def step_noise(self, problem: Problem) -> Shapes:
        """Declare one normal a unit for each of L masks."""
        return {"units": (self.gradients_per_update, problem.layout.n_units)}

    def step(
        self, state: McDropoutState, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> McDropoutState:
        """Average the gradients of L minibatches under their masks, add the decay, and move theta once."""
        state = state._replace(rate=torch.zeros_like(state.rate) + hyper["dropout_rate"])
        theta, q = state.params["theta"], self.posterior(state)
        masks, batches = q.masks(noise["units"]), stacked(batches, self.batches_per_step)

        def cost(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
            return -problem.log_likelihood(theta, batches._replace(x=x, y=y), hyper)

        G = torch.func.vmap(torch.func.grad(cost))(masks * theta, batches.x, batches.y)
        factor = self._decay_factor(q, batches.y_unit)
        gradient = (masks * G).mean(0) + problem.prior_precision(hyper) * factor * theta
        rates = {"theta": hyper["learning_rate"]}
        steps, optim = OPTIMIZERS["adam"].update({"theta": gradient}, state.optim, rates)
        return state._replace(params={"theta": theta + steps["theta"]}, optim=optim)

    def _decay_factor(self, q: Dropout, y_unit: Tensor) -> Tensor:
        """Return lambda / alpha of each parameter, (D,)."""
        if self.decay == "published":
            return q.spread(0.5 * (1 - q.rate) * y_unit.square(), 0.0)
        return q.spread(1 / (1 - q.rate), 1.0)

    def posterior(self, state: McDropoutState) -> Dropout:
        """Return the distribution of the masked parameters."""
        return Dropout(state.params["theta"], state.source.long(), state.rate)
