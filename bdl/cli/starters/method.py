"""A method of your own to start from: mean-field variational inference. It runs as it is.

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


class MyState(NamedTuple):
    """The numbers that are trained: mean and log standard deviation of every parameter, (D,)."""

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

    # A setting is a field with a type and a default; a benchmark file sets it after the name.
    initial_std: Annotated[float, Gt(0)] = 0.05

    def init(self, problem: Problem, noise: Noise) -> MyState:
        """Return the state at the start.

        `noise["theta"]` has a standard normal for every parameter.
        """
        mean = problem.initial(noise["theta"])
        log_std = torch.full_like(mean, self.initial_std).log()
        return MyState(mean, log_std)

    def step_noise(self, problem: Problem) -> Shapes:
        """Return the names and shapes of the standard normals that `step` gets."""
        return {"z": (problem.dim,)}

    def step(
        self, state: MyState, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> MyState:
        """Return the state after one update from one minibatch.

        `hyper` has the hyper-parameters of prior and likelihood, and `learning_rate`.
        `problem.log_likelihood` is that of all rows, estimated from the minibatch.
        """

        def negative_elbo(variational: MyState) -> Tensor:  # without its constant terms
            theta = variational.mean + variational.log_std.exp() * noise["z"]
            log_likelihood = problem.log_likelihood(theta, batches, hyper)
            log_prior = problem.log_prior(theta, hyper)
            entropy = variational.log_std.sum()
            return -(log_likelihood + log_prior) - entropy

        gradient = torch.func.grad(negative_elbo)(state)
        rate = hyper["learning_rate"]
        # tanh bounds the length of a step: use a better optimiser here, such as those of
        # bdl.methods.optim
        return MyState(
            mean=state.mean - rate * gradient.mean.tanh(),
            log_std=state.log_std - rate * gradient.log_std.tanh(),
        )

    def posterior(self, state: MyState) -> DiagonalGaussian:
        """Return the distribution over parameters that the state describes."""
        return DiagonalGaussian(state.mean, (2 * state.log_std).exp())
