"""Optimisers of torch.optim as pure functions, and the method that descends by one.

Variational methods descend the negative ELBO J = E_q[-log p(D | theta)] + KL(q || prior). Theta is
a function of the variational parameters and of standard normals, so that J is differentiated
through samples of theta (reparametrisation; Kingma and Welling 2014), while the divergence is in
closed form.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from annotated_types import Ge, Lt
from torch import Tensor

from bdl.methods.base import Noise, StartedMethod, with_minibatch_axis
from bdl.models.problem import Batch, Hyper, Problem

Params = dict[str, Tensor]
Decay = Annotated[float, Ge(0), Lt(1)]
"""Decay rate of a running mean."""


def clip_by_norm(gradient: Tensor, max_norm: float) -> Tensor:
    """Rescale a gradient to Frobenius norm `max_norm` if it is longer; the shape stays.

    A zero gradient stays zero and a non-finite one non-finite; a finite one whose norm overflows
    becomes zero.
    """
    # Of a zero gradient the factor is infinite, which the clamp turns into 1.
    norm = gradient.square().sum().sqrt()
    return gradient * (max_norm / norm).clamp(max=1.0)


class OptimState(NamedTuple):
    """Moments and step count; empty dictionaries where an optimiser keeps none."""

    first: Params
    second: Params
    updates: Tensor


class Optimizer:
    """An optimiser: `init` returns its state, `update` the step to ADD to the parameters."""

    def init(self, params: Params) -> OptimState:
        """Return the state before the first update: no moments, or moments of zero."""
        return OptimState({}, {}, _zero(params))

    def update(self, grads: Params, state: OptimState, rates: Params) -> tuple[Params, OptimState]:
        """Turn gradients (to be descended) into steps, one learning rate a parameter group."""
        raise NotImplementedError

    def move(
        self, params: Params, grads: Params, state: OptimState, rates: Params
    ) -> tuple[Params, OptimState]:
        """Return parameters after an update, those that have a gradient, and the new state."""
        steps, state = self.update(grads, state, rates)
        return {name: params[name] + steps[name] for name in steps}, state


@dataclass(frozen=True)
class SgdUpdate(Optimizer):
    """Plain gradient descent: step = -lr * g."""

    def update(self, grads: Params, state: OptimState, rates: Params) -> tuple[Params, OptimState]:
        steps = {name: -rates[name] * grad for name, grad in grads.items()}
        return steps, state._replace(updates=state.updates + 1)


@dataclass(frozen=True)
class AdamUpdate(Optimizer):
    """Adam with bias correction: step = -lr * m_hat / (sqrt(v_hat) + eps).

    Kingma and Ba (2015), Algorithm 1.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def init(self, params: Params) -> OptimState:
        zeros = {name: torch.zeros_like(value) for name, value in params.items()}
        # Both share tensors, which is safe since no update changes one in place.
        return OptimState(zeros, dict(zeros), _zero(params))

    def update(self, grads: Params, state: OptimState, rates: Params) -> tuple[Params, OptimState]:
        updates = state.updates + 1
        scale1, scale2 = 1 / (1 - self.beta1**updates), 1 / (1 - self.beta2**updates)
        first, second, steps = {}, {}, {}
        for name, grad in grads.items():
            # lerp(new, old, b) is (1 - b) new + b old
            first[name] = torch.lerp(grad, state.first[name], self.beta1)
            second[name] = torch.lerp(grad.square(), state.second[name], self.beta2)
            denominator = (second[name] * scale2).sqrt() + self.eps
            steps[name] = -rates[name] * scale1 * first[name] / denominator
        return steps, OptimState(first, second, updates)


@dataclass(frozen=True)
class RmsPropUpdate(Optimizer):
    """RMSprop: step = -lr * g / (sqrt(v) + eps), with v <- decay v + (1 - decay) g^2.

    Tieleman and Hinton (2012).
    """

    decay: float = 0.9
    eps: float = 1e-8

    def init(self, params: Params) -> OptimState:
        return OptimState(
            {}, {name: torch.zeros_like(value) for name, value in params.items()}, _zero(params)
        )

    def update(self, grads: Params, state: OptimState, rates: Params) -> tuple[Params, OptimState]:
        second = {
            name: torch.lerp(grad.square(), state.second[name], self.decay)
            for name, grad in grads.items()
        }
        steps = {
            name: -rates[name] * grad / (second[name].sqrt() + self.eps)
            for name, grad in grads.items()
        }
        return steps, OptimState({}, second, state.updates + 1)


def _zero(params: Params) -> Tensor:
    first = next(iter(params.values()))
    return torch.zeros((), dtype=first.dtype, device=first.device)


OPTIMIZERS: dict[Literal["sgd", "adam"], Optimizer] = {"sgd": SgdUpdate(), "adam": AdamUpdate()}


class DescentState(NamedTuple):
    """Parameters by name, and the optimiser's state."""

    params: Params
    optim: OptimState


@dataclass(frozen=True)
class Descent(StartedMethod):
    """A method that moves the parameters in its state by the gradients of a cost.

    A subclass defines `gradients`; `step` makes the update by them.
    """

    @property
    def _optimizer(self) -> Optimizer:
        return AdamUpdate()

    def gradients(
        self, state: Any, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> Params:
        """Return the gradients of the cost by the parameters, by name.

        Arguments as those of `step`.
        """
        raise NotImplementedError

    def step(
        self, state: Any, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> Any:
        grads = self.gradients(state, batches, hyper, noise, problem)
        params, optim = self._optimizer.move(
            state.params, grads, state.optim, self._rates(grads, hyper)
        )
        return state._replace(params=params, optim=optim)

    def _rates(self, grads: Params, hyper: Hyper) -> Params:
        """Return the learning rate of each parameter that has a gradient."""
        return dict.fromkeys(grads, hyper["learning_rate"])


@dataclass(frozen=True)
class SampledDescent(Descent):
    """Variational inference by Adam, from gradients at samples of q.

    Parameters
    ----------
    initial_scale
        Standard deviation of the initial means, which are normal with mean 0; null for the model's
        own start.
    samples
        Samples S from q in an update; each sees the whole minibatch.
    betas
        Decay rates of Adam's two moments.
    """

    initial_scale: Annotated[float, Ge(0)] | None = 0.0
    samples: Annotated[int, Ge(1)] = 4
    betas: tuple[Decay, Decay] = (0.9, 0.99)

    retired: ClassVar[Mapping[str, Any]] = {"optimizer": "adam"}

    @property
    def _optimizer(self) -> Optimizer:
        return AdamUpdate(*self.betas)


def mean_gradient(theta: Tensor, batch: Batch, hyper: Hyper, problem: Problem) -> Tensor:
    """Return the gradient of minus the mean log-likelihood of a minibatch at parameters (D,)."""

    def cost(theta: Tensor) -> Tensor:
        return -problem.log_likelihoods(theta, batch, hyper).mean()

    return torch.func.grad(cost)(theta)


def sample_gradients(theta: Tensor, batch: Batch, hyper: Hyper, problem: Problem) -> Tensor:
    """Return the gradients of minus the log-likelihood of all data at samples (S, D).

    They are estimated from one minibatch, (S, D).
    """

    def cost(theta: Tensor) -> Tensor:
        return -problem.log_likelihood(theta, batch, hyper)

    return torch.func.vmap(torch.func.grad(cost))(theta)


def batch_gradients(theta: Tensor, batches: Batch, hyper: Hyper, problem: Problem) -> Tensor:
    """Return those of `sample_gradients` at parameters (L, D), from a minibatch for each."""
    batches = with_minibatch_axis(batches, len(theta))

    def cost(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return -problem.log_likelihood(theta, batches._replace(x=x, y=y), hyper)

    return torch.func.vmap(torch.func.grad(cost))(theta, batches.x, batches.y)
