"""What methods share that descend a cost by an optimiser: point estimates, and variational inference.

Variational methods descend the negative ELBO J = E_q[-log p(D | theta)] + KL(q || prior). Theta is a function of the
variational parameters and of standard normals, so that J is differentiated through samples of theta
(reparametrisation; Kingma and Welling 2014), while the divergence is in closed form.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bdl.methods.base import Noise, StartedMethod, stacked
from bdl.methods.optim import Adam, Optimizer, OptimState, Params
from bdl.models.problem import Batch, Hyper, Problem


class DescentState(NamedTuple):
    """Parameters by name, and the optimiser's state."""

    params: Params
    optim: OptimState


@dataclass(frozen=True)
class Descent(StartedMethod):
    """A method that moves the parameters in its state by the gradients of a cost."""

    @property
    def _optimizer(self) -> Optimizer:
        return Adam()

    def gradients(self, state: Any, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem) -> Params:
        """Return the gradients of the cost by the parameters, by name; arguments as those of `step`."""
        raise NotImplementedError

    def step(self, state: Any, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem) -> Any:
        grads = self.gradients(state, batches, hyper, noise, problem)
        params, optim = self._optimizer.move(state.params, grads, state.optim, self._rates(grads, hyper))
        return state._replace(params=params, optim=optim)

    def _rates(self, grads: Params, hyper: Hyper) -> Params:
        """Return the learning rate of each parameter that has a gradient."""
        return dict.fromkeys(grads, hyper["learning_rate"])


def sample_gradients(theta: Tensor, batch: Batch, hyper: Hyper, problem: Problem) -> Tensor:
    """Return the gradients of minus the log-likelihood of all data at samples (S, D), from one minibatch; (S, D)."""

    def cost(theta: Tensor) -> Tensor:
        return -problem.log_likelihood(theta, batch, hyper)

    gradients: Tensor = torch.func.vmap(torch.func.grad(cost))(theta)
    return gradients


def batch_gradients(theta: Tensor, batches: Batch, hyper: Hyper, problem: Problem) -> Tensor:
    """Return the same at parameters (L, D), from a minibatch for each of them; (L, D)."""

    batches = stacked(batches, len(theta))

    def cost(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return -problem.log_likelihood(theta, batches._replace(x=x, y=y), hyper)

    gradients: Tensor = torch.func.vmap(torch.func.grad(cost))(theta, batches.x, batches.y)
    return gradients
