"""Noisy Adam: natural-gradient variational inference that costs what Adam costs (Zhang et al. 2018; Mata 2018).

q(theta) = N(mu, (lam / N) diag(1 / (f + gin))). With the weight lam of the divergence, the prior precision alpha, the
damping gex and gin = lam alpha / N, an update k = 1, 2, ... draws one theta from q and has, with the mean gradient g
of the minibatch's log-likelihoods there,

    v   = g - gin theta
    m  <- b1 m + (1 - b1) v
    f  <- b2 f + (1 - b2) g^2
    mu <- mu + learning_rate m / (1 - b1^k) / (r(f) + gin + gex)

where r(f) is the root of f, as Mata implemented it, or f itself, as both print it. f starts at 0, where q is as wide as
the prior, and is not corrected for that. Mata's Table 2.1 never increments k.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
from annotated_types import Ge, Lt
from torch import Tensor

from bdl.methods.base import MinibatchMethod, Noise, Shapes, start
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import DiagonalGaussian

Decay = Annotated[float, Ge(0), Lt(1)]


class NoisyAdamState(NamedTuple):
    """Mean, moments, and what the posterior needs of an update."""

    mu: Tensor
    """Mean, (D,)."""
    m: Tensor
    """Running mean of v, (D,)."""
    f: Tensor
    """Running mean of squared gradients, (D,)."""
    var: Tensor
    """Variances of q after the last update, (D,); 1 before the first, where the prior is not known."""
    updates: Tensor
    """Updates made, k, a scalar."""


@dataclass(frozen=True)
class NoisyAdam(MinibatchMethod):
    """Settings of noisy Adam.

    Parameters
    ----------
    denominator
        ``"root"`` divides by the root of f, ``"plain"`` by f.
    betas
        Decay rates b1 and b2 of the two moments.
    damping
        Extrinsic damping gex.
    initial_scale
        Standard deviation of the initial means, which are normal with mean 0; null for the model's own start.
    """

    denominator: Literal["root", "plain"] = "root"
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    damping: Annotated[float, Ge(0)] = 0.0
    initial_scale: Annotated[float, Ge(0)] | None = None

    @property
    def hyper(self) -> tuple[str, ...]:
        """Names of the per-trial hyper-parameters it needs beside those of the problem."""
        return ("learning_rate", "kl_weight")

    @property
    def hyper_above(self) -> dict[str, float]:
        """Limit the weight of the divergence: without it q has no width."""
        return {"kl_weight": 0.0}

    def init(self, problem: Problem, noise: Noise) -> NoisyAdamState:
        """Start with f = 0."""
        mu = start(problem, noise["theta"], self.initial_scale)
        zeros = torch.zeros_like(mu)
        return NoisyAdamState(mu, zeros, zeros, torch.ones_like(mu), zeros[0])

    def step_noise(self, problem: Problem) -> Shapes:
        """Declare one sample's worth."""
        return {"theta": (problem.dim,)}

    def step(self, state: NoisyAdamState, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem) -> NoisyAdamState:
        """Draw, differentiate, and move the moments and the mean; formulas in the module docstring."""
        b1, b2 = self.betas
        share = hyper["kl_weight"] / batch.n
        gin = share * problem.prior_precision(hyper)
        theta = state.mu + (share / (state.f + gin)).sqrt() * noise["theta"]

        def mean(theta: Tensor) -> Tensor:
            return problem.log_likelihoods(theta, batch, hyper).mean()

        g: Tensor = torch.func.grad(mean)(theta)
        m = torch.lerp(g - gin * theta, state.m, b1)
        f = torch.lerp(g.square(), state.f, b2)
        updates = state.updates + 1
        r = f.sqrt() if self.denominator == "root" else f
        mu = state.mu + hyper["learning_rate"] / (1 - b1**updates) * m / (r + gin + self.damping)
        return NoisyAdamState(mu, m, f, share / (f + gin), updates)

    def posterior(self, state: NoisyAdamState) -> DiagonalGaussian:
        """Return q."""
        return DiagonalGaussian(state.mu, state.var)
