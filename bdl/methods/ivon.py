"""IVON: a variational Newton method at the cost of Adam (Shen et al. 2024, Algorithm 1).

q(theta) = N(mu, diag(1 / (N (h + delta)))) with delta = alpha / N for the prior precision alpha.
With l the mean of minus the log-likelihoods of a minibatch, an update t = 1, 2, ... draws samples
theta_s from q, of deviations sigma, and has

    g_s   = grad l(theta_s)
    hhat  = mean_s g_s o (theta_s - mu) / sigma^2
    g    <- b1 g + (1 - b1) mean_s g_s
    h    <- h + (1 - b2) (hhat - h) + (1/2) (1 - b2)^2 (hhat - h)^2 / (h + delta)
    mu   <- mu - learning_rate (g / (1 - b1^t) + delta mu) / (h + delta)

By Stein's identity hhat estimates the diagonal of E_q[grad^2 l] from gradients alone. It may be
negative; h + delta stays positive all the same, since with u = (1 - b2) (hhat - h) / (h + delta)
an update multiplies it by 1 + u + u^2/2, which is at least 1/2. The last term is the correction of
Lin, Schmidt and Khan (2020).

Where both stand still, E_q[grad l] + delta mu = 0 and h = E_q[diag grad^2 l]: the conditions of
the best mean-field Gaussian. Of a linear model with Gaussian noise it has the exact mean, and the
reciprocal of the precision's diagonal for variances. While hhat varies, the correction keeps h +
delta higher than that, to first order by the factor 1 + (1 - b2) Var(hhat) / (2 (h + delta)^2).
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Gt

from bdl.methods.base import Noise, Shapes
from bdl.methods.optim import Decay, mean_gradient
from bdl.methods.vadam import MomentsMethod, MomentsState
from bdl.models.problem import Batch, Hyper, Problem


@dataclass(frozen=True)
class Ivon(MomentsMethod):
    """Settings of IVON; the m and s of its state are g and h.

    Parameters
    ----------
    betas
        Decay rates b1 and b2 of gradients and curvatures. The paper has a b2 of 0.99995 for 10^5
        updates and more.
    samples
        Samples S from q in an update; each sees the whole minibatch.
    initial_curvature
        Start of h, in the unit of the mean log-likelihood.
    """

    betas: tuple[Decay, Decay] = (0.9, 0.999)
    samples: Annotated[int, Ge(1)] = 1
    initial_curvature: Annotated[float, Gt(0)] = 1.0

    def step_noise(self, problem: Problem) -> Shapes:
        return {"theta": (self.samples, problem.dim)}

    def step(
        self, state: MomentsState, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> MomentsState:
        (b1, b2), z = self.betas, noise["theta"]
        delta = problem.prior_precision(hyper) / batch.n
        h = torch.where(state.updates == 0, self.initial_curvature, state.s)
        sigma = (batch.n * (h + delta)).rsqrt()
        G = torch.func.vmap(lambda theta: mean_gradient(theta, batch, hyper, problem))(
            state.mu + sigma * z
        )
        change = (1 - b2) * ((G * z).mean(0) / sigma - h)
        g = torch.lerp(G.mean(0), state.m, b1)
        h, updates = h + change + 0.5 * change.square() / (h + delta), state.updates + 1
        mu = state.mu - hyper["learning_rate"] * (g / (1 - b1**updates) + delta * state.mu) / (
            h + delta
        )
        return MomentsState(mu, g, h, 1 / (batch.n * (h + delta)), updates)
