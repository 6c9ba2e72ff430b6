"""Admission of sampled references: statistics with known values, the rules, JSON."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from scipy.stats import norm, rankdata

from bdl.errors import InputError
from bdl.references.certificate import (
    NO_ERRORS,
    RULES,
    Certificate,
    certify,
    estimate_batch_errors,
    estimate_moment_errors,
)
from bdl.references.mcmc import ChainDraws, Origin

pytest.importorskip("arviz_stats")
CHAINS, LENGTH = 4, 2000


def autoregressive(phi: float, dim: int, seed: int = 0, length: int = LENGTH) -> np.ndarray:
    """Stationary chains of variance 1 whose autocorrelation at lag k is phi^k."""
    noise = np.random.default_rng(seed).standard_normal((CHAINS, length, dim))
    theta = noise.copy()
    for t in range(1, length):
        theta[:, t] = phi * theta[:, t - 1] + np.sqrt(1 - phi**2) * noise[:, t]
    return theta


def draws(theta: np.ndarray) -> ChainDraws:
    """Chains with the statistics of a sampler that did nothing wrong."""
    shape = theta.shape[:2]
    energy, origin = (
        np.random.default_rng(99).standard_normal(shape),
        Origin("none", 1, 0, {"numpy": "2"}, 0.5),
    )
    return ChainDraws(theta, np.zeros(shape, bool), energy, np.full(shape, 3), origin)


@pytest.fixture
def good() -> ChainDraws:
    return draws(autoregressive(0.0, 3))


def broken(certificate: Certificate) -> set[tuple[int, int]]:
    return {(failure.rule.number, failure.position) for failure in certificate.broken_rules()}


def test_independent_draws_are_admitted_and_read_again(good):
    certificate = certify(good)
    assert certificate.admit() is certificate
    assert (certificate.chains, certificate.draws) == (CHAINS, LENGTH)
    assert set(certificate.origin.versions) == {"numpy", "arviz-stats"}
    assert Certificate.read(json.loads(json.dumps(asdict(certificate)))) == certificate


@pytest.mark.parametrize("content", [None, {}, {"r_hat": "high"}])
def test_other_content_is_no_certificate(content):
    with pytest.raises(InputError, match="not a certificate") as caught:
        Certificate.read(content)
    assert "\n" not in str(caught.value)


def test_r_hat_matches_its_definition():
    """Vehtari et al.

    (2021): the larger split R-hat of rank-normalised draws and of folded ones.
    """
    theta = autoregressive(0.5, 3)
    theta[2, :, 1] *= 1.3
    theta[0, :, 2] += 0.2

    def split_r_hat(values: np.ndarray) -> float:
        ranked = norm.ppf((rankdata(values).reshape(values.shape) - 3 / 8) / (values.size + 1 / 4))
        halves = ranked.reshape(2 * CHAINS, LENGTH // 2)
        within = halves.var(1, ddof=1).mean()
        return np.sqrt(1 - 2 / LENGTH + halves.mean(1).var(ddof=1) / within)

    expected = [
        max(split_r_hat(x), split_r_hat(abs(x - np.median(x)))) for x in np.moveaxis(theta, 2, 0)
    ]
    np.testing.assert_allclose(certify(draws(theta)).r_hat, expected, rtol=1e-6)


def test_bulk_ess_of_autoregressive_chains():
    """n (1 - phi) / (1 + phi).

    One estimate scatters by up to 15 %, the mean of 20 coordinates by 3.4 %.
    """
    estimates = np.array(certify(draws(autoregressive(0.5, 20))).bulk_ess)
    standard_error, expected = estimates.std(ddof=1) / np.sqrt(20), CHAINS * LENGTH / 3
    assert standard_error < 0.034 * expected
    assert abs(estimates.mean() - expected) < 4 * standard_error


def test_e_fmi_matches_its_definition(good):
    centred = good.energy - good.energy.mean(1, keepdims=True)
    expected = (np.diff(good.energy) ** 2).sum(1) / (centred**2).sum(1)
    np.testing.assert_allclose(certify(good).e_fmi, expected, rtol=1e-2)


def shifted(given: ChainDraws) -> None:
    given.theta[2, :, 1] += 0.5


def slow(given: ChainDraws) -> None:
    given.theta[..., 2] = autoregressive(0.95, 1)[..., 0]


def sticking_tails(given: ChainDraws) -> None:
    """Let the scale change slowly, which leaves the mean alone."""
    given.theta[..., 1] *= np.exp(2 * autoregressive(0.98, 1, seed=5)[..., 0])


def diverging(given: ChainDraws) -> None:
    given.diverging[3, [5, 9]] = True


def slow_energy(given: ChainDraws) -> None:
    given.energy[1] = autoregressive(0.95, 1)[0, :, 0]


@pytest.mark.parametrize(
    ("spoil", "rules", "position"),
    [
        (shifted, {1, 2}, 1),
        (slow, {1, 2, 3}, 2),
        (sticking_tails, {1, 3}, 1),
        (diverging, {4}, 3),
        (slow_energy, {5}, 1),
    ],
)
def test_what_is_wrong_breaks_its_rules_where_it_is(good, spoil, rules, position):
    spoil(good)
    assert broken(certify(good)) == {(rule, position) for rule in rules}


def test_the_first_failure_is_named(good):
    diverging(good)
    slow_energy(good)
    with pytest.raises(
        InputError, match=r"rule 4 \(divergences == 0\) fails at chain 3: 2 \(and 1 more\)"
    ) as caught:
        certify(good).admit()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("number", "passes", "fails"),
    [(1, 1.0099, 1.01), (2, 1000, 999.9), (3, 1000, 999.9), (4, 0, 1), (5, 0.2001, 0.2)],
)
def test_limits(good, number, passes, fails):
    certificate, rule = certify(good), RULES[number - 1]
    assert rule.number == number
    for value, expected in (
        (passes, set()),
        (fails, {(number, 1)}),
        (float("nan"), {(number, 1)}),
    ):
        values = list(getattr(certificate, rule.statistic))
        values[1] = value
        assert broken(replace(certificate, **{rule.statistic: tuple(values)})) == expected


def test_monte_carlo_errors_of_autoregressive_chains():
    """Draws are correlated by phi^k, their products by phi^2k.

    Each error has a relative standard error of 1/sqrt(2 * 99) = 7.1 %; batches of 80 draws bias it
    by under 2 %.
    """
    dim, n, phi = 24, CHAINS * LENGTH, 0.6
    mixing = np.tril(np.random.default_rng(3).standard_normal((dim, dim)) / np.sqrt(dim)) + np.eye(
        dim
    )
    errors = estimate_moment_errors(7 + autoregressive(phi, dim) @ mixing.T)
    truth = mixing @ mixing.T
    variance = truth.diagonal()
    slow, slow_squares = ((1 + p) / (1 - p) for p in (phi, phi**2))
    for actual, expected in (
        (errors.mean, np.sqrt(variance * slow / n)),
        (errors.sd, np.sqrt(variance * slow_squares / (2 * n))),
        (errors.covariance, np.sqrt((np.outer(variance, variance) + truth**2) * slow_squares / n)),
    ):
        ratio = actual / expected
        assert abs(ratio - 1).max() < 5 * 0.071
        assert abs(ratio.mean() - 1) < 0.02 + 4 * 0.071 / np.sqrt(dim)


def test_errors_of_chains_that_outlast_their_batches_are_those_of_effective_sizes():
    """Batches of 80 draws correlated by 0.99^k: their error of the mean is that of the theory, half of the true one.

    The variance of a sum of b draws is b (1 + phi) / (1 - phi) - 2 phi (1 - phi^b) / (1 - phi)^2.
    An effective sample size of 40 from 8000 draws is rough: a third, over 40 coordinates a tenth.
    """
    phi, n, b = 0.99, CHAINS * LENGTH, 80
    theta = autoregressive(phi, 40)
    slow = (1 + phi) / (1 - phi)
    within_batch = slow - 2 * phi * (1 - phi**b) / (1 - phi) ** 2 / b
    expected, too_small = np.sqrt([slow / n, within_batch / n])
    assert too_small < 0.57 * expected
    assert estimate_batch_errors(theta).mean.mean() == pytest.approx(too_small, rel=0.1)
    errors = estimate_moment_errors(theta)
    assert errors.mean.mean() == pytest.approx(expected, rel=0.2)
    assert errors.sd.mean() > 1.1 * estimate_batch_errors(theta).sd.mean()
    assert (errors.mean >= estimate_batch_errors(theta).mean).all()


def test_errors_of_white_noise_are_the_same_either_way(good):
    """1 / sqrt(n) of means, 1 / sqrt(2 n) of deviations: batches are known to 7 %, effective sizes to less."""
    n = CHAINS * LENGTH
    batches, errors = estimate_batch_errors(good.theta), estimate_moment_errors(good.theta)
    for one, other, expected in (
        (batches.mean, errors.mean, 1 / np.sqrt(n)),
        (batches.sd, errors.sd, 1 / np.sqrt(2 * n)),
    ):
        np.testing.assert_allclose(one, expected, rtol=0.25)
        np.testing.assert_allclose(other, expected, rtol=0.25)
        assert (other < 1.25 * one).all()


@pytest.mark.parametrize(
    ("spoil", "stated"),
    [(lambda _: None, True), (shifted, False), (slow, False), (diverging, True)],
)
def test_errors_are_stated_only_where_chains_agree_and_are_long_enough(good, spoil, stated):
    """Rules 1 and 2."""
    spoil(good)
    certificate = certify(good)
    assert certificate.supports_errors is stated
    assert certificate.errors().startswith("largest Monte-Carlo errors: mean") is stated
    assert (certificate.errors() == NO_ERRORS) is not stated


def test_certificate_holds_the_errors(good):
    certificate, errors = certify(good), estimate_moment_errors(good.theta)
    assert certificate.mean_error == tuple(errors.mean)
    assert certificate.sd_error == tuple(errors.sd)
    for i, row in enumerate(certificate.covariance_error):
        assert row == pytest.approx(errors.covariance[i, : i + 1], rel=5e-3)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d: d.theta.__setitem__((0, 7, 1), np.nan), "coordinate 1 is not finite"),
        (lambda d: d.theta.__setitem__((..., 2), 1.5), "coordinate 2 never moves"),
        (lambda d: d.energy.__setitem__((0, 0), np.inf), "energy 0 is not finite"),
    ],
)
def test_failed_samplers_are_refused(good, spoil, message):
    spoil(good)
    with pytest.raises(InputError, match=message):
        certify(good)


@pytest.mark.parametrize("values", [(1.001, np.nan), (np.nan, 1.001)])
def test_a_statistic_that_is_not_a_number_is_the_worst(good, values):
    certificate = replace(certify(good), r_hat=values)
    assert np.isnan(certificate.worst_of(RULES[0]))
    assert "R-hat nan" in certificate.describe_failures()


def test_a_worst_value_that_is_not_a_number_is_named_with_its_place(good):
    """Of a certificate that was read, whose NaN is an object of its own."""
    content = json.loads(json.dumps(asdict(certify(good))))
    content["r_hat"][1] = float("nan")
    certificate = Certificate.read(json.loads(json.dumps(content)))
    assert "worst nan at coordinate 1: BROKEN" in certificate.worst()[0]
