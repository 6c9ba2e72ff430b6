"""Streams of parameter vectors from known distributions (Brownlie 2022, section 4.4.1)."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from inspect import getsource
from typing import TYPE_CHECKING

from bdl.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from bdl.data.factor_model import Scaling
    from bdl.posteriors import FactorAnalysis

FACTORS, LENGTH = 10, 100_000
"""Rank of the models, and observations that are drawn from each."""


@dataclass(frozen=True)
class Stream:
    """Ten streams, each from a factor-analysis model of its own; stream i has the seed i.

    Parameters
    ----------
    name
        Identifier, as in the registry.
    dim
        Parameters, D.
    spread
        The squared scales s^2 of the factors are uniform on [1, spread]; see `bdl.data.factor_model.factor_model`.
    scaling
        ``"rows"`` as published, or ``"columns"``.
    length
        Observations that are used, the first of `LENGTH`.
    splits
        Number of streams.
    """

    name: str
    dim: int
    spread: float
    scaling: "Scaling" = "rows"
    length: int = LENGTH
    splits: int = 10

    def __call__(self) -> "Stream":
        """Give the stream itself: registered data sets are called."""
        return self

    @property
    def about(self) -> str:
        """What the observations are."""
        return (
            f"{self.length} vectors of {self.dim} parameters from a factor-analysis model of rank {FACTORS}, "
            f"{self.scaling} scaled by 1 to {self.spread:g}"
        )

    @property
    def checksum(self) -> str:
        """SHA-256 (hex) of what the streams are made from: the settings, and the code that draws."""
        from bdl.data import factor_model

        code = ast.unparse(ast.parse(getsource(factor_model)))
        return sha256(f"{asdict(self)} {code}".encode()).hexdigest()

    def model(self, index: int) -> "FactorAnalysis":
        """Give the distribution that stream `index` is drawn from.

        Raises
        ------
        InputError
            If there is no such stream.
        """
        from bdl.data.factor_model import factor_model

        if not 0 <= index < self.splits:
            raise InputError(f"dataset '{self.name}' has no split {index}; choose 0 to {self.splits - 1}")
        return factor_model(index, self.dim, FACTORS, (1, self.spread), self.scaling)

    def blocks(self, index: int, size: int) -> "Iterator[Tensor]":
        """Yield the observations of stream `index` in order, float32, (B, D) with B = `size` or less at the end."""
        for (block,) in draw([self], index, size):
            yield block


def draw(streams: "Sequence[Stream]", index: int, size: int) -> "Iterator[Tensor]":
    """Draw stream `index` of data sets of one dimension and length together, in order.

    They share the standard normals, so that it costs little more than to draw one of them.

    Yields
    ------
    Tensor
        Observations, float32, shape (S, B, D) with B = `size`, or less at the end.
    """
    from bdl.data.factor_model import observations

    left = streams[0].length
    for block in observations([stream.model(index) for stream in streams], index, LENGTH, size):
        yield block[:, :left]
        left -= block.shape[1]
        if left <= 0:
            return


fa_100_10 = Stream("fa_100_10", 100, 10)
fa_100_100 = Stream("fa_100_100", 100, 100)
fa_100_1000 = Stream("fa_100_1000", 100, 1000)
fa_1000_10 = Stream("fa_1000_10", 1000, 10)
fa_1000_100 = Stream("fa_1000_100", 1000, 100)
fa_1000_1000 = Stream("fa_1000_1000", 1000, 1000)
fa_100_10_columns = Stream("fa_100_10_columns", 100, 10, "columns")
fa_100_100_columns = Stream("fa_100_100_columns", 100, 100, "columns")
fa_100_1000_columns = Stream("fa_100_1000_columns", 100, 1000, "columns")
fa_1000_10_columns = Stream("fa_1000_10_columns", 1000, 10, "columns")
fa_1000_100_columns = Stream("fa_1000_100_columns", 1000, 100, "columns")
fa_1000_1000_columns = Stream("fa_1000_1000_columns", 1000, 1000, "columns")
