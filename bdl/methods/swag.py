"""SWAG: a Gaussian from the iterates of SGD, one an epoch (Maddox et al. 2019; Brownlie 2022, eq. 3.1-3.5).

Of the T iterates theta_t collected at the ends of epochs, thetabar_t is the running mean up to theta_t, and the
columns of Dhat are the last K deviations theta_t - thetabar_t. The posterior is

    N(thetabar_T, (diag(s) + Dhat Dhat^T / (K - 1)) / 2),  s = (1/T) sum_t theta_t^2 - thetabar_T^2.

Here s comes from a running sum of squared deviations, which is the same and does not cancel in float32.
"""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from annotated_types import Ge
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import Noise
from bdl.methods.sgd_iterates import VARIANCE_FLOOR, ConstantSgd, descend, steps_per_epoch, welford_weights
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import FactorAnalysis


class SwagState(NamedTuple):
    """The iterate and the running moments of what was collected; scalars are counts."""

    theta: Tensor
    """Parameters, (D,)."""
    updates: Tensor
    """Steps made."""
    collected: Tensor
    """Iterates collected, T."""
    mean: Tensor
    """Their mean, (D,)."""
    scatter: Tensor
    """Sum of their squared deviations from it, (D,)."""
    deviations: Tensor
    """The last K deviations from the running mean, a ring: that of theta_t is column (t - 1) mod K; (D, K)."""


@dataclass(frozen=True)
class Swag(ConstantSgd):
    """Settings of SWAG.

    Parameters
    ----------
    rank
        Deviations kept, K; Maddox et al. keep 20.
    """

    rank: Annotated[int, Ge(2)] = 2

    def check(self, problem: Problem) -> None:
        """Raise `InputError` if more deviations are kept than there are parameters."""
        if self.rank > problem.dim:
            raise InputError(f"rank {self.rank} exceeds the {problem.dim} parameters of the model; lower it")

    def init(self, problem: Problem, noise: Noise) -> SwagState:
        """Start at initial_scale times the noise, with nothing collected."""
        theta = self.initial_scale * noise["theta"]
        zero, zeros = torch.zeros_like(theta[0]), torch.zeros_like(theta)
        return SwagState(theta, zero, zero, theta, zeros, zeros.unsqueeze(1).repeat(1, self.rank))

    def step(self, state: SwagState, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem) -> SwagState:
        """Descend once, and collect the iterate if it ends an epoch after the warm-up."""
        decay = self.decay(hyper, batches.n, problem)
        theta = descend(state.theta, hyper["learning_rate"], decay, batches, hyper, problem)

        updates, per_epoch = state.updates + 1, steps_per_epoch(batches)
        collected = (updates // per_epoch - self.warmup_epochs).clamp(min=0)
        weight, gain = welford_weights(updates % per_epoch == 0, collected)
        delta = theta - state.mean
        mean = torch.lerp(state.mean, theta, weight)
        slot = torch.arange(self.rank, device=theta.device) == (collected - 1) % self.rank
        newest = slot & (collected > state.collected)
        deviations = torch.where(newest, ((1 - weight) * delta).unsqueeze(1), state.deviations)
        return SwagState(theta, updates, collected, mean, state.scatter + gain * delta.square(), deviations)

    def posterior(self, state: SwagState) -> FactorAnalysis:
        """Give the Gaussian of the module docstring, s at least `VARIANCE_FLOOR`.

        While fewer than K deviations are collected the other columns of Dhat are zero, and the number
        collected stands for K in the divisor K - 1, which is at least 1.
        """
        columns = state.collected.clamp(max=self.rank)
        factors = state.deviations / (2 * (columns - 1).clamp(min=1)).sqrt()
        variance = state.scatter / state.collected.clamp(min=1)
        return FactorAnalysis(state.mean, factors, 0.5 * variance.clamp(min=VARIANCE_FLOOR))
