"""Random posteriors of every family in float64."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bdl.posteriors import FAMILIES, Posterior

GAUSSIANS = (
    *(
        "diagonal",
        "factor-analysis",
        "full",
        "full-precision",
        "kronecker",
        "linearised",
        "low-rank-precision",
    ),
    "traced",
)


def normals(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def build(family: str, seed: int = 0, dim: int = 6, rank: int = 3) -> Posterior:
    """A random posterior with variances around one and real correlations, of a registered family."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def root(diagonal: Tensor) -> Tensor:
        return 0.5 * normal(len(diagonal), len(diagonal)).tril(-1) + diagonal.diag()

    loc, positive, units = normal(dim), normal(dim).exp(), torch.arange(dim) % 3

    def kronecker() -> tuple[Tensor, ...]:  # two layers with biases, of 1, 1 and dim / 2 - 1 units
        n_out = dim // 2 - 1
        inner, outer = (
            torch.cat([root(normal(n).exp()).flatten() for n in sizes])
            for sizes in ((2, 2), (1, n_out))
        )
        return loc, inner, outer, torch.zeros(0, 1, 1, n_out, dtype=torch.float64)

    fields: dict[str, Callable[[], tuple[Tensor, ...]]] = {
        "diagonal": lambda: (loc, positive),
        "factor-analysis": lambda: (loc, normal(dim, rank), positive),
        "full": lambda: (loc, root(positive)),
        "full-precision": lambda: (loc, root(positive)),
        "kronecker": kronecker,
        "linearised": lambda: (loc, root(positive)),
        "low-rank-precision": lambda: (loc, normal(dim, rank), positive),
        "dropout": lambda: (loc, units, 0.1 + 0.4 * normal(2).sigmoid()),
        "empirical": lambda: (normal(7, dim),),
        "last-layer": lambda: (loc, root(normal(rank).exp())),
        "mixture": lambda: (normal(3, dim), normal(3, dim, rank), normal(3, dim).exp()),
        "point": lambda: (loc,),
        "scaled": lambda: (loc, positive, normal(2), 0.1 * normal(2).exp(), units.unsqueeze(0)),
        "student-t": lambda: (loc, positive, torch.tensor(30.0, dtype=torch.float64)),
        "traced": lambda: (loc, root(positive), normal(dim), normal(4, dim)),
        "weighted": lambda: (normal(7, dim), normal(7)),
    }
    return FAMILIES.get(family)(*fields[family]())


def stack(posteriors: list[Posterior]) -> Posterior:
    """Several posteriors of one family as one, for vmap."""
    return type(posteriors[0])(*map(torch.stack, zip(*posteriors, strict=True)))


@pytest.fixture(params=GAUSSIANS)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=GAUSSIANS)
def other_family(request: pytest.FixtureRequest) -> str:
    return request.param
