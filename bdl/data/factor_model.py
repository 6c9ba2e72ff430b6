"""Factor-analysis models drawn at random, and observations from them (Brownlie 2022, section 4.4.1, Algorithm 3)."""

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.posteriors import FactorAnalysis


def factor_model(
    seed: int,
    dim: int,
    latent_dim: int,
    spectrum: tuple[float, float],
    scaling: Literal["rows", "columns"] = "rows",
) -> FactorAnalysis:
    """Draw a model N(c, F F^T + diag(psi)), float32.

    c is standard normal, V has the leading eigenvectors of M M^T with a standard-normal D x D matrix M, the s^2 are
    uniform on `spectrum`, and psi is uniform on (0, max s^2).

    Parameters
    ----------
    seed
        Of PyTorch's generator, which draws c, M, s^2 and psi in this order.
    dim, latent_dim
        D and K.
    spectrum
        Range of s^2.
    scaling
        ``"rows"`` is F = diag(s) V with D values s, as the published code has it; ``"columns"`` is
        F = V diag(s) with K values, as the thesis's argument about conditioning suggests.

    Raises
    ------
    InputError
        If the sizes or the range are impossible.
    """
    if not 1 <= latent_dim < dim:
        raise InputError(f"latent_dim {latent_dim} does not suit {dim} dimensions: give one of 1 to {dim - 1}")
    low, high = spectrum
    if not 0 < low <= high:
        raise InputError(f"the spectrum [{low:g}, {high:g}] is no range of variances: give 0 < low <= high")
    generator = torch.Generator().manual_seed(seed)
    loc = torch.randn(dim, generator=generator)
    square = torch.randn(dim, dim, generator=generator)
    leading = torch.linalg.eigh(square @ square.T).eigenvectors.flip(1)[:, :latent_dim]
    variances = torch.empty(dim if scaling == "rows" else latent_dim).uniform_(low, high, generator=generator)
    factors = (variances.sqrt() * leading.T).T if scaling == "rows" else variances.sqrt() * leading
    diag = torch.empty(dim).uniform_(0, float(variances.max()), generator=generator)
    return FactorAnalysis(loc, factors.contiguous(), diag)


def observations(models: Sequence[FactorAnalysis], seed: int, count: int, block: int) -> Iterator[Tensor]:
    """Draw observations theta = c + F h + psi^{1/2} o z from each model, with the same h and z for all.

    The generator is seeded with `seed` and draws all h, (count, K), and then all z, (count, D). The published runs
    gave it the seed of the model, so that the first h repeat the normals of c and M; models that differ in their
    spectrum alone then have the same h and z.

    Parameters
    ----------
    models
        S models of the same D and K, float32.
    seed
        Of PyTorch's generator.
    count
        Observations of each model.
    block
        Observations in a block; a multiple of 16 makes the values independent of it.

    Yields
    ------
    Tensor
        Shape (S, block, D); the last may have fewer observations.
    """
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(count, models[0].rank, generator=generator)
    for begin in range(0, count, block):
        latent = h[begin : begin + block]
        z = torch.randn(len(latent), models[0].dim, generator=generator)
        yield torch.stack([model.sample(torch.cat([latent, z], 1)) for model in models])
