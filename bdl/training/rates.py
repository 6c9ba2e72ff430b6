"""How a learning rate changes in the course of a fit: factors of the hyper-parameter ``learning_rate``."""

import math
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Le

from bdl.methods.counters import StepCounters


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
class Ramp:
    """A smooth rise, sigmoid(e - centre) in the number e of the epoch, from 0 (VIFA paper 2023).

    Parameters
    ----------
    centre
        Epoch in which the factor is 1/2.
    """

    centre: Annotated[float, Ge(0)] = 2.0

    def factor(self, counters: StepCounters) -> float:
        """Return sigmoid(e - centre), of less than 0.5 by way of exp, which does not overflow there."""
        rise = math.exp(-abs(counters.epoch - self.centre))
        return (1.0 if counters.epoch >= self.centre else rise) / (1 + rise)


@dataclass(frozen=True)
class Warmup:
    """A straight rise to 1 over the first epochs.

    Parameters
    ----------
    epochs
        Length of the rise; its last update has the whole rate.
    """

    epochs: Annotated[float, Gt(0)] = 1.0

    def factor(self, counters: StepCounters) -> float:
        """Return t / (epochs x updates of an epoch) in the number t of the update, at most 1."""
        return min(1.0, counters.updates / (self.epochs * counters.per_epoch))
