"""SWAG: a Gaussian from the iterates of SGD, one an epoch
(Maddox et al. 2019; Brownlie 2022, equations 3.1 to 3.5).

Of the T iterates theta_t collected at the ends of epochs, thetabar_t is the running mean up to
theta_t, and the columns of Dhat are the last K deviations theta_t - thetabar_t. The posterior is

    N(thetabar_T, (diag(s) + Dhat Dhat^T / (K - 1)) / 2),  s = (1/T) sum_t theta_t^2 -
    thetabar_T^2.

Here s comes from a running sum of squared deviations, which is the same and does not cancel in
float32.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from annotated_types import Ge
from torch import Tensor

from bdl.methods.base import Noise, check_rank
from bdl.methods.counters import StepCounters
from bdl.methods.sgd_iterates import VARIANCE_FLOOR, ConstantSgd, welford_weights
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import FactorAnalysis


class SwagState(NamedTuple):
    """The iterate and the running moments of the collected ones."""

    theta: Tensor  # Parameters, (D,)
    collected: Tensor  # Iterates collected, T, a scalar
    mean: Tensor  # Their mean, (D,)
    scatter: Tensor  # Sum of their squared deviations from it, (D,)
    deviations: Tensor
    """The last K deviations from the running mean, a ring: that of theta_t is column (t - 1) mod
    K; (D, K).
    """


@dataclass(frozen=True)
class Swag(ConstantSgd):
    """Settings of SWAG.

    Parameters
    ----------
    rank
        Deviations kept, K; Maddox et al. keep 20.
    """

    rank: Annotated[int, Ge(2)] = 2

    retired: ClassVar[Mapping[str, Any]] = {"prior_decay": True}

    def check(self, problem: Problem) -> None:
        check_rank("rank", self.rank, problem)

    def init(self, problem: Problem, noise: Noise) -> SwagState:
        theta = self.start(problem, noise["theta"])
        zeros = torch.zeros_like(theta)
        return SwagState(theta, zeros[0], theta, zeros, zeros.unsqueeze(1).repeat(1, self.rank))

    def due(self, counters: StepCounters) -> tuple[str, ...]:
        return ("collect",) if counters.ended and counters.epochs > self.warmup_epochs else ()

    def collect(
        self, state: SwagState, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> SwagState:
        """Take the iterate into the moments, and its deviation into one column of the ring."""
        collected = state.collected + 1
        weight, gain = welford_weights(collected)
        delta = state.theta - state.mean
        slot = ((collected - 1) % self.rank).long().expand(len(delta), 1)
        return SwagState(
            state.theta,
            collected,
            torch.lerp(state.mean, state.theta, weight),
            state.scatter + gain * delta.square(),
            state.deviations.scatter(1, slot, ((1 - weight) * delta).unsqueeze(1)),
        )

    def posterior(self, state: SwagState) -> FactorAnalysis:
        """Return the Gaussian of the module docstring, s at least `VARIANCE_FLOOR`.

        While fewer than K deviations are collected the other columns of Dhat are zero, and the
        number collected stands for K in the divisor K - 1, which is at least 1. While nothing is
        collected it is a narrow Gaussian at the iterate.
        """
        mean = torch.where(state.collected > 0, state.mean, state.theta)
        columns = state.collected.clamp(max=self.rank)
        factors = state.deviations / (2 * (columns - 1).clamp(min=1)).sqrt()
        variance = state.scatter / state.collected.clamp(min=1)
        return FactorAnalysis(mean, factors, 0.5 * variance.clamp(min=VARIANCE_FLOOR))
