"""The counter-based generator: the cipher's known answers, its normals, and its keys.

Seeds are fixed, so a pass stays a pass. The thresholds are what fresh seeds would exceed with the
stated probability, hence a test that fails after a change has found a defect.
"""

import math

import pytest
import torch
from scipy import stats

from bdl import rng
from bdl.rng import normal_slice, random_bits, random_normals, threefry, trial_keys

STEP = torch.tensor(0, dtype=torch.int32)
ALARM = 1e-4
"""Probability that one statistical test fails for a perfect generator."""


def int32(*words: int) -> torch.Tensor:
    """Unsigned 32-bit words as the int32 tensor with the same bits."""
    return torch.tensor([word - (word >> 31 << 32) for word in words], dtype=torch.int32)


def keys(n: int) -> torch.Tensor:
    """Keys that differ in few bits, the hardest case for a weak generator."""
    return torch.stack(
        [torch.arange(n, dtype=torch.int32), torch.zeros(n, dtype=torch.int32)], dim=1
    )


PINNED_KEY = [157035551, 918863145]
PINNED_NORMALS = [[1.6755420, 0.1651259], [1.9990051, -1.2912816]]


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_known_answers(key, counter, expected):
    """The three vectors published with Random123 for threefry2x32 with 20 rounds."""
    words = threefry(int32(*key).split(1), int32(*counter).split(1))
    assert torch.equal(torch.cat(words), int32(*expected))


def test_bits_are_the_cipher_of_step_and_index():
    """Row r, column i encrypts the counter (step, i) with key r."""
    some = trial_keys([("a",), ("b",), ("c",)], "s")
    first, second = random_bits(some, torch.tensor(-5, dtype=torch.int32), 4)
    assert first.dtype == second.dtype == torch.int32
    for r in range(3):
        for i in range(4):
            expected = threefry(some[r].split(1), int32(0xFFFFFFFB, i).split(1))
            assert (first[r, i], second[r, i]) == expected


@pytest.mark.parametrize(
    ("dtype", "bits", "error"), [(torch.float32, 24, 5e-6), (torch.float64, 32, 1e-14)]
)
def test_normals_are_box_muller_of_the_bits(dtype, bits, error):
    """float32 rounds an angle below 2 pi by up to 2.4e-7, and a radius below 5.8 multiplies it."""
    some = trial_keys([("a",), ("b",)], "s")
    words = (
        (own.double() % 2**32).div(2 ** (32 - bits)).floor()
        for own in random_bits(some, STEP, 100)
    )
    first, second = (own / 2**bits for own in words)
    radius, angle = (-2 * (first + 2.0**-bits).log()).sqrt(), 2 * math.pi * second
    cosine, sine = random_normals(some, STEP, 100, dtype)
    assert cosine.dtype == sine.dtype == dtype
    torch.testing.assert_close(cosine.double(), radius * angle.cos(), rtol=0, atol=error)
    torch.testing.assert_close(sine.double(), radius * angle.sin(), rtol=0, atol=error)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("half", [0, 1], ids=["cosine", "sine"])
def test_normals_have_the_normal_law(half, dtype):
    x = random_normals(keys(64), STEP, 1 << 14, dtype)[half].double().flatten().numpy()
    n, limit = x.size, stats.norm.isf(ALARM / 2)
    assert abs(x.mean()) < limit / math.sqrt(n)
    assert abs(x.var() - 1) < limit * math.sqrt(2 / n)
    assert abs(stats.skew(x)) < limit * math.sqrt(6 / n)
    assert abs(stats.kurtosis(x)) < limit * math.sqrt(24 / n)
    assert stats.kstest(x, "norm").pvalue > ALARM
    for threshold in (2.0, 3.0, 4.0):
        for tail in (x > threshold, x < -threshold):
            assert stats.binomtest(int(tail.sum()), n, stats.norm.sf(threshold)).pvalue > ALARM


def uncorrelated(rows: torch.Tensor) -> bool:
    """n r^2 summed over the pairs of independent rows is chi-squared, one degree of freedom a pair."""
    count, n = rows.shape
    statistic = n * torch.corrcoef(rows).tril(-1).square().sum().item()
    return bool(stats.chi2.sf(statistic, count * (count - 1) // 2) > ALARM)


LAYOUTS = {
    "trials": lambda n: random_normals(keys(64), STEP, n)[0],
    "streams": lambda n: random_normals(trial_keys([("trial",)], "a") ^ keys(64), STEP, n)[1],
    "steps": lambda n: torch.cat(
        [random_normals(keys(1), STEP + step, n)[0] for step in range(64)]
    ),
    "neighbours": lambda n: random_normals(keys(1), STEP, 64 * n)[0].reshape(n, 64).T,
    "halves": lambda n: torch.cat(random_normals(keys(1), STEP, n)),
}
"""Rows that must be independent of each other."""


@pytest.mark.parametrize("power", [1, 2], ids=["values", "squares"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_are_uncorrelated(layout, power):
    assert uncorrelated(LAYOUTS[layout](8192).double() ** power)


def test_rejects_a_correlated_pair():
    """The statistic has power: a correlation of 0.1 between two rows in 64 is seen."""
    rows = random_normals(keys(64), STEP, 8192)[0].double()
    rows[1] = rows[1] + 0.25 * rows[0]
    assert not uncorrelated(rows)


@pytest.mark.parametrize(("dtype", "bits"), [(torch.float32, 24), (torch.float64, 32)])
def test_extreme_bits_give_finite_normals(monkeypatch, dtype, bits):
    """The smallest uniform is 2^-24 or 2^-32, the largest 1."""
    words = int32(0, 0xFFFFFFFF, 0x7FFFFFFF, 0x80000000)
    monkeypatch.setattr(
        rng, "random_bits", lambda *_: (words.repeat(4), words.repeat_interleave(4))
    )
    cosine, sine = random_normals(keys(1), STEP, 16, dtype)
    radius = (cosine.square() + sine.square()).sqrt()[:4].double()
    expected = torch.tensor([2 * bits, 0.0, 2.0, 2.0]).mul(math.log(2)).sqrt().double()
    torch.testing.assert_close(radius, expected, rtol=1e-6, atol=0)
    assert torch.isfinite(torch.cat([cosine, sine])).all()


@pytest.mark.parametrize("n", [1, 7, 751])
def test_a_trial_draws_the_same_alone_and_in_a_batch(n):
    """Its key does not depend on the others, either, and a longer draw begins with the shorter one."""
    batch = trial_keys([("trial", i) for i in range(150)], "noise")
    together = random_normals(batch, STEP + 3, n)
    longer = random_normals(batch, STEP + 3, n + 100)
    for i in (0, 1, 77, 149):
        alone = random_normals(trial_keys([("trial", i)], "noise"), STEP + 3, n)
        for half, whole, more in zip(alone, together, longer, strict=True):
            assert torch.equal(half[0], whole[i])
            assert torch.equal(half[0], more[i, :n])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("pairs", [1, 7, 100])
def test_slices_are_parts_of_the_whole_stream(pairs, dtype):
    """Empty ones, those within a half, those across the middle, and everything.

    Also under vmap.
    """
    batch = trial_keys([("a",), ("b",), ("c",)], "predict")
    whole = torch.cat(random_normals(batch, STEP + 3, pairs, dtype), 1)
    ends = sorted({0, 1, pairs // 2, pairs - 1, pairs, pairs + 1, 2 * pairs - 1, 2 * pairs})
    for start in ends:
        for stop in (end for end in ends if end >= start):
            part = normal_slice(batch, STEP + 3, pairs, start, stop, dtype)
            assert part.dtype == dtype
            assert torch.equal(part, whole[:, start:stop]), (start, stop)
    one = torch.func.vmap(
        lambda key: normal_slice(key.unsqueeze(0), STEP + 3, pairs, 0, pairs + 1, dtype)[0]
    )
    assert torch.equal(one(batch), whole[:, : pairs + 1])


def test_a_slice_beyond_one_counter_word_counts_on_in_the_other():
    """Pair 2^32 + 5 of a stream of 2^33 encrypts the counter (step + 1, 5).

    Its sine is as far behind the middle.
    """
    pairs, far = 1 << 33, (1 << 32) + 5
    expected = [half[0, 5] for half in random_normals(keys(1), STEP + 8, 6)]
    found = [
        normal_slice(keys(1), STEP + 7, pairs, place, place + 1).item()
        for place in (far, pairs + far)
    ]
    assert found == expected


def test_a_stored_run_can_be_drawn_again():
    """Keys outlive a process and a release: these values are fixed for good."""
    key = trial_keys([(1, "vifa-uci", "boston", "vifa", 3, 7, None)], "init")
    assert key.dtype == torch.int32
    assert key.tolist() == [PINNED_KEY]
    cosine, sine = random_normals(key, torch.tensor(2, dtype=torch.int32), 2)
    torch.testing.assert_close(
        torch.cat([cosine, sine]), torch.tensor(PINNED_NORMALS), rtol=1e-5, atol=1e-6
    )


def test_identities_and_streams_have_their_own_keys():
    identities = [
        (seed, data, split) for seed in range(10) for data in "abc" for split in range(20)
    ]
    both = torch.cat([trial_keys(identities, "init"), trial_keys(identities, "step")])
    assert len(both.unique(dim=0)) == 2 * len(identities)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((("ab", "c"), "s"), (("a", "bc"), "s")),
        (((1, 12), "s"), ((11, 2), "s")),
        ((("a", ""), "s"), (("a",), "s")),
        ((("a", "b"), "c"), (("a",), "bc")),
        ((("a, b",), "s"), (("a", "b"), "s")),
    ],
)
def test_the_boundaries_of_an_identity_count(one, other):
    assert not torch.equal(trial_keys([one[0]], one[1]), trial_keys([other[0]], other[1]))
