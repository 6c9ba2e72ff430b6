"""SGD with a constant learning rate: what methods share that look at its iterates (Mandt et al. 2017).

SGD descends E(theta) = -(1/N) log p(D | theta) + (lambda / 2) ||theta||^2, whose minimum is the mode of the
posterior when lambda = alpha / N. With a constant learning rate the iterates never settle; their mean is
stochastic weight averaging (Izmailov et al. 2018), and their covariance is taken for that of the posterior.

Brownlie (2022, section 4.4.2) descends the mean of squared errors instead, which is 2 / beta times the mean negative
log-likelihood of a Gaussian likelihood with noise precision beta (in the unit of the targets that the model
sees). Its learning rate eta and weight decay lambda are ``learning_rate`` = 2 eta / beta and ``weight_decay``
= lambda beta / 2 here, and the decay that agrees with the prior is lambda = 2 alpha / (beta N): the thesis
says alpha / beta, because its equation 4.42 has a sum of squares where its code has a mean.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from bdl.methods.base import Noise, StartedMethod
from bdl.models.problem import Batch, Hyper, Problem

VARIANCE_FLOOR = 1e-12
"""Least variance of a parameter, squared parameter units: a standard deviation of 1e-6."""


@dataclass(frozen=True)
class ConstantSgd(StartedMethod):
    """What methods share that look at iterates of SGD with a constant learning rate.

    Parameters
    ----------
    warmup_epochs
        Epochs of phase 1, in which nothing is collected; train for more epochs than these. Until something
        is collected the posterior is a narrow Gaussian at the last iterate.
    initial_scale
        Standard deviation of the initial parameters, which are normal with mean 0; null for the model's own start. The
        published start is uniform on +-1 / sqrt(fan_in), of standard deviation 1 / sqrt(3 fan_in); phase 1 forgets the
        difference.
    """

    initial_scale: Annotated[float, Gt(0)] | None = 0.1
    warmup_epochs: Annotated[int, Ge(0)] = 500

    @property
    def idle_epochs(self) -> int:
        return self.warmup_epochs

    def decay(self, hyper: Hyper, n: Tensor, problem: Problem) -> Tensor:
        """Return the weight decay lambda = alpha / N: a scalar, or (D,) when the biases have their own prior."""
        return problem.prior_precision(hyper) / n

    def step(self, state: Any, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem) -> Any:
        return state._replace(theta=descend(state.theta, hyper, self.decay, batch, problem))


def descend(
    theta: Tensor,
    hyper: Hyper,
    decay: Callable[[Hyper, Tensor, Problem], Tensor],
    batch: Batch,
    problem: Problem,
) -> Tensor:
    """Make one SGD step on E from parameters theta (D,) and a minibatch; `decay` gives the weight decay lambda."""

    def cost(theta: Tensor) -> Tensor:
        return -problem.log_likelihoods(theta, batch, hyper).mean()

    gradient: Tensor = torch.func.grad(cost)(theta) + decay(hyper, batch.n, problem) * theta
    return theta - hyper["learning_rate"] * gradient


def welford_weights(count: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights of a new value, the `count`-th, in running moments, by Welford's (1962) recurrence.

    With delta = value - mean, ``mean + weight * delta`` is the new mean and ``scatter + gain * delta delta^T``
    the new sum of outer products of deviations. Unlike the difference of two raw moments, nothing cancels.
    """
    weight = 1 / count
    return weight, weight * (count - 1)
