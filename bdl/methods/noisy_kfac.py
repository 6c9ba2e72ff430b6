"""Noisy K-FAC: natural-gradient variational inference with Kronecker factors
(Zhang et al. 2018; Mata 2018).

A dense layer with weights W, (out, in), whose last column is the bias if there is one, has inputs
a with a 1 appended for it, and e are an example's derivatives of log p(y | x, theta) by the
layer's outputs. With minibatch means E,

    A  <- (1 - b) A + b E[a a^T]
    S  <- (1 - b) S + b E[e e^T]

and with damping g split by pi^2 = (tr A / dim A) / (tr S / dim S)

    A^g = A + pi g^(1/2) I,    S^g = S + g^(1/2) / pi I.

With the weight lam of the divergence, the prior precision alpha, gin = lam alpha / N and gam = gin
+ damping,

    q(W) = matrix normal with mean M and covariance (lam / N) (S^gin)^-1 (x) (A^gin)^-1
    V    = E[e a^T] - gin W
    M   <- M + learning_rate (S^gam)^-1 V (A^gam)^-1

An update draws W from q, differentiates, updates the statistics A and S every T1-th time, the
inverses every T2-th time, and moves M. The first update takes its factors from the first minibatch
at M: until then there is no covariance to draw from. This is the transpose of Mata's notation;
Table 2.2 there drops the inverse on A.

With eigenvectors U of A and V of S, both kinds of damping are diagonal in the coordinates V^T W U,
in which the mean is kept: draws and steps are products of single numbers there, and only the
inputs of a minibatch need turning, to U^T a.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, NamedTuple

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import Noise, Shapes, WeightedDivergence
from bdl.methods.counters import StepCounters
from bdl.models.networks import with_ones
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import KroneckerGaussian
from bdl.posteriors.kronecker import from_blocks, to_blocks

Pairs = tuple[tuple[Tensor, Tensor], ...]
"""A matrix over inputs (in, in) and one over outputs (out, out) for each layer."""
Blocks = Sequence[Tensor]
"""A matrix (out, in) for each layer."""


class Axes(NamedTuple):
    """Eigenvectors of a layer's factors, and the scales of draws and steps along them."""

    U: Tensor  # Of A, as columns, (in, in)
    V: Tensor  # Of S, (out, out)
    inner: Tensor  # Eigenvalues of (A^gin)^(-1/2), (in,)
    outer: Tensor  # Of (lam / N)^(1/2) (S^gin)^(-1/2), (out,)
    inner_step: Tensor  # Of (A^gam)^-1, (in,)
    outer_step: Tensor  # Of (S^gam)^-1, (out,)


def find_axes(A: Tensor, S: Tensor, gin: Tensor, gam: Tensor, share: Tensor) -> Axes:
    """Find the eigenvectors of a layer's factors, and the damped scales along them."""
    (a, U), (s, V) = _eigen(A), _eigen(S)
    a_in, s_in = split_damping(A, S, gin)
    a_gam, s_gam = split_damping(A, S, gam)
    return Axes(
        U, V, (a + a_in).rsqrt(), (share / (s + s_in)).sqrt(), 1 / (a + a_gam), 1 / (s + s_gam)
    )


def split_damping(A: Tensor, S: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Split the damping g into what it adds to the eigenvalues of A and of S.

    A factor that vanishes, as where all units of a layer are dead, counts as tiny.
    """
    size_A, size_S = (F.diagonal().mean().clamp(min=1e-20) for F in (A, S))
    pi = (size_A / size_S).sqrt()
    return pi * g.sqrt(), g.sqrt() / pi


def change_axes(block: Tensor, old: Axes, new: Axes) -> Tensor:
    """Change the coordinates from old eigenvectors to new ones."""
    return new.V.mT @ (old.V @ block @ old.U.mT) @ new.U


def to_triangular(root: Tensor) -> Tensor:
    """Return the lower triangular L with a positive diagonal and L L^T = root root^T."""
    # root^T = Q R gives root root^T = R^T R, without forming the product, which would lose half of
    # the digits; QR leaves the signs of the diagonal open
    L: Tensor = torch.linalg.qr(root.mT, mode="r").R.mT
    return L * L.diagonal().sign()


def eye(like: Tensor, size: int) -> Tensor:
    """Return the identity, of the type and on the device of `like`."""
    return torch.eye(size, dtype=like.dtype, device=like.device)


class State(NamedTuple):
    """The posterior, and the factors and eigenvectors that updates need."""

    means: tuple[Tensor, ...]  # V^T M U of each layer, (out, in)
    factors: Pairs  # A and S
    axes: tuple[Axes, ...]  # Those of the last inverses
    widths: Tensor  # Inputs, units and outputs, as `KroneckerGaussian` has them


class _LayerPass(NamedTuple):
    """Inputs and errors of a layer for a minibatch."""

    a: Tensor  # Inputs, with a last column of ones for a bias, (M, in)
    aU: Tensor  # Inputs along the eigenvectors
    e: Tensor  # Errors, (M, out)


@dataclass(frozen=True)
class NoisyKfac(WeightedDivergence):
    """Settings of noisy K-FAC.

    Parameters
    ----------
    statistics_every, inverses_every
        Updates from one update of the statistics, T1, and of the inverses, T2, to the next; T2 is
        a multiple of T1.
    statistics_weight
        Weight b of a minibatch in the statistics.
    damping
        Extrinsic damping, beyond that of the prior; None makes it a hyper-parameter, which can be
        searched.
    """

    statistics_every: Annotated[int, Ge(1)] = 10
    inverses_every: Annotated[int, Ge(1)] = 100
    statistics_weight: Annotated[float, Gt(0), Le(1)] = 0.05
    damping: Annotated[float, Ge(0)] | None = 0.0

    @property
    def hyper(self) -> tuple[str, ...]:
        return (*super().hyper, "damping") if self.damping is None else super().hyper

    def check(self, problem: Problem) -> None:
        _ = problem.layout.layered
        if self.inverses_every % self.statistics_every:
            raise InputError(
                f"inverses_every {self.inverses_every} is no multiple of "
                f"statistics_every {self.statistics_every}: "
                "inverses are only updated together with statistics"
            )
        if problem.prior_precision({name: torch.ones(()) for name in problem.hyper}).ndim:
            raise InputError(
                "noisy-kfac needs one prior precision for all parameters: leave out bias_precision"
            )

    def init(self, problem: Problem, noise: Noise) -> State:
        mu = self.start(problem, noise["theta"])
        identities = tuple((eye(mu, n_in), eye(mu, n_out)) for n_out, n_in in _sizes(problem))
        axes = tuple(
            Axes(A, S, *(torch.ones_like(F[0]) for F in (A, S, A, S))) for A, S in identities
        )
        widths = problem.layout.widths
        return State(tuple(to_blocks(mu, widths)), identities, axes, mu.new_zeros((0, *widths)))

    def step_noise(self, problem: Problem) -> Shapes:
        return {f"layer_{index}": shape for index, shape in enumerate(_sizes(problem))}

    def phase(self, counters: StepCounters) -> str:
        if counters.updates == 1:
            return "begin"
        if counters.updates % self.inverses_every == 0:
            return "invert"
        return "step" if counters.updates % self.statistics_every else "observe"

    def begin(
        self, state: State, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> State:
        """Take the factors from the first minibatch at the mean, then move the mean."""
        return self._update_everything(state, state.means, 1.0, batches, hyper, problem)

    def step(
        self, state: State, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> State:
        W = _draw_layers(state, noise)
        passes = _run_layers(state, W, batches, hyper, problem)
        return _move_means(state, W, passes, batches.n, hyper, problem)

    def observe(
        self, state: State, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> State:
        """Update the statistics, then the mean."""
        W = _draw_layers(state, noise)
        passes = _run_layers(state, W, batches, hyper, problem)
        state = _update_statistics(state, passes, self.statistics_weight)
        return _move_means(state, W, passes, batches.n, hyper, problem)

    def invert(
        self, state: State, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> State:
        """Update the statistics, the inverses, then the mean."""
        return self._update_everything(
            state, _draw_layers(state, noise), self.statistics_weight, batches, hyper, problem
        )

    def posterior(self, state: State) -> KroneckerGaussian:
        means = [V @ M @ U.mT for M, (U, V, *_) in zip(state.means, state.axes, strict=True)]
        inner = torch.cat([to_triangular(U * root).flatten() for U, _, root, *_ in state.axes])
        outer = torch.cat([to_triangular(V * root).flatten() for _, V, _, root, *_ in state.axes])
        return KroneckerGaussian(
            from_blocks(means, state.widths.shape[1:]), inner, outer, state.widths
        )

    def _update_everything(
        self, state: State, W: Blocks, b: float, batches: Batch, hyper: Hyper, problem: Problem
    ) -> State:
        """Update everything, with weight b of the minibatch in the statistics."""
        passes = _run_layers(state, W, batches, hyper, problem)
        state = _update_statistics(state, passes, b)
        share = hyper["kl_weight"] / batches.n
        gin = share * problem.prior_precision(hyper)
        damping = hyper["damping"] if self.damping is None else self.damping
        axes = tuple(find_axes(A, S, gin, gin + damping, share) for A, S in state.factors)
        # drawn along the old eigenvectors; what follows works along the new ones
        W, means = (
            [
                change_axes(M, old, new)
                for M, old, new in zip(blocks, state.axes, axes, strict=True)
            ]
            for blocks in (W, state.means)
        )
        passes = [
            layer._replace(aU=layer.a @ layer_axes.U)
            for layer, layer_axes in zip(passes, axes, strict=True)
        ]
        state = state._replace(means=tuple(means), axes=axes)
        return _move_means(state, W, passes, batches.n, hyper, problem)


def _draw_layers(state: State, noise: Noise) -> list[Tensor]:
    """Draw each layer, along the eigenvectors."""
    layers = zip(state.means, state.axes, noise.values(), strict=True)
    return [M + axes.outer.unsqueeze(-1) * Z * axes.inner for M, axes, Z in layers]


def _run_layers(
    state: State, W: Blocks, batches: Batch, hyper: Hyper, problem: Problem
) -> list[_LayerPass]:
    """Run a minibatch through layers whose weights are along the eigenvectors.

    The first layer keeps weights and inputs along the eigenvectors of the inputs, its bias among
    the weights: its inputs are needed so anyway. The weights of the others are turned back.
    """
    bias = problem.layout.layered.bias
    first_axes, *later_axes = state.axes
    a = with_ones(batches.x, bias)
    aU, weights = a @ first_axes.U, first_axes.V @ W[0]
    # the bias is a weight of a last input, so that the bias of the dense layer is 0
    blocks = [torch.cat([weights, torch.zeros_like(weights[:, : int(bias)])], 1)]
    blocks += [axes.V @ block @ axes.U.mT for block, axes in zip(W[1:], later_axes, strict=True)]
    theta = from_blocks(blocks, (a.shape[1], *problem.layout.widths[1:]))
    (_, e), *later_layers = problem.layers(theta, batches._replace(x=aU), hyper)
    passes = [_LayerPass(a, aU, e)]
    for axes, (inputs, errors) in zip(later_axes, later_layers, strict=True):
        layer_inputs = with_ones(inputs, bias)
        passes.append(_LayerPass(layer_inputs, layer_inputs @ axes.U, errors))
    return passes


def _update_statistics(state: State, passes: Sequence[_LayerPass], b: float) -> State:
    """Take a minibatch into the statistics with weight b."""
    factors = tuple(
        (torch.lerp(A, a.mT @ a / len(a), b), torch.lerp(S, e.mT @ e / len(e), b))
        for (A, S), (a, _, e) in zip(state.factors, passes, strict=True)
    )
    return state._replace(factors=factors)


def _move_means(
    state: State,
    W: Blocks,
    passes: Sequence[_LayerPass],
    n: Tensor,
    hyper: Hyper,
    problem: Problem,
) -> State:
    """Move the mean by the gradient at W."""
    gin, rate = hyper["kl_weight"] / n * problem.prior_precision(hyper), hyper["learning_rate"]
    means = tuple(
        M
        + (rate * axes.outer_step).unsqueeze(-1)
        * ((e @ axes.V).mT @ aU / len(e) - gin * block)
        * axes.inner_step
        for M, axes, block, (_, aU, e) in zip(state.means, state.axes, W, passes, strict=True)
    )
    return state._replace(means=means)


def _sizes(problem: Problem) -> list[tuple[int, int]]:
    """Count outputs and inputs of each layer, a bias as an input."""
    return [
        (n_out, n_in + problem.layout.layered.bias)
        for n_in, n_out in pairwise(problem.layout.widths)
    ]


def _eigen(factor: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues, at least 0 in spite of rounding, and eigenvectors.

    NaN for a matrix that is not finite.

    In float64: with inputs that are always 0, as pixels at a border are, LAPACK's float32 gives
    NaN at times, or fails.
    """
    finite = factor.isfinite().all()
    values, vectors = torch.linalg.eigh(
        torch.where(finite, factor, eye(factor, len(factor))).double()
    )
    values, vectors = values.clamp(min=0).to(factor), vectors.to(factor)
    return torch.where(finite, values, torch.nan), torch.where(finite, vectors, torch.nan)
