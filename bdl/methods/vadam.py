"""Vadam, Vprop and VOGN: natural-gradient variational inference by perturbed weights
(Khan et al. 2017, 2018).

q(theta) = N(mu, diag(1 / (c s + lambda))) with the prior precision lambda. An update t = 1, 2, ...
draws S samples from q and has, with g_si minus the gradient of the log-likelihood of example i of
M at sample s,

    g   = (N / c) mean_si g_si
    h   = mean_s ((N / c) mean_i g_si)^2, or mean_si g_si^2 for the curvature of single examples
    m  <- b1 m + (1 - b1) (g + lambda mu / c)
    s  <- b2 s + (1 - b2) h
    mu <- mu - learning_rate m' / (r(s') + lambda / c)

where r is the root or nothing, and m' = m / (1 - b1^t), s' = s / (1 - b2^t) if the bias is
corrected; q has s itself. c is N, but 1 where gradients are those of all data ("total").

========== ========= ======== ================ ==========
Method     curvature r        momentum b1      corrected
========== ========= ======== ================ ==========
vadam      mean      root     0.9              yes
vprop      total     nothing  0                no
vprop-root mean      root     0                no
vogn       examples  nothing  0                no
========== ========= ======== ================ ==========

The square of a mean gradient underestimates the curvature by a factor of about M; vogn does not.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from bdl.methods.base import Noise, Shapes, StartedMethod
from bdl.methods.optim import Decay, mean_gradient, sample_gradients
from bdl.models.gradients import example_gradients
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import DiagonalGaussian


class MomentsState(NamedTuple):
    """Mean, running moments, and the variances of the posterior."""

    mu: Tensor  # Mean, (D,)
    m: Tensor  # Running mean of gradients, (D,)
    s: Tensor  # Running mean of curvatures, (D,)
    var: Tensor  # Variances of q after the last update, (D,)
    updates: Tensor  # Updates made, a scalar


class MomentsMethod(StartedMethod):
    """A mean-field method with the state of Adam: means of gradients and of their squares."""

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
        ``"mean"`` squares mean gradients of a minibatch, ``"total"`` those of all data,
        ``"examples"`` those of single examples.
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

    def step(
        self, state: MomentsState, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> MomentsState:
        b1, b2 = self.betas
        prior = problem.prior_precision(hyper)
        c = torch.ones_like(batch.n) if self.curvature == "total" else batch.n
        # here, since `init` sees no prior precision
        s = torch.where(
            state.updates == 0, (self.initial_precision - prior).clamp(min=0) / c, state.s
        )

        theta = state.mu + (c * s + prior).rsqrt() * noise["theta"]
        g, h = self._gradients(theta, batch, hyper, problem)
        m = torch.lerp(g + prior / c * state.mu, state.m, b1)
        s = torch.lerp(h, s, b2)
        updates = state.updates + 1
        force, curvature = m, s
        if self.bias_correction:
            force, curvature = m / (1 - b1**updates), s / (1 - b2**updates)
        r = curvature.sqrt() if self.denominator == "root" else curvature
        mu = state.mu - hyper["learning_rate"] * force / (r + prior / c)
        return MomentsState(mu, m, s, 1 / (c * s + prior), updates)

    def _gradients(
        self, theta: Tensor, batch: Batch, hyper: Hyper, problem: Problem
    ) -> tuple[Tensor, Tensor]:
        """Return g and h, (D,), of samples (S, D)."""
        if self.curvature == "examples":
            examples = example_gradients(problem, theta, batch, hyper)
            count = self.samples * len(batch.x)
            return -examples.total() / count, examples.squares() / count
        if self.curvature == "total":
            G = sample_gradients(theta, batch, hyper, problem)
        else:
            G = torch.func.vmap(lambda sample: mean_gradient(sample, batch, hyper, problem))(theta)
        return G.mean(0), G.square().mean(0)


@dataclass(frozen=True)
class VpropRoot(Vadam):
    """Vprop with mean gradients and a root: Vadam without momentum and without corrections."""

    betas: tuple[Decay, Decay] = (0.0, 0.999)
    bias_correction: bool = False


@dataclass(frozen=True)
class Vprop(VpropRoot):
    """Vprop as published first: gradients of all data, and no root.

    Squares of total gradients are far above the curvature until the mean is reached, so that steps
    are too short to get there: on the conjugate regressions of ``posterior-methods-plane`` the
    mean is still 37 to 99 % off after 5,000 updates, and the variances are too small.
    """

    curvature: Literal["mean", "total", "examples"] = "total"
    denominator: Literal["root", "plain"] = "plain"


@dataclass(frozen=True)
class Vogn(VpropRoot):
    """VOGN: squared gradients of single examples, and no root."""

    curvature: Literal["mean", "total", "examples"] = "examples"
    denominator: Literal["root", "plain"] = "plain"
