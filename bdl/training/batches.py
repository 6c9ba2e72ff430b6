"""The order in which a trial sees its rows: shuffled every epoch, or drawn with replacement."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from bdl.data.splits import Rows
from bdl.rng import random_bits
from bdl.training.schedule import Schedule

_LAST = torch.iinfo(torch.int64).max

_DRAWN_AT_ONCE = 100_000
"""Positions drawn together: enough to hide the cost of a call, and no more than a megabyte."""


def shuffled(keys: Tensor, epoch: int | Tensor, lengths: Tensor) -> Tensor:
    """Draw one uniform permutation a trial, int64, (R, max n_r): row r starts with one of 0..n_r-1, padding follows.

    `keys` are generator keys, int32, (R, 2). `epoch` is a counter, or one for each trial, int32,
    (R, 1): another gives another permutation. `lengths` are the numbers of positions n_r, int64,
    (R,).
    """
    words = _words(keys, epoch, int(lengths.max()))
    position = torch.arange(words.shape[1], device=keys.device)
    # the position in the low bits breaks ties, so that every sorting routine gives the same order
    packed = torch.where(position < lengths.unsqueeze(1), (words << 32) | position, _LAST)
    if packed.device.type == "cpu":
        ordered = torch.from_numpy(
            np.sort(packed.numpy(), axis=1)
        )  # ten times faster than torch.sort
    else:
        ordered = packed.sort(dim=1).values
    return ordered & 0xFFFFFFFF


def drawn(keys: Tensor, epoch: int | Tensor, lengths: Tensor) -> Tensor:
    """Draw positions with replacement, each the integer part of n_r times a 32-bit fraction.

    Else as `shuffled`.
    """
    words = _words(keys, epoch, int(lengths.max())) & 0xFFFFFFFF
    return (words * lengths.unsqueeze(1)) >> 32


def _words(keys: Tensor, epoch: int | Tensor, n: int) -> Tensor:
    """Draw n words a trial.

    Word i belongs to position i, however many positions the companions have.
    """
    step = torch.as_tensor(epoch, dtype=torch.int32, device=keys.device)
    return torch.stack(random_bits(keys, step, (n + 1) // 2), dim=2).flatten(1)[:, :n].long()


def minibatches(
    rows: Sequence[Rows], keys: Tensor, schedule: Schedule, *, batches_per_step: int, done: int = 0
) -> Iterator[tuple[int, tuple[Tensor, ...]]]:
    """Yield after each epoch its number, from 1, and row numbers, int64, (R, L, M), of each update complete by then.

    Trials have training `rows` of as many minibatches each, and if incomplete ones are kept of as
    many rows; those have fewer than M. `keys` are those of the shuffle stream, int32, (R, 2). An
    update of L = `batches_per_step` minibatches may mix two epochs; leftovers at the end are
    dropped. After `done` updates the rest is the same as without.
    """
    lengths = torch.tensor([len(own) for own in rows], device=keys.device)
    table = pad_sequence(
        [torch.from_numpy(np.array(own, np.int64)) for own in rows], batch_first=True
    ).to(keys.device)
    size, per_epoch = schedule.batch_size, schedule.batches(int(lengths.min()))
    first, skipped = divmod(done * batches_per_step, per_epoch) if per_epoch else (0, 0)
    pending = table.new_empty(len(rows), 0, size)
    for epoch, order in enumerate(
        _orders(keys, range(first, schedule.epochs), lengths, schedule), first + 1
    ):
        own = table.gather(1, order[:, : per_epoch * size])
        whole = own[:, : own.shape[1] // size * size]
        pending = torch.cat(
            [pending, whole.reshape(len(rows), whole.shape[1] // size, size)[:, skipped:]], dim=1
        )
        skipped = 0
        ready = pending.shape[1] // batches_per_step
        complete = pending[:, : ready * batches_per_step]
        updates = (
            complete.reshape(len(rows), ready, batches_per_step, size)
            .transpose(0, 1)
            .contiguous()
            .unbind()
        )
        pending = pending[:, ready * batches_per_step :]
        rest = own[
            :, whole.shape[1] :
        ]  # of this epoch, unless its rows were whole minibatches or are dropped
        yield epoch, (*updates, *([rest.unsqueeze(1).contiguous()] if rest.shape[1] else []))


def _orders(keys: Tensor, epochs: range, lengths: Tensor, schedule: Schedule) -> Iterator[Tensor]:
    """Yield the positions of each epoch, (R, longest).

    Those of few rows are drawn many epochs at a time.
    """
    draw = shuffled if schedule.sampling == "without_replacement" else drawn
    trials = len(keys)
    block = max(1, _DRAWN_AT_ONCE // (trials * int(lengths.max())))
    for start in epochs[::block]:
        counters = torch.arange(
            start, min(start + block, epochs.stop), dtype=torch.int32, device=keys.device
        )
        steps = counters.repeat_interleave(trials).unsqueeze(1)
        orders = draw(keys.repeat(len(counters), 1), steps, lengths.repeat(len(counters)))
        yield from torch.split(orders, trials)
