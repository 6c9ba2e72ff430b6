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
from bdl.training.batches import drawn as with_replacement
from bdl.training.batches import minibatches, shuffled
from bdl.training.schedule import Schedule

ALARM = 1e-4


def keys(n: int) -> torch.Tensor:
    return trial_keys([("trial", i) for i in range(n)], "shuffle")


def updates(rows: list[np.ndarray], own=None, batches_per_step: int = 1, done: int = 0, **changes) -> list[list]:
    """The row numbers of each update, by epoch; three epochs of minibatches of 5 unless told otherwise."""
    schedule = Schedule(**{"batch_size": 5, "epochs": 3} | changes)
    own = keys(len(rows)) if own is None else own
    stream = minibatches(rows, own, schedule, batches_per_step=batches_per_step, done=done)
    return [list(found) for _, found in stream]


def drawn(rows: list[np.ndarray], own=None, **changes) -> list[torch.Tensor]:
    """The minibatches of each trial, in the order in which they are used: one (n, M) tensor a trial."""
    stacked = torch.stack([update for epoch in updates(rows, own, **changes) for update in epoch])
    return [stacked[:, r].flatten(0, 1) for r in range(len(rows))]


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
def test_equal_random_words_keep_the_order_of_the_rows(word, monkeypatch):
    """Ties are broken by position, whatever sorts."""

    def constant(keys, step, n):
        return (torch.full((len(keys), n), word, dtype=torch.int32),) * 2

    monkeypatch.setattr(batches, "random_bits", constant)
    order = shuffled(keys(2), 0, torch.tensor([9, 6]))
    assert order[0].tolist() == list(range(9))
    assert order[1, :6].tolist() == list(range(6))


def test_words_of_either_sign_sort_as_numbers(monkeypatch):
    words = torch.tensor([[3, -5, 2**31 - 1]], dtype=torch.int32), torch.tensor([[-(2**31), 0, 4]], dtype=torch.int32)
    monkeypatch.setattr(batches, "random_bits", lambda keys, step, n: words)
    order = shuffled(keys(1), 0, torch.tensor([6]))
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
    stream = updates(rows, batches_per_step=3)
    assert [[tuple(rows.shape) for rows in epoch] for epoch in stream] == [[(2, 3, 5)], [(2, 3, 5)], [(2, 3, 5)] * 2]
    assert all(rows.is_contiguous() and rows.dtype == torch.int64 for epoch in stream for rows in epoch)
    for single, grouped in zip(drawn(rows), drawn(rows, batches_per_step=3), strict=True):
        assert torch.equal(single, grouped)
    for single, grouped in zip(drawn(rows, epochs=2), drawn(rows, epochs=2, batches_per_step=3), strict=True):
        assert torch.equal(single[:6], grouped)  # two of eight are left over


@pytest.mark.parametrize(
    ("n", "batch_size", "epochs", "batches_per_step", "expected"),
    [(398, 10, 120, 4, 1170), (23, 5, 1, 4, 1), (23, 5, 3, 5, 2), (4, 5, 9, 1, 0), (5, 5, 3, 4, 0), (5, 5, 4, 4, 1)],
)
def test_the_number_of_updates(n, batch_size, epochs, batches_per_step, expected):
    assert Schedule(epochs, batch_size).updates(n, batches_per_step) == expected
    stream = updates([np.arange(n)], batches_per_step=batches_per_step, batch_size=batch_size, epochs=epochs)
    assert len(stream) == epochs
    assert sum(map(len, stream)) == expected


def test_minibatches_do_not_depend_on_companions():
    """Trials with 20 to 24 rows all have four minibatches of 5 an epoch."""
    rows = [np.arange(20 + r) + 100 * r for r in range(5)]
    together = drawn(rows)
    for r, own in enumerate(rows):
        (alone,) = drawn([own], keys(5)[r : r + 1])
        assert torch.equal(alone, together[r])


@pytest.mark.parametrize("incomplete", ["drop", "keep"])
@pytest.mark.parametrize("sampling", ["without_replacement", "with_replacement"])
@pytest.mark.parametrize("batches_per_step", [1, 3, 7])
def test_going_on_after_any_update_gives_what_is_left(incomplete, sampling, batches_per_step):
    """Epochs of four minibatches and three rows; seven minibatches are more than an epoch has."""
    if incomplete == "keep" and batches_per_step > 1:
        pytest.skip("refused")
    rows = [np.arange(23), np.arange(50, 73)]
    settings = {"batches_per_step": batches_per_step, "epochs": 9, "incomplete": incomplete, "sampling": sampling}
    whole = [update for epoch in updates(rows, **settings) for update in epoch]
    for done in range(len(whole) + 1):
        rest = [update for epoch in updates(rows, done=done, **settings) for update in epoch]
        assert len(rest) == len(whole) - done
        assert all(map(torch.equal, rest, whole[done:]))


def test_incomplete_minibatches_can_be_kept():
    """23 rows: four minibatches of 5 and one of 3, which together are all rows; 25 rows leave nothing over."""
    rows = [np.arange(100, 123), np.arange(23)]
    for epoch in updates(rows, incomplete="keep"):
        assert [tuple(update.shape) for update in epoch] == [(2, 1, 5)] * 4 + [(2, 1, 3)]
        for r, own in enumerate(rows):
            assert sorted(torch.cat([update[r, 0] for update in epoch]).tolist()) == own.tolist()
    dropped = updates(rows)
    for kept, epoch in zip(updates(rows, incomplete="keep"), dropped, strict=True):
        assert all(map(torch.equal, kept, epoch))
    assert [len(epoch) for epoch in updates([np.arange(25)], incomplete="keep")] == [5, 5, 5]
    assert Schedule(3, 5, incomplete="keep").updates(23, 1) == 15


def test_with_replacement_every_row_is_as_likely_every_time():
    """40,000 draws from seven rows: chi-squared with 6 degrees of freedom; an epoch repeats rows."""
    positions = with_replacement(keys(1), 0, torch.tensor([40_000]))
    assert positions.shape == (1, 40_000)
    counts = torch.bincount(with_replacement(keys(5_714), 0, torch.full((5_714,), 7)).flatten(), minlength=7)
    assert len(counts) == 7
    assert stats.chisquare(counts.numpy()).pvalue > ALARM
    (batches,) = drawn([np.arange(100, 123)], sampling="with_replacement", epochs=12)
    assert set(batches.flatten().tolist()) == set(range(100, 123))
    assert any(len(set(epoch.tolist())) < 20 for epoch in batches.view(12, 20))


def test_a_draw_with_replacement_does_not_depend_on_companions():
    own, lengths = keys(3), (11, 12, 97)
    together = with_replacement(own, 2, torch.tensor(lengths))
    for r, n in enumerate(lengths):
        assert torch.equal(with_replacement(own[r : r + 1], 2, torch.tensor([n]))[0], together[r, :n])
        assert int(together[r, :n].max()) < n


def test_the_extreme_words_are_the_first_and_the_last_row(monkeypatch):
    words = torch.tensor([[0, 1]], dtype=torch.int32), torch.tensor([[-1, 2**31 - 1]], dtype=torch.int32)
    monkeypatch.setattr(batches, "random_bits", lambda keys, step, n: words)
    positions = with_replacement(keys(1), 0, torch.tensor([4]))
    assert positions.tolist() == [[0, 3, 0, 1]]  # 0, the largest, 1 and just under a half
