"""How one fit trains, when it is scored meanwhile, and what it may take, as a benchmark file describes it."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from annotated_types import Gt, Le
from pydantic import Field, TypeAdapter, WrapValidator, model_validator

from bdl.spec.components import RateComponent
from bdl.spec.fields import MOST, Count, Settings
from bdl.training.schedule import Incomplete, Precision, Sampling, Schedule


def _rate_or_groups(raw: Any, handler: object) -> Any:
    """Read one rate, which has a name, or else a rate for each group; problems are those of the form that is meant."""
    if isinstance(raw, RateComponent):
        return raw
    named = not isinstance(raw, Mapping) or isinstance(raw.get("name"), str) or not raw
    return RateComponent.model_validate(raw) if named else _GROUPS.validate_python(raw)


_GROUPS: TypeAdapter[Any] = TypeAdapter(Mapping[str, RateComponent])


class Training(Settings):
    """How long one fit trains, and on what."""

    epochs: Count
    """Passes over the training rows."""
    batch_size: Count
    """Rows of a minibatch."""
    schedule: Annotated[RateComponent | Mapping[str, RateComponent], WrapValidator(_rate_or_groups)] = Field(
        default_factory=lambda: RateComponent.model_validate({"name": "constant"})
    )
    """Factor of the learning rate, or one for each group of parameters."""
    sampling: Sampling = "without_replacement"
    """Permute the rows in each epoch, or draw every row from all."""
    incomplete: Incomplete = "drop"
    """Last minibatch of an epoch; `keep` needs a method with one minibatch an update."""
    dtype: Precision = "float32"
    """Type of the numbers that are trained."""

    def build(self) -> Schedule:
        """Make what the engine trains by; a rate for all parameters is under the empty name."""
        groups = {"": self.schedule} if isinstance(self.schedule, RateComponent) else self.schedule
        rates = {group: rate.build() for group, rate in groups.items()}
        return Schedule(self.epochs, self.batch_size, rates, self.sampling, self.incomplete, self.dtype)


class Record(Settings):
    """When a fit is evaluated while it runs."""

    unit: Literal["epochs", "updates", "observations"]
    """What is counted; observations are those of a stream."""
    every: Count | None = None
    """Interval between evaluations; null with `log`."""
    log: bool = False
    """Evaluate at 1, 2, 5, 10, 20, 50 and so on instead."""
    first: Count = 1
    """First evaluation with `log`."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.log == (self.every is not None):
            raise ValueError("give either every, or log: true")
        if self.first != 1 and not self.log:
            raise ValueError(
                "first: evaluations every so often begin with every itself; remove first, or use log: true"
            )
        return self


class Limits(Settings):
    """Limits of each group; one that goes beyond them is failed rows with the reason, and the rest goes on."""

    minutes: Annotated[float, Gt(0), Le(MOST)] | None = None
    """Wall time; null for as long as it takes."""
    gigabytes: Annotated[float, Gt(0), Le(MOST)] | None = None
    """Memory of the process that it runs in, in GiB, where the system can limit it; null for all that there is."""


STREAM_RECORD = Record(unit="observations", log=True, first=100)
"""When a stream is evaluated, unless a benchmark says otherwise."""
