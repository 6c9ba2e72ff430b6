"""The order in which a trial sees its rows: shuffled every epoch, without replacement."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from bdl.data.splits import Rows
from bdl.rng import random_bits

Bits = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]

_LAST = torch.iinfo(torch.int64).max

_DRAWN_AT_ONCE = 100_000
"""Positions shuffled together: enough to hide the cost of a call, and no more than a megabyte."""


def shuffled(keys: Tensor, epoch: int | Tensor, lengths: Tensor, bits: Bits = random_bits) -> Tensor:
    """Draw one uniform permutation a trial.

    Parameters
    ----------
    keys
        Generator keys, int32, (R, 2).
    epoch
        Counter: another epoch gives another permutation; or a counter for each trial, int32, (R, 1).
    lengths
        Number of positions n_r of each trial, int64, (R,).
    bits
        The generator, possibly compiled.

    Returns
    -------
    Tensor
        Permutations, int64, (R, max n_r): row r starts with a permutation of 0..n_r-1; what follows is
        padding without meaning.
    """
    n = int(lengths.max())
    step = torch.as_tensor(epoch, dtype=torch.int32, device=keys.device)
    # word i belongs to position i, however many positions the companions have
    words = torch.stack(bits(keys, step, (n + 1) // 2), dim=2).flatten(1)[:, :n].long()
    position = torch.arange(n, device=keys.device)
    # the position in the low bits breaks ties, so that every sorting routine gives the same order
    packed = torch.where(position < lengths.unsqueeze(1), (words << 32) | position, _LAST)
    if packed.device.type == "cpu":
        ordered = torch.from_numpy(np.sort(packed.numpy(), axis=1))  # ten times faster than torch.sort
    else:
        ordered = packed.sort(dim=1).values
    return ordered & 0xFFFFFFFF


def updates_per_fit(n: int, batch_size: int, epochs: int, batches_per_step: int) -> int:
    """Count the updates of one fit: incomplete minibatches and a last incomplete update are dropped."""
    return epochs * (n // batch_size) // batches_per_step


def minibatches(
    rows: Sequence[Rows],
    keys: Tensor,
    *,
    batch_size: int,
    epochs: int,
    batches_per_step: int,
    bits: Bits = random_bits,
) -> Iterator[Tensor]:
    """Yield, after each epoch, the row numbers of the updates that are complete by then.

    Parameters
    ----------
    rows
        Training rows of each trial; all trials have the same number of whole minibatches.
    keys
        Generator keys of the shuffle stream, int32, (R, 2).
    batch_size
        Rows in a minibatch, M; the last incomplete one of an epoch is dropped.
    epochs
        Passes over the rows.
    batches_per_step
        Minibatches in an update, L. An update may mix two epochs; leftovers at the end are dropped.
    bits
        The generator, possibly compiled.

    Yields
    ------
    Tensor
        Row numbers, int64, contiguous, (updates, R, L, M).
    """
    table, lengths = _padded(rows, keys.device)
    per_epoch = int(lengths.min()) // batch_size
    pending = table.new_empty(len(rows), 0, batch_size)
    for order in _orders(keys, epochs, lengths, bits):
        drawn = table.gather(1, order[:, : per_epoch * batch_size])
        own = drawn.view(len(rows), per_epoch, batch_size)
        pending = torch.cat([pending, own], dim=1)
        ready = pending.shape[1] // batches_per_step
        complete = pending[:, : ready * batches_per_step]
        updates = complete.reshape(len(rows), ready, batches_per_step, batch_size)
        pending = pending[:, ready * batches_per_step :]
        yield updates.transpose(0, 1).contiguous()


def _orders(keys: Tensor, epochs: int, lengths: Tensor, bits: Bits) -> Iterator[Tensor]:
    """Yield the permutations of each epoch, (R, longest); short ones are drawn many epochs at a time."""
    trials = len(keys)
    block = max(1, _DRAWN_AT_ONCE // (trials * int(lengths.max())))
    for start in range(0, epochs, block):
        count = min(block, epochs - start)
        counters = torch.arange(start, start + count, dtype=torch.int32, device=keys.device)
        steps = counters.repeat_interleave(trials).unsqueeze(1)
        orders = shuffled(keys.repeat(count, 1), steps, lengths.repeat(count), bits)
        yield from torch.split(orders, trials)


def _padded(rows: Sequence[Rows], device: torch.device) -> tuple[Tensor, Tensor]:
    """Stack row numbers of different lengths: (R, longest), and the lengths (R,)."""
    lengths = torch.tensor([len(own) for own in rows], device=device)
    table = np.zeros((len(rows), int(lengths.max())), dtype=np.int64)
    for line, own in zip(table, rows, strict=True):
        line[: len(own)] = own
    return torch.from_numpy(table).to(device), lengths
