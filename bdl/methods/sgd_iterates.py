"""Iterates of constant-rate SGD as posterior samples (Brownlie 2022, section 4.4.2; Mandt et al. 2017).

SGD descends E(theta) = -(1/N) log p(D | theta) + (lambda / 2) ||theta||^2, whose minimum is the mode of the
posterior when lambda = alpha / N. With a constant learning rate the iterates never settle; their mean is
stochastic weight averaging (Izmailov et al. 2018), and their covariance is taken for that of the posterior.

The thesis descends the mean of squared errors instead, which is 2 / beta times the mean negative
log-likelihood of a Gaussian likelihood with noise precision beta (in the unit of the targets that the model
sees). Its learning rate eta and weight decay lambda are ``learning_rate`` = 2 eta / beta and ``weight_decay``
= lambda beta / 2 here, and the decay that agrees with the prior is lambda = 2 alpha / (beta N): the thesis
says alpha / beta, because its equation 4.42 has a sum of squares where its code has a mean.
"""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import Noise, Shapes
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import FullGaussian

VARIANCE_FLOOR = 1e-12
"""Least variance of a parameter, squared parameter units: a standard deviation of 1e-6."""

_LARGEST_DIM = 2000
"""Parameters whose D x D covariance is still collected; each trial then holds 16 MB."""


@dataclass(frozen=True)
class ConstantSgd:
    """What methods share that look at iterates of SGD with a constant learning rate.

    Parameters
    ----------
    warmup_epochs
        Epochs of phase 1, in which nothing is collected; train for more epochs than these. Until something
        is collected the posterior is a narrow Gaussian at the last iterate.
    prior_decay
        True takes the decay alpha / N of the prior (the biases' own where they have one). False takes the
        hyper-parameter ``weight_decay`` for every parameter.
    initial_scale
        Standard deviation of the initial parameters, which are normal with mean 0. The published start is
        uniform on +-1 / sqrt(fan_in), of standard deviation 1 / sqrt(3 fan_in); phase 1 forgets the difference.
    """

    warmup_epochs: Annotated[int, Ge(0)] = 500
    prior_decay: bool = True
    initial_scale: Annotated[float, Gt(0)] = 0.1

    @property
    def hyper(self) -> tuple[str, ...]:
        """Names of the per-trial hyper-parameters it needs beside those of the problem."""
        return ("learning_rate",) if self.prior_decay else ("learning_rate", "weight_decay")

    @property
    def batches_per_step(self) -> int:
        """Minibatches that one `step` consumes: one."""
        return 1

    def init_noise(self, problem: Problem) -> Shapes:
        """Ask for the initial parameters."""
        return {"theta": (problem.dim,)}

    def step_noise(self, problem: Problem) -> Shapes:
        """Ask for nothing: the randomness is that of the minibatches."""
        return {}

    def decay(self, hyper: Hyper, n: Tensor, problem: Problem) -> Tensor:
        """Weight decay lambda: a scalar, or (D,) when the biases have their own prior."""
        return problem.prior_precision(hyper) / n if self.prior_decay else hyper["weight_decay"]


class SgdState(NamedTuple):
    """The iterate and the running moments of what was collected; scalars are counts."""

    theta: Tensor
    """Parameters, (D,)."""
    updates: Tensor
    """Steps made."""
    window: Tensor
    """Mean of the iterates in the current window, (D,)."""
    collected: Tensor
    """Windows completed in phase 2, T."""
    mean: Tensor
    """Mean of the completed windows, (D,)."""
    scatter: Tensor
    """Sum of outer products of the completed windows' deviations from their mean, (D, D)."""


@dataclass(frozen=True)
class SgdIterates(ConstantSgd):
    """Settings of the Gaussian with the empirical mean and covariance of SGD's iterates, one every step.

    Parameters
    ----------
    window
        Iterates averaged into one sample; windows are consecutive and disjoint (thesis B.2).
    separate_warmup
        True gives phase 1 a learning rate of its own, the hyper-parameter ``warmup_learning_rate``, and no
        decay, as published. False makes it the same as phase 2.
    """

    window: Annotated[int, Ge(1)] = 1
    separate_warmup: bool = False

    @property
    def hyper(self) -> tuple[str, ...]:
        """Names of the per-trial hyper-parameters it needs beside those of the problem."""
        return (*super().hyper, "warmup_learning_rate") if self.separate_warmup else super().hyper

    def check(self, problem: Problem) -> None:
        """Raise `InputError` if a dense covariance would be too large."""
        if problem.dim > _LARGEST_DIM:
            raise InputError(
                f"{problem.dim} parameters are too many for a dense covariance (at most {_LARGEST_DIM}); use swag"
            )

    def init(self, problem: Problem, noise: Noise) -> SgdState:
        """Start at initial_scale times the noise, with nothing collected."""
        theta = self.initial_scale * noise["theta"]
        zero = torch.zeros_like(theta[0])
        return SgdState(theta, zero, theta, zero, theta, torch.zeros_like(theta).diag_embed())

    def step(self, state: SgdState, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem) -> SgdState:
        """Descend once, and collect the window if this iterate completes it."""
        warmup = self.warmup_epochs * steps_per_epoch(batches)
        rate, decay = hyper["learning_rate"], self.decay(hyper, batches.n, problem)
        if self.separate_warmup:
            early = state.updates < warmup
            rate = torch.where(early, hyper["warmup_learning_rate"], rate)
            decay = torch.where(early, 0.0, decay)
        theta = descend(state.theta, rate, decay, batches, hyper, problem)

        updates = state.updates + 1
        kept = (updates - warmup).clamp(min=0)
        position = torch.where(kept > 0, (kept - 1) % self.window + 1, 1)
        window = torch.lerp(state.window, theta, 1 / position)
        collected = kept // self.window
        weight, gain = welford_weights(position == self.window, collected)
        delta = window - state.mean
        mean = torch.lerp(state.mean, window, weight)
        return SgdState(theta, updates, window, collected, mean, state.scatter + gain * torch.outer(delta, delta))

    def posterior(self, state: SgdState) -> FullGaussian:
        """Give the Gaussian with mean and covariance (divisor T - 1) of the T completed windows.

        Each variance is raised by 4 (D + sqrt(T)) rounding units, the size of the rounding errors, and by
        `VARIANCE_FLOOR`: where the windows span fewer than D dimensions a Cholesky factor exists all the same.
        A covariance that has none even so, of a diverged trial say, gives NaN throughout.
        """
        covariance = state.scatter / (state.collected - 1).clamp(min=1)
        variance = covariance.diagonal()
        slack = 4 * torch.finfo(variance.dtype).eps * (len(variance) + state.collected.sqrt())
        factor, info = torch.linalg.cholesky_ex(covariance + (slack * variance + VARIANCE_FLOOR).diag_embed())
        return FullGaussian(state.mean, torch.where(info == 0, factor, torch.nan))


def steps_per_epoch(batches: Batch) -> Tensor:
    """Whole minibatches in the training set, floor(N / M), a scalar."""
    return batches.n // batches.x.shape[1]


def descend(theta: Tensor, rate: Tensor, decay: Tensor, batches: Batch, hyper: Hyper, problem: Problem) -> Tensor:
    """Make one SGD step on E from the first of the minibatches; module docstring.

    Parameters
    ----------
    theta
        Parameters, (D,).
    rate
        Learning rate, a scalar.
    decay
        Weight decay lambda, a scalar or (D,).
    batches, hyper, problem
        As in `Method.step`.

    Returns
    -------
    Tensor
        Parameters, (D,).
    """
    batch = batches._replace(x=batches.x[0], y=batches.y[0])

    def cost(theta: Tensor) -> Tensor:
        return -problem.log_likelihoods(theta, batch, hyper).mean()

    gradient: Tensor = torch.func.grad(cost)(theta) + decay * theta
    return theta - rate * gradient


def welford_weights(collect: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Weights of a new value in running moments, by Welford's (1962) recurrence.

    With delta = value - mean, ``mean + weight * delta`` is the new mean and ``scatter + gain * delta delta^T``
    the new sum of outer products of deviations. Unlike the difference of two raw moments, nothing cancels.

    Parameters
    ----------
    collect
        Whether the value belongs to the sample; otherwise both weights are 0.
    count
        Size of the sample, this value included. While it is 0 the mean follows the value.

    Returns
    -------
    tuple of Tensor
        ``weight`` and ``gain``, scalars.
    """
    size = count.clamp(min=1)
    weight = torch.where(collect | (count == 0), 1 / size, 0.0)
    return weight, weight * (size - 1)
