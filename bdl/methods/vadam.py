"""Vadam, Vprop and VOGN: natural-gradient variational inference by perturbed weights (Khan et al. 2017, 2018).

q(theta) = N(mu, diag(1 / (c s + lambda))) with the prior precision lambda. An update t = 1, 2, ... draws S samples from
q and has, with g_si minus the gradient of the log-likelihood of example i of M at sample s,

    g   = (N / c) mean_si g_si
    h   = mean_s ((N / c) mean_i g_si)^2, or mean_si g_si^2 for the curvature of single examples
    m  <- b1 m + (1 - b1) (g + lambda mu / c)
    s  <- b2 s + (1 - b2) h
    mu <- mu - learning_rate m' / (r(s') + lambda / c)

where r is the root or nothing, and m' = m / (1 - b1^t), s' = s / (1 - b2^t) if the bias is corrected; q has s itself.
c is N, but 1 where gradients are those of all data ("total").

========== ========= ======== ================ ==========
Method     curvature r        momentum b1      corrected
========== ========= ======== ================ ==========
vadam      mean      root     0.9              yes
vprop      total     nothing  0                no
vprop-root mean      root     0                no
vogn       examples  nothing  0                no
========== ========= ======== ================ ==========

The square of a mean gradient underestimates the curvature by a factor of about M; vogn does not.

`NoisyAdam` and `Ivon` have the same state, and other updates.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from bdl.methods.base import Noise, Shapes, StartedMethod, WeightedDivergence
from bdl.methods.optim import Decay, mean_gradient, sample_gradients
from bdl.models.gradients import example_gradients
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import DiagonalGaussian


class MomentsState(NamedTuple):
    """Mean, running moments, and what the posterior needs of an update."""

    mu: Tensor  # Mean, (D,)
    m: Tensor  # Running mean of gradients, (D,)
    s: Tensor  # Running mean of curvatures, (D,)
    var: Tensor  # Variances of q after the last update, (D,)
    updates: Tensor  # Updates made, a scalar


class MomentsMethod(StartedMethod):
    """A mean-field method whose state is that of Adam: running means of gradients and of squared gradients."""

    @property
    def _initial_variance(self) -> float:
        """Variance that q shows before the first update, which knows the prior."""
        return 1.0

    def init(self, problem: Problem, noise: Noise) -> MomentsState:
        mu = self.start(problem, noise["theta"])
        zeros = torch.zeros_like(mu)
        return MomentsState(mu, zeros, zeros, zeros + self._initial_variance, zeros[0])

    def posterior(self, state: MomentsState) -> DiagonalGaussian:
        return DiagonalGaussian(state.mu, state.var)


@dataclass(frozen=True)
class Vadam(MomentsMethod):
    """Settings of the family; the module docstring has the defaults of its members.

    Parameters
    ----------
    curvature
        ``"mean"`` squares mean gradients of a minibatch, ``"total"`` those of all data, ``"examples"`` those of single
        examples.
    denominator
        ``"root"`` divides by the root of s, ``"plain"`` by s.
    betas
        Decay rates b1 and b2 of the two moments.
    bias_correction
        Whether moments are corrected for their start.
    samples
        Samples S from q in an update; each sees the whole minibatch.
    initial_precision
        The precision starts at this, or at that of the prior where that is more.
    """

    curvature: Literal["mean", "total", "examples"] = "mean"
    denominator: Literal["root", "plain"] = "root"
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    bias_correction: bool = True
    samples: Annotated[int, Ge(1)] = 1
    initial_precision: Annotated[float, Gt(0)] = 1.0

    @property
    def _initial_variance(self) -> float:
        return 1 / self.initial_precision

    def step_noise(self, problem: Problem) -> Shapes:
        return {"theta": (self.samples, problem.dim)}

    def step(self, state: MomentsState, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem) -> MomentsState:
        b1, b2 = self.betas
        prior = problem.prior_precision(hyper)
        c = torch.ones_like(batch.n) if self.curvature == "total" else batch.n
        s = torch.where(state.updates == 0, (self.initial_precision - prior).clamp(min=0) / c, state.s)

        g, h = self._gradients(state.mu + (c * s + prior).rsqrt() * noise["theta"], batch, hyper, problem)
        m, s, updates = torch.lerp(g + prior / c * state.mu, state.m, b1), torch.lerp(h, s, b2), state.updates + 1
        force, curvature = m, s
        if self.bias_correction:
            force, curvature = m / (1 - b1**updates), s / (1 - b2**updates)
        r = curvature.sqrt() if self.denominator == "root" else curvature
        mu = state.mu - hyper["learning_rate"] * force / (r + prior / c)
        return MomentsState(mu, m, s, 1 / (c * s + prior), updates)

    def _gradients(self, theta: Tensor, batch: Batch, hyper: Hyper, problem: Problem) -> tuple[Tensor, Tensor]:
        """Return g and h, (D,), of samples (S, D)."""
        if self.curvature == "examples":
            G, count = example_gradients(problem, theta, batch, hyper), self.samples * len(batch.x)
            return -G.total() / count, G.squares() / count
        if self.curvature == "total":
            each = sample_gradients(theta, batch, hyper, problem)
        else:
            each = torch.func.vmap(lambda one: mean_gradient(one, batch, hyper, problem))(theta)
        return each.mean(0), each.square().mean(0)


@dataclass(frozen=True)
class VpropRoot(Vadam):
    """Vprop with mean gradients and a root: Vadam without momentum and without corrections."""

    betas: tuple[Decay, Decay] = (0.0, 0.999)
    bias_correction: bool = False


@dataclass(frozen=True)
class Vprop(VpropRoot):
    """Vprop as published first: gradients of all data, and no root.

    Squares of total gradients are far above the curvature until the mean is reached, so that steps are too short to get
    there: on the conjugate regressions of ``posterior-methods-plane`` the mean is still 37 to 99 % off after 5,000
    updates, and the variances are too small.
    """

    curvature: Literal["mean", "total", "examples"] = "total"
    denominator: Literal["root", "plain"] = "plain"


@dataclass(frozen=True)
class Vogn(VpropRoot):
    """VOGN: squared gradients of single examples, and no root."""

    curvature: Literal["mean", "total", "examples"] = "examples"
    denominator: Literal["root", "plain"] = "plain"


@dataclass(frozen=True)
class NoisyAdam(MomentsMethod, WeightedDivergence):
    """Noisy Adam: natural-gradient inference that costs what Adam costs (Zhang et al. 2018; Mata 2018).

    q(theta) = N(mu, (lam / N) diag(1 / (f + gin))). With the weight lam of the divergence, the prior precision alpha,
    the damping gex and gin = lam alpha / N, an update k = 1, 2, ... draws one theta from q and has, with the mean
    gradient g of the minibatch's log-likelihoods there,

        v   = g - gin theta
        m  <- b1 m + (1 - b1) v
        f  <- b2 f + (1 - b2) g^2
        mu <- mu + learning_rate m / (1 - b1^k) / (f^1/2 + gin + gex)

    with the root of f, as Mata implemented it; both print f itself. f, which is the s of its state, starts at 0, where
    q is as wide as the prior, and is not corrected for that. Mata's Table 2.1 never increments k.

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

    def step(self, state: MomentsState, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem) -> MomentsState:
        b1, b2 = self.betas
        share = hyper["kl_weight"] / batch.n
        gin = share * problem.prior_precision(hyper)
        theta = state.mu + (share / (state.s + gin)).sqrt() * noise["theta"]
        g = -mean_gradient(theta, batch, hyper, problem)
        m = torch.lerp(g - gin * theta, state.m, b1)
        f = torch.lerp(g.square(), state.s, b2)
        updates = state.updates + 1
        mu = state.mu + hyper["learning_rate"] / (1 - b1**updates) * m / (f.sqrt() + gin + self.damping)
        return MomentsState(mu, m, f, share / (f + gin), updates)


@dataclass(frozen=True)
class Ivon(MomentsMethod):
    """IVON: a variational Newton method at the cost of Adam (Shen et al. 2024, Algorithm 1).

    q(theta) = N(mu, diag(1 / (N (h + delta)))) with delta = alpha / N for the prior precision alpha. With l the mean of
    minus the log-likelihoods of a minibatch, an update t = 1, 2, ... draws samples theta_s from q, of deviations sigma,
    and has, g and h being the m and s of its state,

        g_s   = grad l(theta_s)
        hhat  = mean_s g_s o (theta_s - mu) / sigma^2
        g    <- b1 g + (1 - b1) mean_s g_s
        h    <- h + (1 - b2) (hhat - h) + (1/2) (1 - b2)^2 (hhat - h)^2 / (h + delta)
        mu   <- mu - learning_rate (g / (1 - b1^t) + delta mu) / (h + delta)

    By Stein's identity hhat estimates the diagonal of E_q[grad^2 l] from gradients alone. It may be negative; h + delta
    stays positive all the same, since with u = (1 - b2) (hhat - h) / (h + delta) an update multiplies it by
    1 + u + u^2/2, which is at least 1/2. The last term is the correction of Lin, Schmidt and Khan (2020).

    Where both stand still, E_q[grad l] + delta mu = 0 and h = E_q[diag grad^2 l]: the conditions of the best mean-field
    Gaussian. Of a linear model with Gaussian noise it has the exact mean, and the reciprocal of the precision's
    diagonal for variances. While hhat varies, the correction keeps h + delta higher than that, to first order by the
    factor 1 + (1 - b2) Var(hhat) / (2 (h + delta)^2).

    Parameters
    ----------
    betas
        Decay rates b1 and b2 of gradients and curvatures. The paper has a b2 of 0.99995 for 10^5 updates and more.
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

    def step(self, state: MomentsState, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem) -> MomentsState:
        (b1, b2), z = self.betas, noise["theta"]
        delta = problem.prior_precision(hyper) / batch.n
        h = torch.where(state.updates == 0, self.initial_curvature, state.s)
        sigma = (batch.n * (h + delta)).rsqrt()
        G = torch.func.vmap(lambda theta: mean_gradient(theta, batch, hyper, problem))(state.mu + sigma * z)
        change = (1 - b2) * ((G * z).mean(0) / sigma - h)
        g = torch.lerp(G.mean(0), state.m, b1)
        h, updates = h + change + 0.5 * change.square() / (h + delta), state.updates + 1
        mu = state.mu - hyper["learning_rate"] * (g / (1 - b1**updates) + delta * state.mu) / (h + delta)
        return MomentsState(mu, g, h, 1 / (batch.n * (h + delta)), updates)
