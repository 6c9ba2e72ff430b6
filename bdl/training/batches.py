"""The order in which a trial uses its rows: shuffled every epoch, or drawn with replacement."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from bdl.data.splits import Rows
from bdl.rng import random_bits
from bdl.training.schedule import Schedule

_SORTS_LAST = torch.iinfo(torch.int64).max
"""Sort key of padding."""

_POSITIONS_PER_DRAW = 100_000
"""Positions that one call draws: enough to hide its cost, and no more than a megabyte."""


def permute_positions(keys: Tensor, epoch: int | Tensor, lengths: Tensor) -> Tensor:
    """Draw one uniform permutation for each trial, int64, (R, max n_r).

    Row r starts with a permutation of 0..n_r-1; padding follows. `keys` are generator keys, int32,
    (R, 2). `epoch` is a counter, or one for each trial, int32, (R, 1): another gives another
    permutation. `lengths` are the numbers of positions n_r, int64, (R,).
    """
    words = _random_words(keys, epoch, int(lengths.max()))
    position = torch.arange(words.shape[1], device=keys.device)
    # the position in the low bits breaks ties, so that every sorting routine gives the same order
    sort_keys = torch.where(position < lengths.unsqueeze(1), (words << 32) | position, _SORTS_LAST)
    if sort_keys.device.type == "cpu":
        # ten times faster than torch.sort
        sorted_keys = torch.from_numpy(np.sort(sort_keys.numpy(), axis=1))
    else:
        sorted_keys = sort_keys.sort(dim=1).values
    return sorted_keys & 0xFFFFFFFF


def draw_positions(keys: Tensor, epoch: int | Tensor, lengths: Tensor) -> Tensor:
    """Draw positions with replacement, each the integer part of n_r times a 32-bit fraction.

    Arguments and padding are those of `permute_positions`.
    """
    words = _random_words(keys, epoch, int(lengths.max())) & 0xFFFFFFFF
    return (words * lengths.unsqueeze(1)) >> 32


def _random_words(keys: Tensor, epoch: int | Tensor, n: int) -> Tensor:
    """Draw n random words for each trial.

    Word i belongs to position i, however many positions other trials of the batch have.
    """
    step = torch.as_tensor(epoch, dtype=torch.int32, device=keys.device)
    return torch.stack(random_bits(keys, step, (n + 1) // 2), dim=2).flatten(1)[:, :n].long()


def iterate_minibatches(
    rows: Sequence[Rows],
    keys: Tensor,
    schedule: Schedule,
    *,
    batches_per_step: int,
    updates_done: int = 0,
) -> Iterator[tuple[int, tuple[Tensor, ...]]]:
    """Yield after each epoch its number, from 1, and the rows of the updates complete by then.

    The rows of an update are row numbers, int64, (R, L, M). Trials have training `rows` of as many
    minibatches each, and if incomplete ones are kept of as many rows; those have fewer than M.
    `keys` are those of the shuffle stream, int32, (R, 2). An update of L = `batches_per_step`
    minibatches may mix two epochs; leftovers at the end are dropped. A fit that goes on after
    `updates_done` updates has the same minibatches from there on as one without interruption.
    """
    lengths = torch.tensor([len(trial_rows) for trial_rows in rows], device=keys.device)
    table = pad_sequence(
        [torch.from_numpy(np.array(trial_rows, np.int64)) for trial_rows in rows], batch_first=True
    ).to(keys.device)
    size, per_epoch = schedule.batch_size, schedule.batches(int(lengths.min()))
    first_epoch, skipped = 0, 0
    if per_epoch:
        first_epoch, skipped = divmod(updates_done * batches_per_step, per_epoch)
    epochs = range(first_epoch, schedule.epochs)
    pending = table.new_empty(len(rows), 0, size)
    orders = _epoch_positions(keys, epochs, lengths, schedule)
    for epoch, order in enumerate(orders, first_epoch + 1):
        epoch_rows = table.gather(1, order[:, : per_epoch * size])
        n_batches = epoch_rows.shape[1] // size
        full_batches = epoch_rows[:, : n_batches * size].reshape(len(rows), n_batches, size)
        pending = torch.cat([pending, full_batches[:, skipped:]], dim=1)
        skipped = 0
        n_updates = pending.shape[1] // batches_per_step
        used = n_updates * batches_per_step
        update_rows = pending[:, :used].reshape(len(rows), n_updates, batches_per_step, size)
        updates = update_rows.transpose(0, 1).contiguous().unbind()
        pending = pending[:, used:]
        # rows are left over where incomplete minibatches are kept, which `per_epoch` counts
        incomplete = epoch_rows[:, n_batches * size :]
        if incomplete.shape[1]:
            updates = (*updates, incomplete.unsqueeze(1).contiguous())
        yield epoch, tuple(updates)


def _epoch_positions(
    keys: Tensor, epochs: range, lengths: Tensor, schedule: Schedule
) -> Iterator[Tensor]:
    """Yield the positions of each epoch, (R, max n_r).

    Where there are few rows, one call draws the positions of many epochs.
    """
    draw = permute_positions if schedule.sampling == "without_replacement" else draw_positions
    trials = len(keys)
    block = max(1, _POSITIONS_PER_DRAW // (trials * int(lengths.max())))
    for start in epochs[::block]:
        counters = torch.arange(
            start, min(start + block, epochs.stop), dtype=torch.int32, device=keys.device
        )
        steps = counters.repeat_interleave(trials).unsqueeze(1)
        orders = draw(keys.repeat(len(counters), 1), steps, lengths.repeat(len(counters)))
        yield from torch.split(orders, trials)
