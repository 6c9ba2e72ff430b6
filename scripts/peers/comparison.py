"""Contenders take turns, and costs are relative to the first."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

Name = TypeVar("Name", bound=Hashable)


class Contender(NamedTuple):
    """What is timed."""

    seconds: Callable[[], float]
    """Runs it; seconds per unit of cost."""
    setup_s: float | None = None
    """Seconds of compilation; None if nothing is compiled."""


@dataclass(frozen=True)
class Cost:
    """What one contender costs."""

    us: float
    """Microseconds per unit of cost, median of the repeats."""
    us_min: float
    """The same, fastest repeat."""
    ratio: float
    """Cost relative to the first contender, median of the repeats."""
    setup_s: float | None
    """Seconds of compilation; None if nothing is compiled."""


def compare(contenders: Mapping[Name, Contender], repeats: int) -> dict[Name, Cost]:
    """Time the contenders in turn; the first is what ratios refer to."""
    seconds = np.array([[each.seconds() for each in contenders.values()] for _ in range(repeats)])
    ratios = np.median(seconds / seconds[:, :1], axis=0)
    return {
        name: Cost(
            1e6 * float(np.median(own)),
            1e6 * float(own.min()),
            float(ratio),
            contenders[name].setup_s,
        )
        for name, own, ratio in zip(contenders, seconds.T, ratios, strict=True)
    }
