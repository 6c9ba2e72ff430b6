"""Streams of parameter vectors from known distributions (Brownlie 2022, section 4.4.1)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Ge, Le

from bdl.errors import InputError
from bdl.runtime import one_thread

if TYPE_CHECKING:
    from torch import Tensor

    from bdl.posteriors import FactorAnalysis

FACTORS, LENGTH = 10, 100_000
"""Rank of the models, and number of observations that are drawn from each."""


@dataclass(frozen=True)
class Stream:
    """Streams of parameter vectors, each from a factor-analysis model of its own.

    Stream i has the seed i.

    Parameters
    ----------
    dim
        Parameters, D; more than the rank of the models, 10.
    top
        The squared scales s^2 of the factors are uniform on [1, top]; see
        `bdl.data.teachers.draw_factor_model`.
    scaling
        ``"rows"`` as published, or ``"columns"``.
    length
        Observations that are used, the first of 100,000.
    splits
        Number of streams.
    """

    dim: Annotated[int, Ge(FACTORS + 1)]
    top: Annotated[float, Ge(1)]
    scaling: Literal["rows", "columns"] = "rows"
    length: Annotated[int, Ge(1), Le(LENGTH)] = LENGTH
    splits: Annotated[int, Ge(1)] = 10

    def __call__(self) -> "Stream":
        """Return the stream itself: registered data sets are called."""
        return self

    @property
    def name(self) -> str:
        """Identifier for messages, ``fa_100_10``."""
        return f"fa_{self.dim}_{self.top:g}" + ("_columns" if self.scaling == "columns" else "")

    @property
    def description(self) -> str:
        """Description of the observations, in a line."""
        return (
            f"{self.length} vectors of {self.dim} parameters from a factor-analysis model "
            f"of rank {FACTORS}, {self.scaling} scaled by 1 to {self.top:g}"
        )

    def check(self, index: int) -> None:
        """Raise `InputError` if there is no stream `index`."""
        if not 0 <= index < self.splits:
            raise InputError(
                f"dataset '{self.name}' has no split {index}; choose 0 to {self.splits - 1}"
            )

    @one_thread()
    def model(self, index: int) -> "FactorAnalysis":
        """Return the distribution that stream `index` is drawn from.

        `InputError` if there is no such stream.
        """
        from bdl.data.teachers import draw_factor_model

        self.check(index)
        return draw_factor_model(index, self.dim, FACTORS, (1, self.top), self.scaling)

    def blocks(self, index: int, size: int) -> "Iterator[Tensor]":
        """Yield the observations of stream `index` in order, float32, (`size`, D).

        The last block may be shorter.
        """
        for (block,) in draw_blocks([self], index, size):
            yield block


def draw_blocks(streams: "Sequence[Stream]", index: int, size: int) -> "Iterator[Tensor]":
    """Draw stream `index` of S data sets of one dimension and length together.

    Blocks are float32, (S, size, D), and the last may be shorter. The streams share the standard
    normals, so that all cost little more than one.
    """
    from bdl.data.teachers import draw_observations

    remaining = streams[0].length
    for block in draw_observations(
        [stream.model(index) for stream in streams], index, LENGTH, size
    ):
        yield block[:, :remaining]
        remaining -= block.shape[1]
        if remaining <= 0:
            return
