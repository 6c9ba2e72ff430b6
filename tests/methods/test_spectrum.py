"""Leading eigenvectors against dense `eigh`."""

import pytest
import torch
from torch import Tensor

from bdl.methods.slang import top_eigenvectors


def matrix(values: Tensor, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """A symmetric matrix with these eigenvalues and random eigenvectors."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(len(values), len(values), generator=generator, dtype=torch.float64)
    vectors = torch.linalg.qr(noise).Q
    return (vectors @ torch.diag(values.double()) @ vectors.T).to(dtype)


def missed(found: Tensor, exact: Tensor) -> float:
    """The part of the leading eigenvalues that the columns miss."""
    columns, exact = found.double(), exact.double()
    best = torch.linalg.eigvalsh(exact)[-columns.shape[1] :].sum()
    return 1 - (columns.T @ exact @ columns).trace().item() / best.item()


@pytest.mark.parametrize(("n", "count"), [(1, 1), (5, 1), (5, 5), (12, 3), (15, 3)])
def test_small_matrices_are_exact(n, count):
    exact = matrix(torch.linspace(1, 2, n))
    found = top_eigenvectors(exact, count)
    values, vectors = torch.linalg.eigh(exact)
    projector = vectors[:, -count:] @ vectors[:, -count:].T
    torch.testing.assert_close(found @ found.T, projector, rtol=0, atol=1e-13)
    torch.testing.assert_close((found.T @ exact @ found).diagonal(), values[-count:], rtol=1e-13, atol=0)


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float32, 2e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("seed", range(5))
def test_large_matrices_with_a_gap_are_exact_to_rounding(seed, count, dtype, rounding):
    """Eigenvalues that fall as in SLANG's training, by ten from one to the next."""
    values = torch.logspace(4, -36, 41, dtype=torch.float64)
    exact = matrix(values, seed, dtype)
    found = top_eigenvectors(exact, count)
    torch.testing.assert_close(found.T @ found, torch.eye(count, dtype=dtype), rtol=0, atol=rounding)
    assert abs(missed(found, exact)) < rounding


@pytest.mark.parametrize("ratio", [0.3, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("seed", range(5))
def test_without_a_gap_no_more_is_missed_than_in_theory(seed, ratio):
    """One eigenvalue 1 and forty from 0 to `ratio`; Saad (2011), Numerical methods for large eigenvalue problems, 6.5.

    The part missed is at most (tan(start, leading eigenvector) / T_4(1 + 2 (1 - ratio) / ratio))^2, T_4 being the
    Chebyshev polynomial of the degree that five blocks allow.
    """
    exact = matrix(torch.cat([torch.linspace(0, ratio, 40), torch.ones(1)]), seed)
    start = exact @ torch.arange(1, 42, dtype=torch.float64).cos()
    cosine = (torch.linalg.eigh(exact).eigenvectors[:, -1] @ start).abs() / start.norm()
    gap = torch.tensor(1 + 2 * (1 - ratio) / ratio, dtype=torch.float64)
    limit = (1 / cosine**2 - 1) / torch.special.chebyshev_polynomial_t(gap, 4) ** 2
    assert -1e-12 < missed(top_eigenvectors(exact, 1), exact) < min(limit, 1)


@pytest.mark.parametrize("count", [1, 3])
def test_columns_are_orthonormal_for_a_deficient_matrix(count):
    """Of rank 0 or 1, as at the start of a training."""
    for values in (torch.zeros(41), torch.eye(41)[0]):
        found = top_eigenvectors(matrix(values), count)
        torch.testing.assert_close(found.T @ found, torch.eye(count, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [4, 41])
def test_a_matrix_that_is_not_finite_does_not_end_the_batch(n):
    batch = torch.stack([matrix(torch.linspace(0, 1, n) ** 8, seed) for seed in range(3)])
    mapped = torch.func.vmap(lambda one: top_eigenvectors(one, 1))
    healthy, broken = mapped(batch), batch.clone()
    broken[1, 0, 0] = torch.nan
    torch.testing.assert_close(mapped(broken)[[0, 2]], healthy[[0, 2]], rtol=0, atol=0)


def test_vmap_equals_the_loop():
    batch = torch.stack([matrix(torch.linspace(0, 1, 41) ** 8, seed) for seed in range(4)])
    mapped = torch.func.vmap(lambda one: top_eigenvectors(one, 2))(batch)
    for found, one in zip(mapped, batch, strict=True):
        alone = top_eigenvectors(one, 2)
        torch.testing.assert_close(found @ found.T, alone @ alone.T, rtol=0, atol=1e-12)
