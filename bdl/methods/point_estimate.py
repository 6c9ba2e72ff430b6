"""Point estimates: Adam, RMSprop and plain gradient descent on the negative log-joint.

They descend, from minibatches of M of the N examples with log-likelihoods l and the prior
precision lambda,

    E(theta) = -(1/M) sum_i l_i(theta) + prior_share (lambda / (2 N)) ||theta||^2,

which is -log p(D | theta) - prior_share log p(theta) by example, so that learning rates do not
depend on N. A share of 1 leads to the posterior's mode, a share of 0 to the largest likelihood.
"""

from dataclasses import dataclass
from functools import reduce
from typing import Annotated

import torch
from annotated_types import Ge, Gt

from bdl.methods import optim
from bdl.methods.base import Noise, with_minibatch_axis
from bdl.methods.optim import (
    Decay,
    Descent,
    DescentState,
    Optimizer,
    Params,
    clip_by_norm,
    mean_gradient,
)
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import Point


@dataclass(frozen=True)
class Sgd(Descent):
    """Settings of gradient descent; the parameters in its state are ``theta`` (D,).

    Parameters
    ----------
    prior_share
        Weight of the log-prior: 1 for the posterior's mode, 0 for the largest likelihood.
    gradients_per_update
        Minibatches whose gradients are averaged in an update.
    max_grad_norm
        The gradient of N E is clipped to this norm and descended in place of that of E; null
        descends E.
    """

    prior_share: Annotated[float, Ge(0)] = 1.0
    gradients_per_update: Annotated[int, Ge(1)] = 1
    max_grad_norm: Annotated[float, Gt(0)] | None = None

    @property
    def batches_per_step(self) -> int:
        return self.gradients_per_update

    @property
    def _optimizer(self) -> Optimizer:
        return optim.SgdUpdate()

    def init(self, problem: Problem, noise: Noise) -> DescentState:
        params = {"theta": self.start(problem, noise["theta"])}
        return DescentState(params, self._optimizer.init(params))

    def gradients(
        self, state: DescentState, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> Params:
        theta, batches = state.params["theta"], with_minibatch_axis(batches, self.batches_per_step)
        minibatches = [
            batches._replace(x=x, y=y)
            for x, y in zip(batches.x.unbind(), batches.y.unbind(), strict=True)
        ]
        # one after the other, so that the layers of one minibatch alone are in memory
        gradients = (mean_gradient(theta, batch, hyper, problem) for batch in minibatches)
        gradient = reduce(torch.add, gradients) / len(minibatches)
        if self.prior_share:
            gradient = (
                gradient + self.prior_share * problem.prior_precision(hyper) / batches.n * theta
            )
        if self.max_grad_norm is not None:
            gradient = clip_by_norm(batches.n * gradient, self.max_grad_norm)
        return {"theta": gradient}

    def posterior(self, state: DescentState) -> Point:
        return Point(state.params["theta"])


@dataclass(frozen=True)
class Adam(Sgd):
    """Settings of Adam, in addition to those of gradient descent.

    Parameters
    ----------
    betas
        Decay rates of the two moments.
    eps
        Is added to the root of the second.
    """

    betas: tuple[Decay, Decay] = (0.9, 0.999)
    eps: Annotated[float, Gt(0)] = 1e-8

    @property
    def _optimizer(self) -> Optimizer:
        return optim.AdamUpdate(*self.betas, self.eps)


@dataclass(frozen=True)
class RmsProp(Sgd):
    """Settings of RMSprop, in addition to those of gradient descent.

    It divides by the root of the mean square of the gradients, without momentum.

    Parameters
    ----------
    decay
        Decay rate of the mean square.
    eps
        Is added to its root.
    """

    decay: Decay = 0.9
    eps: Annotated[float, Gt(0)] = 1e-8

    @property
    def _optimizer(self) -> Optimizer:
        return optim.RmsPropUpdate(self.decay, self.eps)
