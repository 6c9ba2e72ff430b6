"""Random posteriors of every family in float64."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bdl.posteriors import (
    DiagonalGaussian,
    FactorAnalysis,
    FullGaussian,
    FullPrecision,
    Gaussian,
    KroneckerGaussian,
    LowRankPrecision,
)

FAMILIES = ("diagonal", "factor", "full", "full-precision", "kronecker", "precision")


def build(family: str, seed: int = 0, dim: int = 6, rank: int = 3) -> Gaussian:
    """A random posterior with variances around one and real correlations."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    loc, positive = normal(dim), normal(dim).exp()
    if family == "diagonal":
        return DiagonalGaussian(loc, positive)
    if family == "factor":
        return FactorAnalysis(loc, normal(dim, rank), positive)
    if family == "kronecker":  # two layers with biases, of 1, 1 and dim / 2 - 1 units
        n_out = dim // 2 - 1
        inner = [0.5 * normal(2, 2).tril(-1) + normal(2).exp().diag() for _ in range(2)]
        outer = [0.5 * normal(n, n).tril(-1) + normal(n).exp().diag() for n in (1, n_out)]
        flat = [torch.cat([root.flatten() for root in roots]) for roots in (inner, outer)]
        return KroneckerGaussian(loc, *flat, torch.zeros(0, 1, 1, n_out, dtype=torch.float64))
    if family == "precision":
        return LowRankPrecision(loc, normal(dim, rank), positive)
    if family == "full-precision":
        return FullPrecision(loc, 0.5 * normal(dim, dim).tril(-1) + positive.diag())
    return FullGaussian(loc, 0.5 * normal(dim, dim).tril(-1) + positive.diag())


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=FAMILIES)
def other_family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(name="build")
def build_fixture() -> Callable[..., Gaussian]:
    return build


@pytest.fixture
def posterior(family: str) -> Gaussian:
    return build(family)
