"""A method of your own: mean-field variational inference, to be changed. What is here runs.

Name it in a benchmark file by the path of this file:

    method: {name: method.py:MyMethod, initial_std: 0.05}

The suite calls these functions for many fits at once (`torch.func.vmap`): use torch alone, change
no tensor in place, draw no random numbers (ask for noise instead), and do not branch on values.
"""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from annotated_types import Gt
from torch import Tensor

from bdl.methods.base import MinibatchMethod, Noise, Shapes
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import DiagonalGaussian


class State(NamedTuple):
    """What is trained: mean and logarithm of the standard deviation of every parameter, both (D,)."""

    mean: Tensor
    log_std: Tensor


@dataclass(frozen=True)
class MyMethod(MinibatchMethod):
    """Gradient descent on the negative ELBO.

    Parameters
    ----------
    initial_std
        Standard deviation of every parameter at the start.
    """

    # A setting is a field with a type and a default; a benchmark file changes it beside the name.
    initial_std: Annotated[float, Gt(0)] = 0.05

    def init(self, problem: Problem, noise: Noise) -> State:
        """Start the fit. `noise["theta"]` has a standard normal for every parameter."""
        mean = problem.initial(noise["theta"])
        return State(mean, torch.full_like(mean, self.initial_std).log())

    def step_noise(self, problem: Problem) -> Shapes:
        """Name the standard normals that `step` gets, and their shapes."""
        return {"z": (problem.dim,)}

    def step(
        self, state: State, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> State:
        """Make one update from one minibatch.

        `hyper` has the hyper-parameters of prior and likelihood, and `learning_rate`. The
        log-likelihood is that of all rows, estimated from the minibatch.
        """

        def cost(own: State) -> Tensor:  # the negative ELBO, but for a constant
            theta = own.mean + own.log_std.exp() * noise["z"]
            joint = problem.log_likelihood(theta, batches, hyper) + problem.log_prior(theta, hyper)
            return -joint - own.log_std.sum()

        slopes = torch.func.grad(cost)(state)
        # Steps of bounded length: change this line for a better optimiser, such as those of
        # bdl.methods.optim.
        return State(
            *(
                part - hyper["learning_rate"] * g.tanh()
                for part, g in zip(state, slopes, strict=True)
            )
        )

    def posterior(self, state: State) -> DiagonalGaussian:
        """Return the distribution over parameters that this state stands for."""
        return DiagonalGaussian(state.mean, (2 * state.log_std).exp())
