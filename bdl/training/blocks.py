"""Blocks of updates: for small models it takes longer to prepare an update, or its random numbers, than to make it."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bdl.methods.counters import StepCounters
from bdl.training.programs import Halves

AHEAD = 2**15
"""Pairs of normals drawn at once, and numbers gathered, unless an update alone needs more; larger blocks leave the
processor's cache."""


class Update(NamedTuple):
    """An update that is to be made."""

    rows: Tensor
    """(R, L, M)."""
    counters: StepCounters
    """They count it last."""


def longest(numbers: int) -> int:
    """Count the updates of a block, of so many numbers each."""
    return max(1, AHEAD // max(1, numbers))


def blocks(
    updates: Sequence[Update],
    *,
    kind: Callable[[Update], Hashable],
    ends: Callable[[Update], bool],
    length: Callable[[Update], int],
) -> Iterator[list[Update]]:
    """Part updates into blocks.

    Parameters
    ----------
    updates
        Updates in their order.
    kind
        What is the same for all updates of a block.
    ends
        Whether a block ends after an update.
    length
        Updates of a block at the most, by its first one.
    """
    ended, numbered = 0, []
    for update in updates:
        numbered.append((ended, update))
        ended += ends(update)
    for _, alike in groupby(numbered, lambda each: (each[0], kind(each[1]))):
        found = [update for _, update in alike]
        most = length(found[0])
        yield from (found[at : at + most] for at in range(0, len(found), most))


class Normals:
    """The normals of R trials' updates; few of them are drawn for many updates at once.

    Parameters
    ----------
    keys
        Generator keys of each stream, int32, (R, 2).
    dtype
        Type of the normals.
    generator
        As `bdl.rng.random_normals`.
    """

    def __init__(self, keys: Mapping[str, Tensor], dtype: torch.dtype, generator: Callable[..., Any]) -> None:
        self._keys, self._generator = keys, generator
        self._none = {stream: (own.new_empty(len(own), 0, dtype=dtype),) for stream, own in keys.items()}
        self._drawn: dict[str, tuple[int, list[Halves]]] = {}

    def of(self, stream: str, count: int, n_pairs: int) -> Halves:
        """Return a stream's normals of the update that `count` updates precede, two tensors (R, pairs)."""
        if n_pairs == 0:
            return self._none[stream]
        first, drawn = self._drawn.get(stream, (0, []))
        if not first <= count < first + len(drawn):
            keys = self._keys[stream]
            length = longest(len(keys) * n_pairs)
            first = count // length * length  # a fit that goes on after an interruption finds the same blocks
            counters = torch.arange(first, first + length, dtype=torch.int32, device=keys.device)
            steps = counters.repeat_interleave(len(keys)).unsqueeze(1)
            halves = self._generator(keys.repeat(length, 1), steps, n_pairs)
            drawn = list(zip(*(half.view(length, len(keys), n_pairs).unbind() for half in halves), strict=True))
            self._drawn[stream] = first, drawn
        return drawn[count - first]
