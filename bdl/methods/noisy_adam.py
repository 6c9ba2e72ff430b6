"""Noisy Adam: natural-gradient variational inference at the cost of Adam
(Zhang et al. 2018; Mata 2018).

q(theta) = N(mu, (lam / N) diag(1 / (f + gin))). With the weight lam of the divergence, the prior
precision alpha, the damping gex and gin = lam alpha / N, an update k = 1, 2, ... draws one theta
from q and has, with the mean gradient g of the minibatch's log-likelihoods there,

    v   = g - gin theta
    m  <- b1 m + (1 - b1) v
    f  <- b2 f + (1 - b2) g^2
    mu <- mu + learning_rate m / (1 - b1^k) / (f^1/2 + gin + gex)

with the root of f, as Mata implemented it; both print f itself. f starts at 0, where q is as wide
as the prior, and is not corrected for that. Mata's Table 2.1 never increments k.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge

from bdl.methods.base import Noise, Shapes, WeightedDivergence
from bdl.methods.optim import Decay, mean_gradient
from bdl.methods.vadam import MomentsMethod, MomentsState
from bdl.models.problem import Batch, Hyper, Problem


@dataclass(frozen=True)
class NoisyAdam(MomentsMethod, WeightedDivergence):
    """Settings of noisy Adam; the s of its state is f.

    Parameters
    ----------
    betas
        Decay rates b1 and b2 of the two moments.
    damping
        Extrinsic damping gex.
    """

    betas: tuple[Decay, Decay] = (0.9, 0.999)
    damping: Annotated[float, Ge(0)] = 0.0

    retired: ClassVar[Mapping[str, Any]] = {"denominator": "root"}

    def step_noise(self, problem: Problem) -> Shapes:
        return {"theta": (problem.dim,)}

    def step(
        self, state: MomentsState, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> MomentsState:
        b1, b2 = self.betas
        share = hyper["kl_weight"] / batch.n
        gin = share * problem.prior_precision(hyper)
        theta = state.mu + (share / (state.s + gin)).sqrt() * noise["theta"]
        g = -mean_gradient(theta, batch, hyper, problem)
        m = torch.lerp(g - gin * theta, state.m, b1)
        f = torch.lerp(g.square(), state.s, b2)
        updates = state.updates + 1
        mu = state.mu + hyper["learning_rate"] / (1 - b1**updates) * m / (
            f.sqrt() + gin + self.damping
        )
        return MomentsState(mu, m, f, share / (f + gin), updates)
