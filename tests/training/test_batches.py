"""The order of rows: permutations, minibatches and updates.

Seeds are fixed; `ALARM` is the probability that a statistical test fails for a perfect shuffle.
"""

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy import stats

from bdl.rng import trial_keys
from bdl.training import batches
from bdl.training.batches import draw_positions as with_replacement
from bdl.training.batches import iterate_minibatches, permute_positions
from bdl.training.schedule import Schedule

ALARM = 1e-4
LOW, HIGH = -(2**31), 2**31 - 1


def keys(n: int) -> torch.Tensor:
    return trial_keys([("trial", i) for i in range(n)], "shuffle")


def updates(
    rows: list[np.ndarray], own=None, batches_per_step: int = 1, done: int = 0, **changes
) -> list[list]:
    """The row numbers of each update, by epoch.

    Three epochs of minibatches of 5 unless told otherwise.
    """
    schedule = Schedule(**{"batch_size": 5, "epochs": 3} | changes)
    own = keys(len(rows)) if own is None else own
    stream = iterate_minibatches(
        rows, own, schedule, batches_per_step=batches_per_step, updates_done=done
    )
    return [list(found) for _, found in stream]


def drawn(rows: list[np.ndarray], own=None, **changes) -> list[torch.Tensor]:
    """The minibatches of each trial, in the order in which they are used: one (n, M) tensor a trial."""
    stacked = torch.stack([update for epoch in updates(rows, own, **changes) for update in epoch])
    return [stacked[:, r].flatten(0, 1) for r in range(len(rows))]


@pytest.mark.parametrize("order", [permute_positions, with_replacement])
def test_positions_do_not_depend_on_longer_companions(order):
    lengths = [1, 2, 11, 12, 97]
    together = order(keys(5), 2, torch.tensor(lengths))
    for r, n in enumerate(lengths):
        own = together[r, :n]
        assert torch.equal(order(keys(5)[r : r + 1], 2, torch.tensor([n]))[0], own)
        assert (
            own.max() < n if order is with_replacement else sorted(own.tolist()) == list(range(n))
        )


@pytest.mark.parametrize(
    ("order", "first", "second", "expected"),
    [
        # the words interleave: 3, -2^31, -5, 0, 2^31 - 1, 4
        pytest.param(
            permute_positions, [3, -5, HIGH], [LOW, 0, 4], [1, 2, 3, 0, 5, 4], id="signs"
        ),
        *(
            pytest.param(permute_positions, [word] * 3, [word] * 3, range(6), id=f"ties {word}")
            for word in (0, -1, LOW, HIGH)
        ),
        # 0, the largest, 1 and just under a half
        pytest.param(with_replacement, [0, 1], [-1, HIGH], [0, 3, 0, 1], id="fractions"),
    ],
)
def test_words_become_positions(monkeypatch, order, first, second, expected):
    """Ties are broken by position, whatever sorts."""
    words = tuple(torch.tensor([own], dtype=torch.int32) for own in (first, second))
    monkeypatch.setattr(batches, "random_bits", lambda keys, step, n: words)
    assert order(keys(1), 0, torch.tensor([len(expected)])).tolist() == [list(expected)]


@pytest.mark.parametrize("over", ["trials", "epochs"])
def test_permutations_are_uniform(over):
    """All 24 orders of four rows are equally likely: chi-squared, 23 degrees of freedom."""
    if over == "trials":
        orders = permute_positions(keys(24_000), 0, torch.full((24_000,), 4))
    else:
        epochs = torch.arange(4_800, dtype=torch.int32).unsqueeze(1)
        orders = permute_positions(keys(1).expand(4_800, 2), epochs, torch.full((4_800,), 4))
    codes = (orders * torch.tensor([64, 16, 4, 1])).sum(1)
    possible = [64 * a + 16 * b + 4 * c + d for a, b, c, d in permutations(range(4))]
    counts = torch.bincount(codes, minlength=256)[possible]
    assert counts.sum() == len(orders)
    assert stats.chisquare(counts.numpy()).pvalue > ALARM


def test_a_row_is_as_likely_in_every_minibatch():
    """Each row of 50 falls in each of ten minibatches of five with probability 1/10.

    A row takes one place a permutation, so a table of counts has 49 x 9 degrees of freedom, and
    the places exclude each other as in sampling without replacement: the statistic times 49/50 is
    chi-squared.
    """
    order = permute_positions(keys(20_000), 0, torch.full((20_000,), 50))
    batch = torch.empty_like(order).scatter_(1, order, (torch.arange(50) // 5).expand_as(order))
    counts = torch.stack([(batch == b).sum(0) for b in range(10)]).double()
    statistic = ((counts - 2_000).square() / 2_000).sum().item() * 49 / 50
    assert ALARM < stats.chi2.sf(statistic, 49 * 9) < 1 - ALARM


def test_with_replacement_every_row_is_as_likely_every_time():
    """40,000 draws from seven rows: chi-squared with 6 degrees of freedom.

    An epoch repeats rows.
    """
    counts = torch.bincount(
        with_replacement(keys(5_714), 0, torch.full((5_714,), 7)).flatten(), minlength=7
    )
    assert len(counts) == 7
    assert stats.chisquare(counts.numpy()).pvalue > ALARM
    (batches,) = drawn([np.arange(100, 123)], sampling="with_replacement", epochs=12)
    assert set(batches.flatten().tolist()) == set(range(100, 123))
    assert any(len(set(epoch.tolist())) < 20 for epoch in batches.view(12, 20))


def test_an_epoch_draws_without_replacement_and_drops_the_rest():
    """23 rows make four minibatches of 5; three rows, other ones every time, sit an epoch out."""
    rows = np.arange(100, 123)[::-1]
    (batches,) = drawn([rows], epochs=12)
    seen = [set(epoch.tolist()) for epoch in batches.view(12, 20)]
    assert all(len(epoch) == 20 and epoch <= set(rows) for epoch in seen)
    assert len(set(rows) - set.intersection(*seen)) > 3


def test_updates_mix_epochs_and_drop_leftovers():
    """Four minibatches an epoch: updates of three take 3, 1 + 2, 2 + 1, 3 of them."""
    rows = [np.arange(20), np.arange(30, 50)]
    stream = updates(rows, batches_per_step=3)
    assert [[tuple(rows.shape) for rows in epoch] for epoch in stream] == [
        [(2, 3, 5)],
        [(2, 3, 5)],
        [(2, 3, 5)] * 2,
    ]
    assert all(
        rows.is_contiguous() and rows.dtype == torch.int64 for epoch in stream for rows in epoch
    )
    for single, grouped in zip(drawn(rows), drawn(rows, batches_per_step=3), strict=True):
        assert torch.equal(single, grouped)
    for single, grouped in zip(
        drawn(rows, epochs=2), drawn(rows, epochs=2, batches_per_step=3), strict=True
    ):
        assert torch.equal(single[:6], grouped)  # two of eight are left over


@pytest.mark.parametrize(
    ("n", "batch_size", "epochs", "batches_per_step", "expected"),
    [
        (398, 10, 120, 4, 1170),
        (23, 5, 1, 4, 1),
        (23, 5, 3, 5, 2),
        (4, 5, 9, 1, 0),
        (5, 5, 3, 4, 0),
        (5, 5, 4, 4, 1),
    ],
)
def test_the_number_of_updates(n, batch_size, epochs, batches_per_step, expected):
    assert Schedule(epochs, batch_size).updates(n, batches_per_step) == expected
    stream = updates(
        [np.arange(n)], batches_per_step=batches_per_step, batch_size=batch_size, epochs=epochs
    )
    assert len(stream) == epochs
    assert sum(map(len, stream)) == expected


@pytest.mark.parametrize(
    ("incomplete", "batches_per_step"), [("drop", 1), ("drop", 3), ("drop", 7), ("keep", 1)]
)
@pytest.mark.parametrize("sampling", ["without_replacement", "with_replacement"])
def test_going_on_after_any_update_gives_what_is_left(incomplete, sampling, batches_per_step):
    """Epochs of four minibatches and three rows; seven minibatches are more than an epoch has."""
    rows = [np.arange(23), np.arange(50, 73)]
    settings = {
        "batches_per_step": batches_per_step,
        "epochs": 9,
        "incomplete": incomplete,
        "sampling": sampling,
    }
    whole = [update for epoch in updates(rows, **settings) for update in epoch]
    for done in range(len(whole) + 1):
        rest = [update for epoch in updates(rows, done=done, **settings) for update in epoch]
        assert len(rest) == len(whole) - done
        assert all(map(torch.equal, rest, whole[done:]))


def test_incomplete_minibatches_can_be_kept():
    """23 rows: four minibatches of 5 and one of 3, which together are all rows.

    25 rows leave nothing over.
    """
    rows = [np.arange(100, 123), np.arange(23)]
    for kept, dropped in zip(updates(rows, incomplete="keep"), updates(rows), strict=True):
        assert [tuple(update.shape) for update in kept] == [(2, 1, 5)] * 4 + [(2, 1, 3)]
        assert all(map(torch.equal, kept, dropped))
        for r, own in enumerate(rows):
            assert sorted(torch.cat([update[r, 0] for update in kept]).tolist()) == own.tolist()
    assert [len(epoch) for epoch in updates([np.arange(25)], incomplete="keep")] == [5, 5, 5]
    assert Schedule(3, 5, incomplete="keep").updates(23, 1) == 15
