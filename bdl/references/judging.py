"""Numbered rules that draws must pass before they count as the truth, and certificates that hold their statistics."""

import operator
from collections.abc import Iterable
from typing import ClassVar, Literal, NamedTuple, Self

from pydantic import TypeAdapter, ValidationError

from bdl.errors import InputError
from bdl.references.mcmc import Origin

CERTIFIED = "certified"
"""What rows say of a fit whose draws keep all rules."""


def told(broken: Iterable[int]) -> str:
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

    def passes(self, value: float) -> bool:
        """Return whether a value keeps the bound; NaN does not."""
        relations = {"<": operator.lt, ">": operator.gt, ">=": operator.ge, "==": operator.eq}
        return bool(relations[self.relation](value, self.limit))


class Failure(NamedTuple):
    """A rule that was broken, by which coordinate or chain, and its value."""

    rule: Rule
    position: int
    value: float

    def __str__(self) -> str:
        number, statistic, relation, limit, of = self.rule
        return f"rule {number} ({statistic} {relation} {limit:g}) fails at {of} {self.position}: {self.value:.4g}"


class Judged:
    """A frozen dataclass of statistics, each a tuple with one value for every coordinate, input or chain."""

    rules: ClassVar[tuple[Rule, ...]]
    """What its statistics have to keep."""
    advice: ClassVar[str]
    """What to do where they do not."""
    chains: int
    draws: int
    origin: Origin

    def failures(self) -> list[Failure]:
        """List every broken rule with its coordinates or chains."""
        return [
            Failure(rule, position, value)
            for rule in self.rules
            for position, value in enumerate(getattr(self, rule.statistic))
            if not rule.passes(value)
        ]

    def admit(self) -> Self:
        """Return the certificate itself if all rules are kept.

        Raises
        ------
        InputError
            Naming the first failure and counting the others.
        """
        failures = self.failures()
        if failures:
            others = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
            raise InputError(f"reference refused: {failures[0]}{others}; {self.advice}")
        return self

    def summary(self) -> str:
        """Describe in a few words how good the draws are, and what they cost."""
        r_hat, ess = (getattr(self, name) for name in ("r_hat", "bulk_ess"))
        told = (
            f"{self.chains} x {self.draws} draws by {self.origin.sampler} in {self.origin.seconds:.0f} s, "
            f"R-hat {max(r_hat):.4f}, smallest ESS {min(*ess, *getattr(self, 'tail_ess')):.0f}"  # noqa: B009
        )
        broken = dict.fromkeys(f"rule {failure.rule.number}" for failure in self.failures())
        return f"{told}; NOT CERTIFIED, breaks {', '.join(broken)}" if broken else told

    def worst_of(self, rule: Rule) -> float:
        """Return the value nearest to breaking a rule, or farthest beyond it."""
        values: tuple[float, ...] = getattr(self, rule.statistic)
        return max(values) if rule.relation in ("<", "==") else min(values)

    def worst(self) -> list[str]:
        """Name every rule with the worst value that it met, and where."""
        lines = []
        for rule in self.rules:
            values, worst = getattr(self, rule.statistic), self.worst_of(rule)
            bound = f"{rule.statistic} {rule.relation} {rule.limit:g} for every {rule.of}"
            kept = "" if rule.passes(worst) else ": BROKEN"
            lines.append(f"rule {rule.number}: {bound}; worst {worst:.5g} at {rule.of} {values.index(worst)}{kept}")
        return lines

    def errors(self) -> str:
        """Describe the largest Monte-Carlo errors in a line."""
        raise NotImplementedError

    def to_json(self) -> str:
        """Write as JSON."""
        return TypeAdapter(type(self)).dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; neither arviz nor a sampler is needed.

        Raises
        ------
        InputError
            If the text is not a certificate.
        """
        try:
            return TypeAdapter(cls).validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise InputError(f"not a certificate: {where}: {first['msg']}; sample the reference again") from None
