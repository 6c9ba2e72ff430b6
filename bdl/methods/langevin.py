"""Stochastic-gradient MCMC: SGLD, SGHMC and cyclical SG-MCMC.

Their posterior is a set of iterates. They move theta by minibatch gradients of E(theta) = -(1/N)
log p(D, theta), the cost that `bdl.methods.sgd_iterates` descends. With the learning rate l, the
friction a and standard normals z, an update is

    v     <- (1 - a) v - l grad E(theta) + (2 a l / N)^1/2 z
    theta <- theta + v.

That is SGHMC in the form of Chen, Fox and Guestrin (2014, eq. 15), their eta being l / N and their
estimate of the noise of gradients 0. With a = 1 it is SGLD with the step eps = 2 l / N (Welling
and Teh 2011, eq. 4). A schedule of the rate makes the step decay; draws weigh the same, whatever
it is.

Notes
-----
With gradients of all rows and a Gaussian posterior of precision P the stationary law is known.
Along an eigenvector of P with the eigenvalue N c, theta is an autoregression of order 2 with the
coefficients 2 - a - l c and -(1 - a), whose variance is

    1 / (N c) / (1 - l c / (2 (2 - a))),

finite for l c < 2 (2 - a). For SGLD it is too large by the factor 1 / (1 - l c / 2). Noise of
minibatches adds to it, and only a smaller step makes that less.
"""

from dataclasses import dataclass
from math import pi
from typing import Annotated, NamedTuple

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import Noise, Shapes, StartedMethod
from bdl.methods.counters import StepCounters
from bdl.methods.optim import mean_gradient
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import Empirical


class ChainState(NamedTuple):
    """The iterate, and those that are draws from the posterior."""

    theta: Tensor  # Parameters, (D,)
    velocity: Tensor  # Their last change v, (D,)
    draws: Tensor  # The last S draws, a ring: draw t, from 0, is row t mod S; (S, D)
    n_draws: Tensor  # Draws kept so far, those included that were replaced, a scalar
    # Epochs since the start, the part of the last one included, for rates that come in cycles; a
    # scalar
    epochs: Tensor


@dataclass(frozen=True)
class Sgld(StartedMethod):
    """Settings of stochastic-gradient Langevin dynamics.

    Parameters
    ----------
    draws
        Draws kept, S, one at the end of an epoch; the last ones.
    warmup_epochs
        Epochs in which none is kept; train for more than these. Until one is kept the last iterate
        stands for it.
    thinning
        Epochs from one draw to the next.
    """

    draws: Annotated[int, Ge(1)] = 50
    warmup_epochs: Annotated[int, Ge(0)] = 50
    thinning: Annotated[int, Ge(1)] = 1

    @property
    def _friction(self) -> float:
        return 1.0

    def init(self, problem: Problem, noise: Noise) -> ChainState:
        theta = self.start(problem, noise["theta"])
        zeros = torch.zeros_like(theta)
        return ChainState(theta, zeros, zeros.repeat(self.draws, 1), zeros[0], zeros[0])

    def step_noise(self, problem: Problem) -> Shapes:
        return {"z": (problem.dim,)}

    def step(
        self, state: ChainState, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> ChainState:
        rate = self._rate(state, hyper)
        # N in the denominator, since the cost is a mean over the N rows
        spread = (2 * self._friction * rate / batch.n).sqrt()
        return self._move(state, batch, hyper, problem, rate, spread * noise["z"])

    def due(self, counters: StepCounters) -> tuple[str, ...]:
        epochs = counters.epochs - self.warmup_epochs
        is_draw = counters.ended and epochs > 0 and (epochs - 1) % self.thinning == 0
        return ("keep_draw",) if is_draw else ()

    def keep_draw(
        self, state: ChainState, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> ChainState:
        """Take the iterate among the draws, in place of the oldest."""
        # by a scatter: trials that are mapped together differ in this number, and no state is
        # written to
        row = (state.n_draws % self.draws).long().expand(1, len(state.theta))
        return state._replace(
            draws=state.draws.scatter(0, row, state.theta.unsqueeze(0)), n_draws=state.n_draws + 1
        )

    def posterior(self, state: ChainState) -> Empirical:
        """Return the draws; while fewer than S are kept, they are repeated in turn."""
        # at least 1, as there is no remainder by 0
        filled = state.n_draws.clamp(1, self.draws)
        rows = torch.arange(self.draws, device=state.theta.device) % filled
        draws = state.draws.gather(0, rows.long().unsqueeze(1).expand(state.draws.shape))
        return Empirical(torch.where(state.n_draws > 0, draws, state.theta))

    def _rate(self, state: ChainState, hyper: Hyper) -> Tensor:
        """Return the learning rate of the next update, a scalar."""
        return hyper["learning_rate"]

    def _move(
        self,
        state: ChainState,
        batch: Batch,
        hyper: Hyper,
        problem: Problem,
        rate: Tensor,
        kick: Tensor | float,
    ) -> ChainState:
        """Move by the gradient and by random changes of the velocity."""
        slope = mean_gradient(state.theta, batch, hyper, problem)
        slope = slope + problem.prior_precision(hyper) / batch.n * state.theta
        velocity = (1 - self._friction) * state.velocity - rate * slope + kick
        epochs = state.epochs + len(batch.x) / batch.n
        return state._replace(theta=state.theta + velocity, velocity=velocity, epochs=epochs)


@dataclass(frozen=True)
class StochasticGradientHmc(Sgld):
    """Settings of stochastic-gradient Hamiltonian Monte Carlo, in addition to those of SGLD.

    Parameters
    ----------
    friction
        Share a of the velocity that an update takes away, 1 less what is known as momentum.
    """

    friction: Annotated[float, Gt(0), Le(1)] = 0.1

    @property
    def _friction(self) -> float:
        return self.friction


@dataclass(frozen=True)
class CyclicalSgmcmc(StochasticGradientHmc):
    """Settings of cyclical SG-MCMC (Zhang et al. 2020, Algorithm 1).

    The rate falls in each cycle from l to 0, as l (cos(pi r) + 1) / 2 at the share r of the cycle.
    The first epochs of a cycle explore, without noise; the others are sampled from. With a
    friction of 1 it is their cSGLD, else their cSGHMC.

    Parameters
    ----------
    cycle_epochs
        Length of a cycle; train for a multiple of it.
    warmup_epochs
        Epochs of each cycle that explore.
    """

    cycle_epochs: Annotated[int, Ge(1)] = 50
    warmup_epochs: Annotated[int, Ge(0)] = 40

    def check(self, problem: Problem) -> None:
        if self.warmup_epochs >= self.cycle_epochs:
            raise InputError(
                f"warmup_epochs {self.warmup_epochs} leave no draws in cycle_epochs: lower them"
            )

    def phase(self, counters: StepCounters) -> str:
        return "explore" if counters.epoch % self.cycle_epochs < self.warmup_epochs else "step"

    def explore(
        self, state: ChainState, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> ChainState:
        """Descend, without noise."""
        return self._move(state, batch, hyper, problem, self._rate(state, hyper), 0.0)

    def due(self, counters: StepCounters) -> tuple[str, ...]:
        if not counters.ended:
            return ()
        epochs = (counters.epochs - 1) % self.cycle_epochs - self.warmup_epochs
        is_draw = epochs >= 0 and epochs % self.thinning == 0
        return ("end_epoch", "keep_draw") if is_draw else ("end_epoch",)

    def end_epoch(
        self, state: ChainState, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> ChainState:
        """End an epoch, from which rows may have been left out."""
        return state._replace(epochs=state.epochs.round())

    def _rate(self, state: ChainState, hyper: Hyper) -> Tensor:
        share = state.epochs % self.cycle_epochs / self.cycle_epochs
        return hyper["learning_rate"] * (torch.cos(pi * share) + 1) / 2
