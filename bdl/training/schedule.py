"""How long, in what pieces and at what rates a fit trains."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from bdl.errors import InputError, unknown
from bdl.methods.counters import StepCounters
from bdl.registry import Registry
from bdl.training.rates import Constant

if TYPE_CHECKING:
    from bdl.methods.base import Method

Sampling = Literal["without_replacement", "with_replacement"]
Incomplete = Literal["drop", "keep"]
Precision = Literal["float32", "float64"]

RATES = Registry(
    "rate",
    {
        "constant": "bdl.training.rates:Constant",
        "decay": "bdl.training.rates:Decay",
        "power": "bdl.training.rates:Power",
        "exponential": "bdl.training.rates:Exponential",
        "ramp": "bdl.training.rates:Ramp",
        "warmup": "bdl.training.rates:Warmup",
    },
    contracts=("bdl.training.schedule:Rate",),
)


class Rate(Protocol):
    """How a learning rate changes; a frozen dataclass whose fields are its YAML settings."""

    def factor(self, counters: StepCounters) -> float:
        """Return what the learning rate is multiplied by in the update that `counters` counts last."""
        ...


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
        Group of parameters to its rate; the empty name stands for all that are not named. Without any it is constant.
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
        return -(-rows // self.batch_size) if self.incomplete == "keep" else rows // self.batch_size

    def updates(self, rows: int, batches_per_step: int) -> int:
        """Count the updates of one fit; minibatches that are left over at the end are dropped."""
        return self.epochs * self.batches(rows) // batches_per_step

    @property
    def constant(self) -> bool:
        """Whether the learning rates stay as they are."""
        return all(isinstance(rate, Constant) for rate in self.rates.values())

    def check(self, method: "Method") -> None:
        """Hold it against a method.

        Raises
        ------
        InputError
            If the method has no such group of parameters, has no learning rate, or cannot take incomplete minibatches.
        """
        groups = groups_of(method)
        for name in self.rates:
            if name and name not in groups:
                raise unknown("group of parameters", name, groups)
        if not self.constant and "learning_rate" not in method.hyper:
            raise InputError(f"{type(method).__name__} has no learning_rate: remove the schedule of the rate")
        if self.incomplete == "keep" and method.batches_per_step > 1:
            raise InputError(
                f"incomplete minibatches cannot be kept where an update takes {method.batches_per_step} of them: write "
                "incomplete: drop, or let the method take one"
            )

    def factors(self, counters: StepCounters, groups: tuple[str, ...]) -> tuple[float, ...]:
        """Return the factor of each group's learning rate in an update; of all parameters where there are no groups."""
        default = self.rates.get("")
        rates = [self.rates.get(group, default) for group in groups or ("",)]
        return tuple(1.0 if rate is None else rate.factor(counters) for rate in rates)


def groups_of(method: "Method") -> tuple[str, ...]:
    """Name the groups of parameters to which a method gives learning rates of their own."""
    groups: tuple[str, ...] = getattr(method, "groups", ())
    return groups
