"""Gaussians of low rank plus diagonal, in the covariance or the precision, and their mixtures.

No dense matrix is formed.
"""

from math import log
from typing import ClassVar, NamedTuple, NoReturn

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.posteriors.base import (
    GaussianPosterior,
    Posterior,
    check_positive,
    check_shape,
    check_vector,
    inverse_tril,
)


class _LowRank(
    NamedTuple("Fields", [("loc", Tensor), ("factors", Tensor), ("diag", Tensor)]),
    GaussianPosterior,
):
    _rank_name: ClassVar[str]

    @property
    def rank(self) -> int:
        """Number of columns of the factors."""
        return self.factors.shape[-1]

    def check_shapes(self) -> None:
        check_vector("loc", self.loc)
        if self.factors.ndim != 2 or len(self.factors) != self.dim:
            expected = f"({self.dim}, {self._rank_name})"
            raise InputError(
                f"factors has shape {tuple(self.factors.shape)}: give it shape {expected}"
            )
        if self.rank > self.dim:
            raise InputError(
                f"{self.rank} factors for {self.dim} parameters: use at most {self.dim} factors"
            )
        check_shape("diag", self.diag, self.dim)

    def check_values(self) -> None:
        check_positive("diag", self.diag)


class FactorAnalysis(_LowRank):
    """N(loc, F F^T + diag(psi)): theta = loc + F h + psi^{1/2} o z with standard normals h and z.

    `factors` are F, (D, K), K <= D, and `diag` is psi, positive, (D,). Every verb but `covariance`
    costs O(D K^2) or less, by the Woodbury identity with the K x K matrix I + F^T diag(psi)^{-1} F
    (Bishop 2006, section 12.2.4 and equation C.7). The noise of a sample is (h, z), of K + D
    values.
    """

    _rank_name = "K"

    @property
    def noise_dim(self) -> int:
        return self.rank + self.dim

    def variance(self) -> Tensor:
        return self.factors.square().sum(-1) + self.diag

    def covariance(self) -> Tensor:
        return self.factors @ self.factors.mT + self.diag.diag_embed()

    def sample(self, noise: Tensor) -> Tensor:
        h, z = torch.split(noise, [self.rank, self.dim], dim=-1)
        return self.loc + h @ self.factors.mT + self.diag.sqrt() * z

    def gain(self) -> Tensor:
        """Return S^{-1} F, shape (D, K), which regresses the factors on theta.

        E[h | theta] = gain^T (theta - loc).
        """
        # Woodbury: S^-1 F = psi^-1 F (I + F^T psi^-1 F)^-1, an inverse of K x K in place of D x D
        return self.factors / self.diag.unsqueeze(-1) @ _cholesky_inverse(self._cholesky())

    def log_det(self) -> Tensor:
        # log |I + F^T diag(psi)^{-1} F| + sum log psi
        return 2 * self._cholesky().diagonal(dim1=-2, dim2=-1).log().sum() + self.diag.log().sum()

    def whiten(self, delta: Tensor) -> Tensor:
        """Return (m, psi^{-1/2} o (delta - F m)) with m = gain^T delta.

        The shape is (..., D) -> (..., K + D). The shortest noise is the ridge regression of delta
        on F, hence m is the posterior mean of h. A rounding error in m changes the squared norm
        only to second order.
        """
        m = delta @ self.gain()
        return torch.cat([m, (delta - m @ self.factors.mT) / self.diag.sqrt()], dim=-1)

    def precision_diagonal(self) -> Tensor:
        """Return (1 - leverage) / psi with leverage_i = F_i . gain_i, below 1; shape (D,).

        Where psi_i is far below the other noise the leverage nears 1 and the difference loses as
        many digits as psi_i is below 1 / S^{-1}_ii; float64 bears nine decades of psi.
        """
        return (1 - (self.factors * self.gain()).sum(-1)) / self.diag

    def trace_solve(self, p: GaussianPosterior) -> Tensor:
        # tr(S_p^-1 F F^T) is the sum of the squared lengths of the columns of F, as p measures
        # them
        return p.whiten(self.factors.mT).square().sum() + self.diag @ p.precision_diagonal()

    def _cholesky(self) -> Tensor:
        # unlike `cholesky` it does not raise: under vmap a diverged posterior stays alone with its
        # NaN
        return torch.linalg.cholesky_ex(
            _plus_identity(self.factors.mT @ (self.factors / self.diag.unsqueeze(-1)))
        ).L


class LowRankPrecision(_LowRank):
    """N(loc, P^{-1}) with P = U U^T + diag(d).

    `factors` are U, (D, L), L <= D, whose columns may be zero, and `diag` is d, positive, (D,).
    With W = diag(d)^{-1/2} U and the Cholesky factor R R^T = I + W^T W, of size L x L, a square
    root of the covariance and its inverse are

        A = diag(d)^{-1/2} (I - W R^{-T} (I + R)^{-1} W^T),    A^{-1} = (I + W (I + R^T)^{-1} W^T)
        diag(d)^{1/2}.

    Every verb but `covariance` costs O(D L^2) or less. Mishkin et al. (2018), SLANG, appendix A.2,
    sample with another such root, which divides by the Cholesky factor of U^T diag(d)^{-1} U and
    so needs U of full rank; their print has I + V^T V for I + A^T A.
    """

    _rank_name = "L"

    def variance(self) -> Tensor:
        """Return (1 - leverage) / d with leverage_i = |R^{-1} W_i|^2, below 1; shape (D,).

        Where d_i is far below the precision P_ii given the others, the difference loses as many
        digits; float64 bears nine decades of d.
        """
        return (1 - self._leverage_root().square().sum(-1)) / self.diag

    def covariance(self) -> Tensor:
        root = self._leverage_root() * self.diag.rsqrt().unsqueeze(-1)
        return self.diag.reciprocal().diag_embed() - root @ root.mT

    def sample(self, noise: Tensor) -> Tensor:
        return self.loc + self._shrink(noise, self._core()) * self.diag.rsqrt()

    def solve(self, vector: Tensor) -> Tensor:
        """Return P^{-1} vector, shape (..., D) -> (..., D), as A A^T vector.

        Woodbury's formula takes a difference that leaves 1 / (1 + |W|^2) of a component along W;
        each of the two roots leaves the square root of that, which costs half as many digits.
        """
        core, scale = self._core(), self.diag.rsqrt()
        inner = self._shrink(vector * scale, core.mT)
        return self._shrink(inner, core) * scale

    def log_det(self) -> Tensor:
        return -2 * self._cholesky().diagonal(dim1=-2, dim2=-1).log().sum() - self.diag.log().sum()

    def whiten(self, delta: Tensor) -> Tensor:
        plus = _plus_identity(self._cholesky())
        inner: Tensor = torch.linalg.solve_triangular(plus, self._scaled().mT, upper=False)
        return delta * self.diag.sqrt() + delta @ self.factors @ inner

    def precision_diagonal(self) -> Tensor:
        return self.factors.square().sum(-1) + self.diag

    def trace_solve(self, p: GaussianPosterior) -> Tensor:
        # the difference of what diag(d)^{-1} gives and what U takes away
        root = self._leverage_root() * self.diag.rsqrt().unsqueeze(-1)
        return (p.precision_diagonal() / self.diag).sum() - p.whiten(root.mT).square().sum()

    def _shrink(self, rows: Tensor, core: Tensor) -> Tensor:
        """Apply I - W core W^T to each row, shape (..., D) -> (..., D)."""
        scaled = self._scaled()
        return rows - rows @ scaled @ core.mT @ scaled.mT

    def _core(self) -> Tensor:
        """Return R^{-T} (I + R)^{-1}, shape (L, L)."""
        root = self._cholesky()
        inner = inverse_tril(_plus_identity(root))
        return torch.linalg.solve_triangular(root.mT, inner, upper=True)

    def _scaled(self) -> Tensor:
        """Return W, shape (D, L)."""
        return self.factors * self.diag.rsqrt().unsqueeze(-1)

    def _cholesky(self) -> Tensor:
        scaled = self._scaled()
        return torch.linalg.cholesky_ex(_plus_identity(scaled.mT @ scaled)).L

    def _leverage_root(self) -> Tensor:
        """Return W R^{-T}, shape (D, L): the covariance is d^{-1/2} (I - its square) d^{-1/2}."""
        return torch.linalg.solve_triangular(
            self._cholesky().mT, self._scaled(), upper=True, left=False
        )


def _cholesky_inverse(root: Tensor) -> Tensor:
    """Invert R R^T, where R is lower triangular, (K, K)."""
    if len(root) == 1:
        # the same bits as LAPACK's, whose call takes a tenth of an update of a small model
        return root.reciprocal().square()
    return torch.cholesky_inverse(root)


def _plus_identity(matrix: Tensor) -> Tensor:
    return matrix + torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


class Mixture(
    NamedTuple("Fields", [("locs", Tensor), ("factors", Tensor), ("diags", Tensor)]), Posterior
):
    """(1/C) sum_c N(loc_c, F_c F_c^T + diag(psi_c)); its entropy has no closed form.

    Fields are those of C `FactorAnalysis`, stacked. The noise of a sample is (u, h, z), of 1 + K +
    D values: it is that of component floor(C Phi(u)) with the noise (h, z).
    """

    multimodal = True  # the components need not be near each other

    @property
    def dim(self) -> int:
        return self.locs.shape[-1]

    @property
    def noise_dim(self) -> int:
        return 1 + self.factors.shape[-1] + self.dim

    def components(self) -> list[FactorAnalysis]:
        """Return the Gaussians that are mixed."""
        return [FactorAnalysis(*fields) for fields in zip(*self, strict=True)]

    def mean(self) -> Tensor:
        return self.locs.mean(-2)

    def variance(self) -> Tensor:
        within = self.factors.square().sum(-1) + self.diags
        return within.mean(-2) + self.locs.var(-2, correction=0)

    def covariance(self) -> Tensor:
        within = torch.stack([component.covariance() for component in self.components()])
        centred = self.locs - self.mean()
        return within.mean(0) + centred.mT @ centred / len(self.locs)

    def log_prob(self, theta: Tensor) -> Tensor:
        log_probs = torch.stack([component.log_prob(theta) for component in self.components()])
        return log_probs.logsumexp(0) - log(len(self.locs))

    def entropy(self) -> NoReturn:
        raise InputError("a mixture has no closed entropy: leave out metrics that need one")

    def sample(self, noise: Tensor) -> Tensor:
        chosen_component = torch.floor(torch.special.ndtr(noise[..., :1]) * len(self.locs))
        sample, *later_samples = (
            component.sample(noise[..., 1:]) for component in self.components()
        )  # one by one, as they may be large
        for number, component_sample in enumerate(later_samples, 1):
            sample = torch.where(chosen_component >= number, component_sample, sample)
        return sample

    def check_shapes(self) -> None:
        count = len(self.locs)
        if self.locs.ndim != 2 or not count == len(self.factors) == len(self.diags):
            raise InputError(
                f"locs has shape {tuple(self.locs.shape)}: give (C, D), with C factors and C diags"
            )
        for component in self.components():
            component.check_shapes()

    def check_values(self) -> None:
        for component in self.components():
            component.check_values()
