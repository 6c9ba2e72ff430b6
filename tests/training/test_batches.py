"""The order of rows: permutations, minibatches and updates.

Seeds are fixed; `ALARM` is the probability that a statistical test fails for a perfect shuffle.
"""

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy import stats

from bdl.rng import trial_keys
from bdl.training.batches import minibatches, shuffled, updates_per_fit

ALARM = 1e-4


def keys(n: int) -> torch.Tensor:
    return trial_keys([("trial", i) for i in range(n)], "shuffle")


def drawn(rows: list[np.ndarray], **changes: int) -> list[torch.Tensor]:
    """The minibatches of each trial, in the order in which they are used: one (n, M) tensor a trial."""
    settings = {"batch_size": 5, "epochs": 3, "batches_per_step": 1} | changes
    updates = torch.cat(list(minibatches(rows, keys(len(rows)), **settings)))
    return [updates[:, r].flatten(0, 1) for r in range(len(rows))]


def test_every_trial_has_a_permutation_of_its_own_length():
    lengths = torch.tensor([1, 2, 7, 40, 41])
    order = shuffled(keys(5), 0, lengths)
    assert order.shape == (5, 41)
    for line, n in zip(order, lengths.tolist(), strict=True):
        assert sorted(line[:n].tolist()) == list(range(n))


def test_trials_and_epochs_have_orders_of_their_own():
    lengths = torch.full((20,), 30)
    orders = [tuple(line.tolist()) for epoch in range(20) for line in shuffled(keys(20), epoch, lengths)]
    assert len(set(orders)) == 400


@pytest.mark.parametrize("word", [0, -1, 2**31 - 1, -(2**31)])
def test_equal_random_words_keep_the_order_of_the_rows(word):
    """Ties are broken by position, whatever sorts."""

    def constant(keys, step, n):
        return (torch.full((len(keys), n), word, dtype=torch.int32),) * 2

    order = shuffled(keys(2), 0, torch.tensor([9, 6]), constant)
    assert order[0].tolist() == list(range(9))
    assert order[1, :6].tolist() == list(range(6))


def test_words_of_either_sign_sort_as_numbers():
    words = torch.tensor([[3, -5, 2**31 - 1]], dtype=torch.int32), torch.tensor([[-(2**31), 0, 4]], dtype=torch.int32)
    order = shuffled(keys(1), 0, torch.tensor([6]), lambda keys, step, n: words)
    assert order[0].tolist() == [1, 2, 3, 0, 5, 4]  # the words interleave: 3, -2^31, -5, 0, 2^31 - 1, 4


def test_a_permutation_does_not_depend_on_longer_companions():
    own = keys(3)
    together = shuffled(own, 2, torch.tensor([11, 12, 97]))
    for r, n in enumerate((11, 12, 97)):
        assert torch.equal(shuffled(own[r : r + 1], 2, torch.tensor([n]))[0], together[r, :n])


def assert_uniform(orders: torch.Tensor) -> None:
    """All 24 orders of four rows are equally likely: chi-squared, 23 degrees of freedom."""
    codes = (orders * torch.tensor([64, 16, 4, 1])).sum(1)
    possible = [64 * a + 16 * b + 4 * c + d for a, b, c, d in permutations(range(4))]
    counts = torch.bincount(codes, minlength=256)[possible]
    assert counts.sum() == len(orders)
    assert stats.chisquare(counts.numpy()).pvalue > ALARM


def test_permutations_are_uniform_over_trials():
    assert_uniform(shuffled(keys(24_000), 0, torch.full((24_000,), 4)))


def test_permutations_are_uniform_over_epochs():
    one = keys(1)
    assert_uniform(torch.cat([shuffled(one, epoch, torch.tensor([4])) for epoch in range(4_800)]))


def test_a_row_is_as_likely_in_every_minibatch():
    """Each row of 50 falls in each of ten minibatches of five with probability 1/10.

    A row takes one place a permutation, so a table of counts has 49 x 9 degrees of freedom, and the places
    exclude each other as in sampling without replacement: the statistic times 49/50 is chi-squared.
    """
    order = shuffled(keys(20_000), 0, torch.full((20_000,), 50))
    batch = torch.empty_like(order).scatter_(1, order, (torch.arange(50) // 5).expand_as(order))
    counts = torch.stack([(batch == b).sum(0) for b in range(10)]).double()
    statistic = ((counts - 2_000).square() / 2_000).sum().item() * 49 / 50
    assert stats.chi2.sf(statistic, 49 * 9) > ALARM
    assert stats.chi2.cdf(statistic, 49 * 9) > ALARM


def test_an_epoch_draws_without_replacement_and_drops_the_rest():
    """23 rows make four minibatches of 5; three rows, other ones every time, sit an epoch out."""
    rows = np.arange(100, 123)
    (batches,) = drawn([rows], epochs=12)
    epochs = batches.view(12, 20)
    left_out = set()
    for epoch in epochs:
        assert len(set(epoch.tolist())) == 20
        assert set(epoch.tolist()) <= set(rows)
        left_out |= set(rows) - set(epoch.tolist())
    assert len(left_out) > 3


def test_whole_epochs_use_every_row():
    rows = np.array([7, 3, 30, 4, 8, 1, 99, 2, 50, 6])
    (batches,) = drawn([rows], epochs=4)
    assert all(sorted(epoch.tolist()) == sorted(rows) for epoch in batches.view(4, 10))


def test_updates_mix_epochs_and_drop_leftovers():
    """Four minibatches an epoch: updates of three take 3, 1 + 2, 2 + 1, 3 of them."""
    rows = [np.arange(20), np.arange(30, 50)]
    stream = list(minibatches(rows, keys(2), batch_size=5, epochs=3, batches_per_step=3))
    assert [tuple(updates.shape) for updates in stream] == [(1, 2, 3, 5), (1, 2, 3, 5), (2, 2, 3, 5)]
    assert all(updates.is_contiguous() and updates.dtype == torch.int64 for updates in stream)
    for single, grouped in zip(drawn(rows), drawn(rows, batches_per_step=3), strict=True):
        assert torch.equal(single, grouped)
    for single, grouped in zip(drawn(rows, epochs=2), drawn(rows, epochs=2, batches_per_step=3), strict=True):
        assert torch.equal(single[:6], grouped)  # two of eight are left over


@pytest.mark.parametrize(
    ("n", "batch_size", "epochs", "batches_per_step", "expected"),
    [(398, 10, 120, 4, 1170), (23, 5, 1, 4, 1), (23, 5, 3, 5, 2), (4, 5, 9, 1, 0), (5, 5, 3, 4, 0), (5, 5, 4, 4, 1)],
)
def test_the_number_of_updates(n, batch_size, epochs, batches_per_step, expected):
    assert updates_per_fit(n, batch_size, epochs, batches_per_step) == expected
    settings = {"batch_size": batch_size, "epochs": epochs, "batches_per_step": batches_per_step}
    assert sum(map(len, minibatches([np.arange(n)], keys(1), **settings))) == expected


def test_minibatches_do_not_depend_on_companions():
    """Trials with 20 to 24 rows all have four minibatches of 5 an epoch."""
    rows = [np.arange(20 + r) + 100 * r for r in range(5)]
    together = drawn(rows)
    settings = {"batch_size": 5, "epochs": 3, "batches_per_step": 1}
    for r, own in enumerate(rows):
        alone = torch.cat(list(minibatches([own], keys(5)[r : r + 1], **settings)))
        assert torch.equal(alone[:, 0].flatten(0, 1), together[r])
