"""The coordinates in which Kronecker factors and their damping are diagonal, for each layer of noisy K-FAC."""

from typing import NamedTuple

import torch
from torch import Tensor


class Axes(NamedTuple):
    """Of a layer: the eigenvectors of its factors, and what draws and steps take along them."""

    U: Tensor  # Of A, as columns, (in, in)
    V: Tensor  # Of S, (out, out)
    inner: Tensor  # Eigenvalues of (A^gin)^(-1/2), (in,)
    outer: Tensor  # Of (lam / N)^(1/2) (S^gin)^(-1/2), (out,)
    inner_step: Tensor  # Of (A^gam)^-1, (in,)
    outer_step: Tensor  # Of (S^gam)^-1, (out,)


def axes_of(A: Tensor, S: Tensor, gin: Tensor, gam: Tensor, share: Tensor) -> Axes:
    """Find the eigenvectors of a layer's factors, and what the two dampings make of their eigenvalues."""
    (a, U), (s, V), (a_in, s_in), (a_gam, s_gam) = _eigen(A), _eigen(S), split(A, S, gin), split(A, S, gam)
    return Axes(U, V, (a + a_in).rsqrt(), (share / (s + s_in)).sqrt(), 1 / (a + a_gam), 1 / (s + s_gam))


def split(A: Tensor, S: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Return what the damping adds to the eigenvalues of A and of S.

    A factor that vanishes, as where all units of a layer are dead, counts as tiny.

    Parameters
    ----------
    A, S
        Factors (in, in) and (out, out).
    g
        Damping, a scalar.
    """
    size_A, size_S = (F.diagonal().mean().clamp(min=1e-20) for F in (A, S))
    pi = (size_A / size_S).sqrt()
    return pi * g.sqrt(), g.sqrt() / pi


def turned(block: Tensor, old: Axes, new: Axes) -> Tensor:
    """Go from the coordinates of old eigenvectors to those of new ones."""
    return new.V.mT @ (old.V @ block @ old.U.mT) @ new.U


def triangular(root: Tensor) -> Tensor:
    """Return the lower triangular L with a positive diagonal and L L^T = root root^T."""
    L: Tensor = torch.linalg.qr(root.mT, mode="r").R.mT
    return L * L.diagonal().sign()


def eye(like: Tensor, size: int) -> Tensor:
    """Return the identity, of the type and on the device of `like`."""
    return torch.eye(size, dtype=like.dtype, device=like.device)


def _eigen(factor: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues, which rounding leaves no less than 0, and eigenvectors; NaN for what is not finite.

    In float64: with inputs that are always 0, as pixels at a border are, LAPACK's float32 gives NaN at times, or fails.
    """
    finite = factor.isfinite().all()
    values, vectors = torch.linalg.eigh(torch.where(finite, factor, eye(factor, len(factor))).double())
    found = (part.to(factor) for part in (values.clamp(min=0), vectors))
    values, vectors = (torch.where(finite, part, torch.nan) for part in found)
    return values, vectors
