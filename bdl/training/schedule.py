"""Length of a fit, its minibatches and its learning rates."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

from annotated_types import Gt, Le

from bdl.errors import InputError, unknown_name_error
from bdl.methods.counters import StepCounters
from bdl.registry import Registry

if TYPE_CHECKING:
    from bdl.methods.base import MinibatchMethod

Sampling = Literal["without_replacement", "with_replacement"]
Incomplete = Literal["drop", "keep"]
Precision = Literal["float32", "float64"]

RATES = Registry(
    "rate",
    {
        "constant": "bdl.training.schedule:Constant",
        "decay": "bdl.training.schedule:Decay",
        "power": "bdl.training.schedule:Power",
        "exponential": "bdl.training.schedule:Exponential",
        "linear": "bdl.training.schedule:LinearDecay",
    },
    contract="bdl.training.schedule:Rate",
)


class Rate(Protocol):
    """How a learning rate changes; a frozen dataclass whose fields are its YAML settings."""

    def factor(self, counters: StepCounters) -> float:
        """Return the factor of the learning rate in the update that `counters` counts last."""
        ...


@dataclass(frozen=True)
class Constant:
    """The rate as it is given."""

    def factor(self, counters: StepCounters) -> float:
        """Return 1."""
        return 1.0


@dataclass(frozen=True)
class Decay:
    """1 / (1 + t^p) in the number t of the update, from 1.

    Parameters
    ----------
    power
        The p above; the larger, the faster the rate falls.
    """

    power: Annotated[float, Gt(0)] = 0.51

    def factor(self, counters: StepCounters) -> float:
        """Return 1 / (1 + t^p)."""
        return 1 / (1 + math.pow(counters.updates, self.power))


@dataclass(frozen=True)
class Power:
    """t^-p in the number t of the update, from 1.

    Parameters
    ----------
    power
        The p above; the larger, the faster the rate falls.
    """

    power: Annotated[float, Gt(0)]

    def factor(self, counters: StepCounters) -> float:
        """Return t^-p."""
        return math.pow(counters.updates, -self.power)


@dataclass(frozen=True)
class Exponential:
    """A factor once more after each epoch: b^e in the number e of the epoch, from 0.

    Parameters
    ----------
    base
        The b above, by which the rate is multiplied after each epoch.
    """

    base: Annotated[float, Gt(0), Le(1)]

    def factor(self, counters: StepCounters) -> float:
        """Return b^e."""
        return self.base**counters.epoch


@dataclass(frozen=True)
class LinearDecay:
    """A straight fall over the whole fit, from 1 to 0."""

    def factor(self, counters: StepCounters) -> float:
        """Return 1 - (t - 1) / T in the number t of the update, of T.

        The last update has 1 / T.
        """
        return 1 - (counters.updates - 1) / counters.total


@dataclass(frozen=True)
class Schedule:
    """How long, in what pieces and at what rates to train.

    Parameters
    ----------
    epochs
        Passes over the training rows.
    batch_size
        Rows in a minibatch, M.
    rates
        Group of parameters to its rate; the empty name stands for all that are not named. Without
        any it is constant.
    sampling
        An epoch is a permutation of the rows, or as many rows drawn from all with replacement.
    incomplete
        Drop the last rows of an epoch that do not fill a minibatch, or make a smaller one of them.
    dtype
        Precision of everything that is trained.
    """

    epochs: int
    batch_size: int
    rates: Mapping[str, Rate] = field(default_factory=dict)
    sampling: Sampling = "without_replacement"
    incomplete: Incomplete = "drop"
    dtype: Precision = "float32"

    def batches(self, rows: int) -> int:
        """Count the minibatches of an epoch over so many rows."""
        return (
            -(-rows // self.batch_size) if self.incomplete == "keep" else rows // self.batch_size
        )

    def updates(self, rows: int, batches_per_step: int) -> int:
        """Count the updates of one fit; minibatches that are left over at the end are dropped."""
        return self.epochs * self.batches(rows) // batches_per_step

    @cached_property
    def constant(self) -> bool:
        """Whether the learning rates stay as they are."""
        return all(isinstance(rate, Constant) for rate in self.rates.values())

    def check(self, method: "MinibatchMethod") -> None:
        """Raise `InputError` if a method cannot train by this schedule.

        It lacks a group of parameters, has no learning rate, or no use for incomplete minibatches.
        """
        for name in self.rates:
            if name and name not in method.groups:
                raise unknown_name_error("group of parameters", name, method.groups)
        if not self.constant and "learning_rate" not in method.hyper:
            raise InputError(
                f"{type(method).__name__} has no learning_rate: remove the schedule of the rate"
            )
        if self.incomplete == "keep" and method.batches_per_step > 1:
            raise InputError(
                "incomplete minibatches cannot be kept where an update takes "
                f"{method.batches_per_step} of them: write incomplete: drop, or let the method "
                "take one"
            )

    def factors(self, counters: StepCounters, groups: tuple[str, ...]) -> tuple[float, ...]:
        """Return the factor of each group's learning rate in an update.

        Of all parameters where there are no groups.
        """
        default = self.rates.get("")
        rates = [self.rates.get(group, default) for group in groups or ("",)]
        return tuple(1.0 if rate is None else rate.factor(counters) for rate in rates)
