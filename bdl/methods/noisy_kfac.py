"""Noisy K-FAC: natural-gradient variational inference with Kronecker factors (Zhang et al. 2018; Mata 2018).

A dense layer with weights W, (out, in), whose last column is the bias if there is one, has inputs a with a 1 appended
for it, and e are an example's derivatives of log p(y | x, theta) by what the layer puts out. With minibatch means E,

    A  <- (1 - b) A + b E[a a^T]
    S  <- (1 - b) S + b E[e e^T]

and with damping g split by pi^2 = (tr A / dim A) / (tr S / dim S)

    A^g = A + pi g^(1/2) I,    S^g = S + g^(1/2) / pi I.

With the weight lam of the divergence, the prior precision alpha, gin = lam alpha / N and gam = gin + damping,

    q(W) = matrix normal with mean M and covariance (lam / N) (S^gin)^-1 (x) (A^gin)^-1
    V    = E[e a^T] - gin W
    M   <- M + learning_rate (S^gam)^-1 V (A^gam)^-1

An update draws W from q, differentiates, updates the statistics A and S every T1-th time, the inverses every T2-th
time, and moves M. The first update takes its factors from the first minibatch at M: until then there is no covariance
to draw from. This is the transpose of Mata's notation; Table 2.2 there drops the inverse on A.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, NamedTuple

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import MinibatchMethod, Noise, Shapes, start
from bdl.methods.clock import Clock
from bdl.models.base import LayeredModel, Layers
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import KroneckerGaussian
from bdl.posteriors.kronecker import from_blocks, to_blocks

Pairs = tuple[tuple[Tensor, Tensor], ...]
"""A matrix over inputs (in, in) and one over outputs (out, out) for each layer."""


class NoisyKfacState(NamedTuple):
    """The posterior, and what updates need."""

    q: KroneckerGaussian
    factors: Pairs
    """A and S."""
    inverses: Pairs
    """(A^gam)^-1 and (S^gam)^-1."""


@dataclass(frozen=True)
class NoisyKfac(MinibatchMethod):
    """Settings of noisy K-FAC.

    Parameters
    ----------
    statistics_every, inverses_every
        Updates from one update of the statistics, T1, and of the inverses, T2, to the next; T2 is a multiple of T1.
    statistics_weight
        Weight b of a minibatch in the statistics.
    damping
        Extrinsic damping, beyond that of the prior.
    initial_scale
        Standard deviation of the initial means, which are normal with mean 0; null for the model's own start.
    """

    statistics_every: Annotated[int, Ge(1)] = 10
    inverses_every: Annotated[int, Ge(1)] = 100
    statistics_weight: Annotated[float, Gt(0), Le(1)] = 0.05
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

    def check(self, problem: Problem) -> None:
        """Raise `InputError` if the model is not made of dense layers, or the settings do not go together."""
        _layered(problem)
        if self.inverses_every % self.statistics_every:
            raise InputError(
                f"inverses_every {self.inverses_every} is no multiple of statistics_every {self.statistics_every}: "
                "inverses are only updated together with statistics"
            )
        if problem.prior_precision({name: torch.ones(()) for name in problem.hyper}).ndim:
            raise InputError("noisy-kfac needs one prior precision for all parameters: leave out bias_precision")

    def init(self, problem: Problem, noise: Noise) -> NoisyKfacState:
        """Start with factors that are identities."""
        model, mu = _layered(problem), start(problem, noise["theta"], self.initial_scale)
        widths = model.widths(problem.d_in, problem.d_out)
        eyes = tuple((_eye(mu, n_in + model.bias), _eye(mu, n_out)) for n_in, n_out in pairwise(widths))
        q = KroneckerGaussian(mu, *_flat(eyes), mu.new_zeros((0, *widths)))
        return NoisyKfacState(q, eyes, eyes)

    def step_noise(self, problem: Problem) -> Shapes:
        """Ask for one sample's worth."""
        return {"theta": (problem.dim,)}

    def phase(self, clock: Clock) -> str:
        """Say what is updated beside the mean."""
        if clock.updates == 1:
            return "begin"
        if clock.updates % self.inverses_every == 0:
            return "invert"
        return "step" if clock.updates % self.statistics_every else "observe"

    def begin(
        self, state: NoisyKfacState, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> NoisyKfacState:
        """Take the factors from the first minibatch at the mean, then move it."""
        layers = _layers(state.q.loc, batches, hyper, problem)
        state = self._inverted(_observed(state, layers, 1.0), batches.n, hyper, problem)
        return _moved(state, state.q.loc, layers, batches.n, hyper, problem)

    def step(
        self, state: NoisyKfacState, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> NoisyKfacState:
        """Move the mean."""
        theta = state.q.sample(noise["theta"])
        return _moved(state, theta, _layers(theta, batches, hyper, problem), batches.n, hyper, problem)

    def observe(
        self, state: NoisyKfacState, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> NoisyKfacState:
        """Update the statistics, then the mean."""
        theta = state.q.sample(noise["theta"])
        layers = _layers(theta, batches, hyper, problem)
        return _moved(_observed(state, layers, self.statistics_weight), theta, layers, batches.n, hyper, problem)

    def invert(
        self, state: NoisyKfacState, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> NoisyKfacState:
        """Update the statistics, the inverses, then the mean."""
        theta = state.q.sample(noise["theta"])
        layers = _layers(theta, batches, hyper, problem)
        state = self._inverted(_observed(state, layers, self.statistics_weight), batches.n, hyper, problem)
        return _moved(state, theta, layers, batches.n, hyper, problem)

    def posterior(self, state: NoisyKfacState) -> KroneckerGaussian:
        """Give q."""
        return state.q

    def _inverted(self, state: NoisyKfacState, n: Tensor, hyper: Hyper, problem: Problem) -> NoisyKfacState:
        """Compute roots for drawing and inverses for moving."""
        share = hyper["kl_weight"] / n
        gin = share * problem.prior_precision(hyper)
        roots = tuple((_root(A), _root(S)) for A, S in (damped(*pair, gin) for pair in state.factors))
        solving = roots
        if self.damping:
            pairs = (damped(*pair, gin + self.damping) for pair in state.factors)
            solving = tuple((_root(A), _root(S)) for A, S in pairs)
        inner, outer = _flat(roots)
        q = state.q._replace(inner=inner, outer=share.sqrt() * outer)
        return NoisyKfacState(q, state.factors, tuple((A @ A.mT, S @ S.mT) for A, S in solving))


def damped(A: Tensor, S: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Give A^g and S^g; a factor that vanishes, as where all units of a layer are dead, counts as tiny.

    Parameters
    ----------
    A, S
        Factors (in, in) and (out, out).
    g
        Damping, a scalar.
    """
    size_A, size_S = (F.diagonal().mean().clamp(min=1e-20) for F in (A, S))
    pi = (size_A / size_S).sqrt()
    return A + pi * g.sqrt() * _eye(A, len(A)), S + g.sqrt() / pi * _eye(S, len(S))


def _observed(state: NoisyKfacState, layers: Layers, b: float) -> NoisyKfacState:
    """Take a minibatch into the statistics with weight b."""
    means = [(a.mT @ a / len(a), e.mT @ e / len(e)) for a, e in layers]
    factors = tuple(
        (torch.lerp(A, new_A, b), torch.lerp(S, new_S, b))
        for (A, S), (new_A, new_S) in zip(state.factors, means, strict=True)
    )
    return state._replace(factors=factors)


def _moved(
    state: NoisyKfacState, theta: Tensor, layers: Layers, n: Tensor, hyper: Hyper, problem: Problem
) -> NoisyKfacState:
    """Move the mean by the gradient at theta."""
    gin, units = hyper["kl_weight"] / n * problem.prior_precision(hyper), state.q.units
    steps = [
        S @ ((e.mT @ a / len(a) - gin * W) @ A)
        for W, (a, e), (A, S) in zip(to_blocks(theta, units), layers, state.inverses, strict=True)
    ]
    mu = state.q.loc + hyper["learning_rate"] * from_blocks(steps, units)
    return state._replace(q=state.q._replace(loc=mu))


def _layers(theta: Tensor, batches: Batch, hyper: Hyper, problem: Problem) -> Layers:
    """Give each layer's inputs, with a last column of ones for a bias, and errors."""
    layers = problem.layers(theta, batches._replace(x=batches.x[0], y=batches.y[0]), hyper)
    if not _layered(problem).bias:
        return layers
    return tuple((torch.cat([a, torch.ones_like(a[:, :1])], 1), e) for a, e in layers)


def _root(precision: Tensor) -> Tensor:
    """Give the lower triangular L with L L^T = precision^-1: of U U^T = precision, U upper, it is U^-T."""
    U = torch.linalg.cholesky_ex(precision.flip(0, 1)).L.flip(0, 1)
    L: Tensor = torch.linalg.solve_triangular(U.mT, _eye(U, len(U)), upper=False)
    return L


def _flat(pairs: Pairs) -> tuple[Tensor, Tensor]:
    """Put the first matrices of all layers end to end, and the second ones."""
    return torch.cat([A.flatten() for A, _ in pairs]), torch.cat([S.flatten() for _, S in pairs])


def _eye(like: Tensor, size: int) -> Tensor:
    return torch.eye(size, dtype=like.dtype, device=like.device)


def _layered(problem: Problem) -> LayeredModel:
    model = problem.model
    if not isinstance(model, LayeredModel):
        raise InputError(f"noisy-kfac needs a model of dense layers, not {type(model).__name__}; use linear or mlp")
    return model
