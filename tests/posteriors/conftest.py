"""Random posteriors of every family in float64."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bdl.posteriors import (
    DiagonalGaussian,
    Dropout,
    Empirical,
    FactorAnalysis,
    FullGaussian,
    FullPrecision,
    Gaussian,
    KroneckerGaussian,
    LastLayer,
    Linearised,
    LowRankPrecision,
    Mixture,
    Point,
    Posterior,
    Scaled,
    StudentT,
    Traced,
    Weighted,
)

GAUSSIANS = (
    *("diagonal", "factor-analysis", "full", "full-precision", "kronecker", "linearised", "low-rank-precision"),
    "traced",
)


def build(family: str, seed: int = 0, dim: int = 6, rank: int = 3) -> Posterior:
    """A random posterior with variances around one and real correlations, of a registered family."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    loc, positive = normal(dim), normal(dim).exp()

    def kronecker() -> KroneckerGaussian:  # two layers with biases, of 1, 1 and dim / 2 - 1 units
        n_out = dim // 2 - 1
        inner = [0.5 * normal(2, 2).tril(-1) + normal(2).exp().diag() for _ in range(2)]
        outer = [0.5 * normal(n, n).tril(-1) + normal(n).exp().diag() for n in (1, n_out)]
        flat = [torch.cat([root.flatten() for root in roots]) for roots in (inner, outer)]
        return KroneckerGaussian(loc, *flat, torch.zeros(0, 1, 1, n_out, dtype=torch.float64))

    units = torch.arange(dim) % 3
    families: dict[str, Callable[[], Posterior]] = {
        "diagonal": lambda: DiagonalGaussian(loc, positive),
        "factor-analysis": lambda: FactorAnalysis(loc, normal(dim, rank), positive),
        "full": lambda: FullGaussian(loc, 0.5 * normal(dim, dim).tril(-1) + positive.diag()),
        "full-precision": lambda: FullPrecision(loc, 0.5 * normal(dim, dim).tril(-1) + positive.diag()),
        "kronecker": kronecker,
        "linearised": lambda: Linearised(loc, 0.5 * normal(dim, dim).tril(-1) + positive.diag()),
        "low-rank-precision": lambda: LowRankPrecision(loc, normal(dim, rank), positive),
        "dropout": lambda: Dropout(loc, units, 0.1 + 0.4 * normal(2).sigmoid()),
        "empirical": lambda: Empirical(normal(7, dim)),
        "last-layer": lambda: LastLayer(loc, 0.5 * normal(rank, rank).tril(-1) + normal(rank).exp().diag()),
        "mixture": lambda: Mixture(normal(3, dim), normal(3, dim, rank), normal(3, dim).exp()),
        "point": lambda: Point(loc),
        "scaled": lambda: Scaled(loc, positive, normal(2), 0.1 * normal(2).exp(), units.unsqueeze(0)),
        "student-t": lambda: StudentT(loc, positive, torch.tensor(30.0, dtype=torch.float64)),
        "traced": lambda: Traced(loc, 0.5 * normal(dim, dim).tril(-1) + positive.diag(), normal(dim), normal(4, dim)),
        "weighted": lambda: Weighted(normal(7, dim), normal(7)),
    }
    return families[family]()


@pytest.fixture(params=GAUSSIANS)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=GAUSSIANS)
def other_family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(name="build")
def build_fixture() -> Callable[..., Gaussian]:
    return build


@pytest.fixture
def posterior(family: str) -> Gaussian:
    return build(family)
