"""SLANG: natural-gradient variational inference with a low-rank plus diagonal precision (Mishkin et al. 2018, Alg. 1).

q(theta) = N(mu, P^-1), P = U U^T + diag(d). With g_i the gradients of the n = M S log-likelihoods of a minibatch
of M examples under S samples from q, G their matrix, N the size of the training set and lambda the prior precision,

    A     = (1 - beta) U U^T + beta (N / n) G^T G
    U    <- the best approximation of A of rank L, U U^T
    d    <- (1 - beta) d + diag(A) - diag(U U^T) + beta lambda
    gbar <- m gbar - (1 - m) (N / n) sum_i g_i
    mu   <- mu - alpha P^-1 (gbar / (1 - m^t) + lambda mu)

so that the diagonal of P is that of the full natural-gradient update with the empirical Fisher matrix. The print
lacks several factors; docs/errata.md lists them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor

from bdl.methods.base import Noise, check_rank
from bdl.methods.natural import NaturalGradientMethod
from bdl.methods.spectrum import top_eigenvectors
from bdl.models.gradients import example_gradients
from bdl.models.problem import Batch, Hyper, Problem
from bdl.models.products import ExampleGradients
from bdl.posteriors import LowRankPrecision


class SlangState(NamedTuple):
    """Variational parameters, the momentum and the count of updates."""

    mu: Tensor  # Mean, (D,)
    U: Tensor  # Factors of the precision, (D, L)
    d: Tensor  # Diagonal part of the precision, (D,)
    gbar: Tensor  # Running mean of the gradients of minus the log-likelihood of all data, (D,)
    updates: Tensor  # Updates made, a scalar


@dataclass(frozen=True)
class Slang(NaturalGradientMethod):
    """Settings of SLANG.

    Parameters
    ----------
    rank
        Columns L of U.
    momentum
        Weight m of the past in the running mean of gradients.
    initial_precision
        The precision starts as this multiple of the identity; null makes it a hyper-parameter, which may be searched.
    doubled_mean
        True does as the published code for networks does: it evaluates the model at 2 mu + e, where e is noise of
        precision P (docs/errata.md). In terms of m = 2 mu, the mean of what it trains, that is twice the learning
        rate and half the prior precision in the update of the mean, and twice the initial scale.
    """

    initial_scale: Annotated[float, Ge(0)] | None = 0.1
    rank: Annotated[int, Ge(1)] = 1
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    initial_precision: Annotated[float, Gt(0)] | None = 1.0
    doubled_mean: bool = False

    @property
    def hyper(self) -> tuple[str, ...]:
        return ("learning_rate",) if self.initial_precision is not None else ("learning_rate", "initial_precision")

    @property
    def hyper_above(self) -> Mapping[str, float]:
        return {"initial_precision": 0.0}

    @property
    def _doubling(self) -> int:
        return 2 if self.doubled_mean else 1

    def check(self, problem: Problem) -> None:
        check_rank("rank", self.rank, problem)

    def init(self, problem: Problem, noise: Noise) -> SlangState:
        mu = self._doubling * self.start(problem, noise["theta"])
        zero = torch.zeros_like(mu)
        d = zero + (1.0 if self.initial_precision is None else self.initial_precision)
        return SlangState(mu, zero.unsqueeze(1).repeat(1, self.rank), d, zero, zero[0])

    def step(self, state: SlangState, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem) -> SlangState:
        alpha, beta = self.steps(hyper)
        prior = problem.prior_precision(hyper)
        if self.initial_precision is None:
            state = state._replace(d=torch.where(state.updates == 0, hyper["initial_precision"], state.d))

        G = example_gradients(problem, self.posterior(state).sample(noise["theta"]), batch, hyper)
        scale = batch.n / (self.samples * len(batch.x))
        U, d = self.precision(state.U, state.d, G, scale, beta)
        d = d + beta * prior

        ghat = -scale * G.total()
        gbar, updates = torch.lerp(ghat, state.gbar, self.momentum), state.updates + 1
        force = gbar / (1 - self.momentum**updates) + prior / self._doubling * state.mu
        mu = state.mu - self._doubling * alpha * LowRankPrecision(state.mu, U, d).solve(force)
        return SlangState(mu, U, d, gbar, updates)

    def precision(
        self, U: Tensor, d: Tensor, G: ExampleGradients, scale: Tensor, beta: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Update U (D, L) and d (D,) from the gradients of n examples, but for the part beta lambda of the prior.

        `scale` is N / n, and `beta` the learning rate.
        """
        keep, gain = 1 - beta, beta * scale
        diagonal = keep * U.square().sum(1) + gain * G.squares()
        if len(U) <= self.rank + G.rows:
            A = keep * U @ U.T + gain * G.outer()
            Q = top_eigenvectors(A, self.rank)
            new = Q * (Q * (A @ Q)).sum(0).clamp(min=0).sqrt()
        else:  # the eigenvectors of A are combinations of the columns of U and the gradients
            cross = (keep * gain).sqrt() * G.times(U)
            below = torch.cat([cross, gain * G.gram()], dim=1)
            above = torch.cat([keep * U.T @ U, cross.T], dim=1)
            Q = top_eigenvectors(torch.cat([above, below]), self.rank)
            new = keep.sqrt() * U @ Q[: self.rank] + gain.sqrt() * G.combine(Q[self.rank :])
        return new, keep * d + (diagonal - new.square().sum(1)).clamp(min=0)

    def posterior(self, state: SlangState) -> LowRankPrecision:
        return LowRankPrecision(state.mu, state.U, state.d)
