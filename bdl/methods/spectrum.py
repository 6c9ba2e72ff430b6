"""Leading eigenvectors of positive semidefinite matrices, for many small matrices at once."""

import torch
from torch import Tensor

_DEPTH = 5
"""Blocks of the Krylov basis. Along trainings of SLANG the part of the leading eigenvalues that 5 miss is below
the rounding unit of float32 (3 miss up to 2e-3, 4 up to 7e-6); `eigh` of (150, 41, 41) takes 40 times as long."""


def top_eigenvectors(matrix: Tensor, count: int) -> Tensor:
    """Find orthonormal columns Q that maximise tr(Q^T C Q).

    They are exact if the Krylov basis would be no smaller than the matrix. Otherwise they are the best that the
    space of C V, ..., C^k V has (Rayleigh-Ritz), V being a block of `count` fixed columns in general position.
    The part they miss falls as the Chebyshev polynomial of degree k - 1 of the gap between the eigenvalues
    wanted and the others: it is large only where there is no gap, and any Q is then nearly as good.

    Parameters
    ----------
    matrix
        Symmetric positive semidefinite C, (n, n).
    count
        Number of eigenvectors, L.

    Returns
    -------
    Tensor
        (n, L); the leading eigenvector is the last column. Orthonormal, but without meaning, if C is not finite.

    References
    ----------
    Musco and Musco (2015), Randomized block Krylov methods, Algorithm 2.
    """
    # LAPACK refuses NaN and would end the whole batch of models
    matrix = torch.where(matrix.isfinite().all(), matrix, 0.0)
    if _DEPTH * count >= len(matrix):
        return _eigenvectors(matrix)[:, -count:]
    index = torch.arange(1, len(matrix) + 1, dtype=matrix.dtype, device=matrix.device)
    # with trace 1 the leading eigenvalue is from 1 / n to 1, and its powers neither over- nor underflow
    unit = matrix / matrix.trace().clamp(min=torch.finfo(matrix.dtype).tiny)
    block, blocks = torch.cos(torch.outer(index, index[:count])), []
    for _ in range(_DEPTH):
        block = unit @ block
        blocks.append(block)
    basis: Tensor = torch.linalg.qr(torch.cat(blocks, dim=1)).Q
    return basis @ _eigenvectors(basis.T @ unit @ basis)[:, -count:]


def _eigenvectors(matrix: Tensor) -> Tensor:
    vectors: Tensor = torch.linalg.eigh(matrix).eigenvectors
    return vectors
