"""Numbered rules that draws must pass before they count as the truth, their Monte-Carlo errors,
and certificates.

R-hat is the rank-normalised split one, and both effective sample sizes are those of Vehtari,
Gelman, Simpson, Carpenter & Buerkner (2021), Bayesian Analysis 16(2); E-FMI is that of Betancourt
(2016), arXiv:1604.00695, section 3. arviz computes them.
"""

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from bdl.errors import InputError
from bdl.references.mcmc import ChainDraws, Origin, import_optional

CERTIFIED = "certified"
"""What rows say of a fit whose draws keep all rules."""
CONVERGENCE_RULES = (1, 2)
"""Numbers of the rules for R-hat and bulk effective sample size, of every kind of certificate."""
ERROR_STATISTICS = ("mean_error", "sd_error", "density_error")
"""Monte-Carlo errors among the statistics that rules bound."""
NO_ERRORS = "no Monte-Carlo error is known of chains that disagree or are too short"


FAILURES = {
    "r_hat": "chains disagree",
    "bulk_ess": "effective draws are too few",
    "tail_ess": "effective draws of the tails are too few",
    "mean_error": "the mean is uncertain",
    "sd_error": "the standard deviation is uncertain",
    "density_error": "the density is uncertain",
    "divergences": "trajectories diverge",
    "e_fmi": "energies mix slowly",
    "agreement": "chains from modes and from the prior differ",
}
"""What a broken rule means, by the statistic that it bounds."""
_STATISTIC_NAMES = {"r_hat": "R-hat", "e_fmi": "E-FMI"}
_RELATION_WORDS = {"<": "at most", ">": "at least", ">=": "at least", "==": "exactly"}


def describe_broken_rules(broken: Iterable[int]) -> str:
    """Return what rows and tables say of draws, by the numbers of the rules that they break."""
    numbers = ", ".join(map(str, dict.fromkeys(broken)))
    return f"breaks rules {numbers}" if numbers else CERTIFIED


class Rule(NamedTuple):
    """A bound that every coordinate, input, test row or chain must keep."""

    number: int
    statistic: str
    """The field of the certificate that it bounds."""
    relation: Literal["<", ">", ">=", "=="]
    limit: float
    of: Literal["coordinate", "input", "test row", "chain"]

    def __str__(self) -> str:
        return f"{self.number}. {self.statistic} {self.relation} {self.limit:g}, every {self.of}"

    def describe_failure(self, value: float) -> str:
        """Write that a value breaks the rule: what this means, the value and what is allowed."""
        name = _STATISTIC_NAMES.get(self.statistic, "")
        bound = f"{_RELATION_WORDS[self.relation]} {self.limit:g} allowed"
        return f"{FAILURES[self.statistic]}: {f'{name} {value:.3g}'.strip()}, {bound}"

    def passes(self, value: float) -> bool:
        """Return whether a value keeps the bound; NaN does not."""
        holds = {"<": operator.lt, ">": operator.gt, ">=": operator.ge, "==": operator.eq}[
            self.relation
        ]
        return bool(holds(value, self.limit))


class BrokenRule(NamedTuple):
    """A rule that was broken, by which coordinate or chain, and its value."""

    rule: Rule
    position: int
    value: float

    def __str__(self) -> str:
        number, statistic, relation, limit, of = self.rule
        return (
            f"rule {number} ({statistic} {relation} {limit:g}) fails at {of} "
            f"{self.position}: {self.value:.4g}"
        )


@dataclass(frozen=True, kw_only=True)
class DrawQuality:
    """What is known of the quality of draws: statistics, one value for every coordinate, input or
    chain.
    """

    rules: ClassVar[tuple[Rule, ...]]
    """What its statistics have to keep."""
    advice: ClassVar[str]
    """What to do where they do not."""

    r_hat: tuple[float, ...]
    bulk_ess: tuple[float, ...]
    tail_ess: tuple[float, ...]
    e_fmi: tuple[float, ...]
    divergences: tuple[float, ...]
    mean_error: tuple[float, ...]
    sd_error: tuple[float, ...]
    chains: int
    draws: int
    origin: Origin

    def broken_rules(self) -> list[BrokenRule]:
        """List every broken rule with its coordinates or chains."""
        broken = []
        for rule in self.rules:
            for position, value in enumerate(getattr(self, rule.statistic)):
                if not rule.passes(value):
                    broken.append(BrokenRule(rule, position, value))
        return broken

    def admit(self) -> Self:
        """Return the certificate itself if all rules are kept.

        `InputError` names the first failure.
        """
        broken = self.broken_rules()
        if broken:
            remainder = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
            raise InputError(f"reference refused: {broken[0]}{remainder}; {self.advice}")
        return self

    def summary(self) -> str:
        """Describe in a few words how good the draws are, and what they cost."""
        summary = (
            f"{self.chains} x {self.draws} draws by {self.origin.sampler} in "
            f"{self.origin.seconds:.0f} s, "
            f"R-hat {max(self.r_hat):.4f}, smallest ESS {min(*self.bulk_ess, *self.tail_ess):.0f}"
        )
        failures = self.describe_failures()
        return f"{summary}; NOT CERTIFIED: {failures}" if failures else summary

    def describe_failures(self) -> str:
        """Describe every broken rule by its worst value; empty if all rules are kept."""
        broken = dict.fromkeys(failure.rule for failure in self.broken_rules())
        return "; ".join(rule.describe_failure(self.worst_of(rule)) for rule in broken)

    def worst_of(self, rule: Rule) -> float:
        """Return the value nearest to breaking a rule, or farthest beyond it; NaN breaks any."""
        values: tuple[float, ...] = getattr(self, rule.statistic)
        for value in values:
            if math.isnan(value):
                return value
        # "==" bounds counts by 0, so that the largest is the worst
        return max(values) if rule.relation in ("<", "==") else min(values)

    @property
    def supports_errors(self) -> bool:
        """Whether chains agree and are long enough for Monte-Carlo errors: rules 1 and 2 are kept.

        Chains in two modes, or shorter than their autocorrelation time, do not show in themselves
        how far their mean is from the truth.
        """
        return not any(failure.rule.number in CONVERGENCE_RULES for failure in self.broken_rules())

    def worst(self) -> list[str]:
        """Name every rule with the worst value that it met, and where."""
        lines = []
        for rule in self.rules:
            bound = f"{rule.statistic} {rule.relation} {rule.limit:g} for every {rule.of}"
            if rule.statistic in ERROR_STATISTICS and not self.supports_errors:
                lines.append(f"rule {rule.number}: {bound}; {NO_ERRORS}")
                continue
            values, worst = getattr(self, rule.statistic), self.worst_of(rule)
            verdict = "" if rule.passes(worst) else ": BROKEN"
            lines.append(
                f"rule {rule.number}: {bound}; worst {worst:.5g} at {rule.of} "
                f"{values.index(worst)}{verdict}"
            )
        return lines

    def errors(self) -> str:
        """Describe the largest Monte-Carlo errors in a line, or say why there are none."""
        return self._largest_errors() if self.supports_errors else NO_ERRORS

    def _largest_errors(self) -> str:
        raise NotImplementedError

    @classmethod
    def read(cls, content: object) -> Self:
        """Read what an info file has; neither arviz nor a sampler is needed.

        `InputError` if it is no certificate.
        """
        try:
            return TypeAdapter(cls).validate_python(content)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(step) for step in first["loc"])
            raise InputError(
                f"not a certificate: {field}: {first['msg']}; sample the reference again"
            ) from None


FloatArray = NDArray[np.float64]
BATCHES_PER_CHAIN = 25
FEWEST_DRAWS = 4 * BATCHES_PER_CHAIN


RULES = (
    Rule(1, "r_hat", "<", 1.01, "coordinate"),
    Rule(2, "bulk_ess", ">=", 1000, "coordinate"),
    Rule(3, "tail_ess", ">=", 1000, "coordinate"),
    Rule(4, "divergences", "==", 0, "chain"),
    Rule(5, "e_fmi", ">", 0.2, "chain"),
)
FUNCTION_RULES = (
    Rule(1, "r_hat", "<", 1.01, "input"),
    Rule(2, "bulk_ess", ">=", 400, "input"),
    Rule(3, "tail_ess", ">=", 400, "input"),
    Rule(4, "mean_error", "<", 0.1, "input"),
    Rule(5, "sd_error", "<", 0.1, "input"),
    Rule(6, "density_error", "<", 0.25, "test row"),
    Rule(7, "divergences", "<", 0.005, "chain"),
    Rule(8, "e_fmi", ">", 0.2, "chain"),
    Rule(9, "agreement", "<", 5, "input"),
)
"""Rules of chains over the parameters of a network, in function space."""


class MomentErrors(NamedTuple):
    """Monte-Carlo standard errors of moments estimated from draws."""

    mean: FloatArray
    """Of the mean, (D,)."""
    sd: FloatArray
    """Of the standard deviations, (D,)."""
    covariance: FloatArray
    """Of the entries of the covariance, (D, D)."""


@dataclass(frozen=True, kw_only=True)
class Certificate(DrawQuality):
    """What is known of the quality of a sampled reference.

    Coordinates come in the order of the parameter vector. Standard errors are those of
    `estimate_moment_errors`; of the symmetric covariance, row i holds the i + 1 entries up to the
    diagonal, to three digits.
    """

    covariance_error: tuple[tuple[float, ...], ...]

    rules: ClassVar = RULES
    advice: ClassVar = "raise draws or tune, or check the model"

    def _largest_errors(self) -> str:
        of_covariance = max(map(max, self.covariance_error))
        return (
            f"largest Monte-Carlo errors: mean {max(self.mean_error):.2g}, "
            f"sd {max(self.sd_error):.2g}, covariance entry {of_covariance:.2g}"
        )


@dataclass(frozen=True, kw_only=True)
class FunctionCertificate(DrawQuality):
    """What is known of the quality of chains, as functions.

    Inputs are the test rows, after them the grid, and after it the logarithm of a precision that
    is sampled. Errors are Monte-Carlo standard errors: of mean and standard deviation of the
    output, in its standard deviations, and of the log predictive density of a test row, in nats.
    Divergences are shares of the trajectories.
    """

    density_error: tuple[float, ...]
    agreement: tuple[float, ...]
    """Difference between chains that started at modes and chains that started in the prior, in
    standard errors: the larger one of those of mean and standard deviation.
    """
    gradients: int
    """Evaluations of the log posterior and its gradient after warm-up."""

    rules: ClassVar = FUNCTION_RULES
    advice: ClassVar = "raise draws or tune, or measure against it nevertheless by --uncertified"

    def _largest_errors(self) -> str:
        return (
            f"largest Monte-Carlo errors: mean {max(self.mean_error):.2g} sd, "
            f"sd {max(self.sd_error):.2g} of it, log density {max(self.density_error):.2g} nats"
        )


def certify(draws: ChainDraws) -> Certificate:
    """Judge draws, whether good or bad: every statistic of the rules, and Monte-Carlo errors.

    `InputError` if a value is not finite, or a coordinate or an energy never moves; or if arviz is
    not installed.
    """
    for name, values in (("coordinate", draws.theta), ("energy", draws.energy[..., None])):
        for problem, bad in (
            ("is not finite", ~np.isfinite(values).all((0, 1))),
            ("never moves", np.ptp(values, axis=(0, 1)) == 0),
        ):
            if bad.any():
                raise InputError(
                    f"{name} {bad.argmax()} {problem}: the sampler failed, check the model"
                )
    errors = estimate_moment_errors(draws.theta)
    return Certificate(
        **compute_statistics(draws.theta, draws, 17),
        divergences=tuple(draws.diverging.sum(1).tolist()),
        mean_error=round_digits(errors.mean, 17),
        sd_error=round_digits(errors.sd, 17),
        covariance_error=tuple(
            round_digits(row[: i + 1], 3) for i, row in enumerate(errors.covariance)
        ),
    )


def compute_statistics(f: FloatArray, draws: ChainDraws, digits: int) -> dict[str, Any]:
    """Compute what every certificate says of functions of draws, (C, S, m), to so many digits.

    `InputError` if arviz is not installed.
    """
    stats, axes = (
        import_optional("arviz_stats.base").array_stats,
        {"chain_axis": 0, "draw_axis": 1},
    )
    # the statistics are arviz's, so that its version belongs to what the certificate rests on
    versions = draws.origin.versions | {"arviz-stats": version("arviz-stats")}
    return {
        "r_hat": round_digits(stats.rhat(f, method="rank", **axes), digits),
        "bulk_ess": round_digits(stats.ess(f, method="bulk", **axes), digits),
        "tail_ess": round_digits(stats.ess(f, method="tail", prob=(0.05, 0.95), **axes), digits),
        "e_fmi": round_digits(stats.bfmi(draws.energy, **axes), digits),
        "chains": f.shape[0],
        "draws": f.shape[1],
        "origin": replace(draws.origin, versions=versions),
    }


def round_digits(values: Any, digits: int) -> tuple[float, ...]:
    """Round to so many digits; 17 are all that a number has."""
    return tuple(float(f"{value:.{digits}g}") for value in np.asarray(values, dtype=np.float64))


def estimate_moment_errors(theta: FloatArray) -> MomentErrors:
    """Estimate standard errors of the pooled mean, standard deviations and covariance of draws (C,
    S, D).

    Each is the larger one of that of `estimate_batch_errors` and sd / sqrt(ESS), with the standard
    deviation of what is averaged and its effective sample size: draws that stay correlated over a
    whole batch make the first one too small, as do chains that differ. The effective sample size
    of a product of two coordinates is the smaller one of their squares. `InputError` if arviz is
    not installed.
    """
    by_batches = estimate_batch_errors(theta)
    ess = import_optional("arviz_stats.base").array_stats.ess
    ess_of_mean = ess(theta, chain_axis=0, draw_axis=1, method="mean")
    ess_of_squares = ess(theta, chain_axis=0, draw_axis=1, method="sd")
    centred = (theta - theta.mean((0, 1))).reshape(-1, theta.shape[-1])
    squares = centred**2
    covariance = centred.T @ centred / len(centred)
    # a difference of nearly equal numbers, which rounding may leave negative
    variance_of_products = (squares.T @ squares / len(centred) - covariance**2).clip(min=0)
    of_covariance = np.maximum(
        by_batches.covariance,
        np.sqrt(variance_of_products / np.minimum.outer(ess_of_squares, ess_of_squares)),
    )
    sd = np.sqrt(covariance.diagonal())
    return MomentErrors(
        np.maximum(by_batches.mean, sd / np.sqrt(ess_of_mean)),
        of_covariance.diagonal() / (2 * sd),
        of_covariance,
    )


def estimate_batch_errors(theta: FloatArray) -> MomentErrors:
    """Estimate the standard errors of `estimate_moment_errors` by means of batches.

    They are sqrt(variance of the batches / number of batches), where a batch is one of
    `BATCHES_PER_CHAIN` equal stretches of a chain, and what is averaged in it are draws (for the
    mean) and products of centred draws (for the covariance); the error of sd_i is that of its
    square over 2 sd_i. A remainder at the start of each chain is left out (Flegal & Jones 2010,
    Annals of Statistics 38(2), section 3). With 4 chains an error is itself known to 7 % (99
    degrees of freedom). It is too small where draws stay correlated over a whole batch.
    """
    draws, dim = theta.shape[1:]
    size = draws // BATCHES_PER_CHAIN
    batches = theta[:, draws - size * BATCHES_PER_CHAIN :].reshape(-1, size, dim)
    count = len(batches)
    centred = batches - batches.mean((0, 1))
    covariance = sum(batch.T @ batch for batch in centred) / (count * size)
    scatter = sum((batch.T @ batch / size - covariance) ** 2 for batch in centred)
    of_covariance = np.sqrt(scatter / ((count - 1) * count))
    of_mean = centred.mean(1).std(0, ddof=1) / np.sqrt(count)
    return MomentErrors(
        of_mean, of_covariance.diagonal() / (2 * np.sqrt(covariance.diagonal())), of_covariance
    )


def check_length(chains: int, draws: int) -> None:
    """Raise `InputError` unless so many chains, in two groups, of so many draws can be judged."""
    if chains % 2 or draws < FEWEST_DRAWS:
        raise InputError(
            f"{chains} chains of {draws} draws cannot be certified: "
            f"give an even number of chains, of {FEWEST_DRAWS} draws or more"
        )
