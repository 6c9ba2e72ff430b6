"""SLANG: natural-gradient variational inference with a low-rank plus diagonal precision
(Mishkin et al. 2018, Algorithm 1).

q(theta) = N(mu, P^-1), P = U U^T + diag(d). With g_i the gradients of the n = M S log-likelihoods
of a minibatch of M examples under S samples from q, G their matrix, N the size of the training set
and lambda the prior precision,

    A     = (1 - beta) U U^T + beta (N / n) G^T G
    U    <- the best approximation of A of rank L, U U^T
    d    <- (1 - beta) d + diag(A) - diag(U U^T) + beta lambda
    gbar <- m gbar - (1 - m) (N / n) sum_i g_i
    mu   <- mu - alpha P^-1 (gbar / (1 - m^t) + lambda mu)

so that the diagonal of P is that of the full natural-gradient update with the empirical Fisher
matrix. The print lacks several factors; docs/errata.md lists them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import Noise, check_rank
from bdl.methods.natural_gradient import NaturalGradientMethod
from bdl.models.gradients import ExampleGradients, example_gradients
from bdl.models.problem import Batch, Hyper, Problem
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
        The precision starts as this multiple of the identity; null makes it a hyper-parameter,
        which may be searched.
    doubled_mean
        True does as the published code for networks does: it evaluates the model at 2 mu + e,
        where e is noise of precision P (docs/errata.md). In terms of m = 2 mu, the mean of what it
        trains, that is twice the learning rate and half the prior precision in the update of the
        mean, and twice the initial scale.
    """

    initial_scale: Annotated[float, Ge(0)] | None = 0.1
    rank: Annotated[int, Ge(1)] = 1
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    initial_precision: Annotated[float, Gt(0)] | None = 1.0
    doubled_mean: bool = False

    hyper_above: ClassVar[Mapping[str, float]] = {"initial_precision": 0.0}

    @property
    def hyper(self) -> tuple[str, ...]:
        return (
            ("learning_rate",)
            if self.initial_precision is not None
            else ("learning_rate", "initial_precision")
        )

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

    def step(
        self, state: SlangState, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> SlangState:
        alpha, beta = self.steps(hyper)
        prior = problem.prior_precision(hyper)
        if self.initial_precision is None:
            # `init` sees no hyper-parameters: the precision that is searched enters with the first
            # update
            state = state._replace(
                d=torch.where(state.updates == 0, hyper["initial_precision"], state.d)
            )

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
        """Update U (D, L) and d (D,) from the gradients of n examples.

        The term beta lambda of the prior is left to the caller. `scale` is N / n, and `beta` the
        learning rate.
        """
        keep, gain = 1 - beta, beta * scale
        diagonal = keep * U.square().sum(1) + gain * G.squares()
        # the smaller of two matrices with the same eigenvectors: D x D, or L + n squared
        if len(U) <= self.rank + G.rows:
            A = keep * U @ U.T + gain * G.outer()
            Q = top_eigenvectors(A, self.rank)
            new_U = Q * (Q * (A @ Q)).sum(0).clamp(min=0).sqrt()
        else:  # the eigenvectors of A are combinations of the columns of U and the gradients
            cross = (keep * gain).sqrt() * G.times(U)
            below = torch.cat([cross, gain * G.gram()], dim=1)
            above = torch.cat([keep * U.T @ U, cross.T], dim=1)
            Q = top_eigenvectors(torch.cat([above, below]), self.rank)
            new_U = keep.sqrt() * U @ Q[: self.rank] + gain.sqrt() * G.combine(Q[self.rank :])
        # rounding may leave a difference below 0, and d has to stay positive
        return new_U, keep * d + (diagonal - new_U.square().sum(1)).clamp(min=0)

    def posterior(self, state: SlangState) -> LowRankPrecision:
        return LowRankPrecision(state.mu, state.U, state.d)


_DEPTH = 5
"""Blocks of the Krylov basis. Along trainings of SLANG on boston and yacht, 5 miss no more of the
leading eigenvalues than float32 rounds, 5e-7 (4 up to 7e-6, 3 up to 2e-3); `eigh` of 150
matrices 41 x 41 takes 40 times as long.
"""


def top_eigenvectors(matrix: Tensor, count: int) -> Tensor:
    """Find orthonormal columns Q, (n, L), that maximise tr(Q^T C Q).

    C is positive semidefinite. The leading eigenvector is the last column; without meaning if C is
    not finite. They are exact if the Krylov basis would be no smaller than the matrix. Otherwise
    they are the best that the space of C V, ..., C^k V has (Rayleigh-Ritz), V being a block of
    `count` fixed columns in general position (Musco and Musco 2015, Randomized block Krylov
    methods, Algorithm 2). The part they miss falls as the Chebyshev polynomial of degree k - 1 of
    the gap between the eigenvalues wanted and the others: it is large only where there is no gap,
    and any Q is then nearly as good.
    """
    if _DEPTH * count >= len(matrix):
        return _eigenvectors(matrix)[:, -count:]
    index = torch.arange(1, len(matrix) + 1, dtype=matrix.dtype, device=matrix.device)
    # divided by its trace, C has a leading eigenvalue from 1 / n to 1, whose powers neither over-
    # nor underflow
    trace = matrix.trace().clamp(min=torch.finfo(matrix.dtype).tiny)
    block, blocks = torch.cos(torch.outer(index, index[:count])), []
    for _ in range(_DEPTH):
        block = matrix @ block / trace
        blocks.append(block)
    basis: Tensor = torch.linalg.qr(torch.cat(blocks, dim=1)).Q
    return basis @ _eigenvectors(basis.T @ matrix @ basis)[:, -count:]


def _eigenvectors(matrix: Tensor) -> Tensor:
    """Return the eigenvectors of a symmetric matrix, as columns.

    LAPACK refuses a matrix that is not finite, which would end a whole batch of models because of
    one: it gets zeros.
    """
    return torch.linalg.eigh(torch.where(matrix.isfinite().all(), matrix, 0.0)).eigenvectors


@dataclass(frozen=True)
class SlangOnlineEig(Slang):
    """SLANG-OnlineEig: averages eigenvectors of minibatches instead of refactoring.

    Mishkin et al. (2018), appendix B. With Ghat = (N / n) G^T G the empirical Fisher matrix of one
    minibatch, and Q Lambda Q^T its best approximation of rank L,

        U <- (1 - beta) U + beta Q Lambda^1/2
        d <- (1 - beta) d + beta (diag(Ghat) - diag(Q Lambda Q^T) + lambda)

    and the mean moves as in SLANG; a parenthesis of equation 19 is misplaced in print.
    Eigenvectors have no sign and no order, which the paper leaves open: here the columns of Q
    Lambda^1/2 are matched to those of U by `match_columns`.

    U U^T is no running mean of the approximations, since a mean of factors is not the factor of a
    mean; the diagonal of the precision is therefore not that of the empirical Fisher matrix, as it
    is in SLANG.
    """

    def precision(
        self, U: Tensor, d: Tensor, G: ExampleGradients, scale: Tensor, beta: Tensor
    ) -> tuple[Tensor, Tensor]:
        rank, matrix = self.rank, G.outer() if len(U) <= G.rows else G.gram()
        if rank > len(matrix):
            raise InputError(
                f"rank {rank} exceeds the {G.rows} gradients of a minibatch "
                "(samples x batch_size); lower it"
            )
        Q = top_eigenvectors(matrix, rank)
        if len(U) <= G.rows:
            factors = Q * (scale * (Q * (matrix @ Q)).sum(0).clamp(min=0)).sqrt()
        else:
            factors = scale.sqrt() * G.combine(Q)
        residual = (scale * G.squares() - factors.square().sum(1)).clamp(min=0)
        return torch.lerp(U, match_columns(factors, U), beta), (1 - beta) * d + beta * residual


def match_columns(columns: Tensor, reference: Tensor) -> Tensor:
    """Reorder columns (D, L) and choose their signs to resemble those of a reference (D, L).

    The pair with the largest absolute inner product is matched first, then the largest of the
    other columns, and so on.
    """
    products = reference.T @ columns
    sizes, assignment = products.abs(), torch.zeros_like(products)
    for _ in range(len(products)):
        # one pair as a 0-1 matrix: `argmax` alone chooses one of several equal products
        best = torch.nn.functional.one_hot(sizes.argmax(), sizes.numel()).view_as(sizes)
        assignment = assignment + best
        in_a_pair = (best.sum(0, keepdim=True) + best.sum(1, keepdim=True)) > 0
        sizes = torch.where(in_a_pair, -1.0, sizes)
    signs = torch.where(products < 0, -1.0, 1.0)
    return columns @ (assignment * signs).T
