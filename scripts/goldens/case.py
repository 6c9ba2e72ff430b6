"""A golden case: what is computed, what it rests on, and how its digits are told and compared."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bdl import versions
from bdl.data import DATASETS
from bdl.methods import METHODS
from bdl.metrics import METRICS
from bdl.models import LIKELIHOODS, MODELS, PRIORS
from bdl.posteriors import FAMILIES
from bdl.references import REFERENCES
from bdl.registry import Registry
from bdl.training.schedule import RATES

REGISTRIES: dict[str, Registry] = {
    registry.kind: registry
    for registry in (
        METHODS,
        MODELS,
        LIKELIHOODS,
        PRIORS,
        METRICS,
        DATASETS,
        REFERENCES,
        RATES,
        FAMILIES,
    )
}
CONSTANTS = ("engine", "preparation", "scoring", "search")
"""What has its version in `bdl.versions`."""

Digits = dict[str, list[float]]
DOUBLE = 1e-9
"""Float64 keeps 16 digits. Sums are taken in another order by vectors of another width, and a few
updates multiply that error by up to a thousand; stored are 12 digits. Any change of a formula
moves digits by far more.
"""
SINGLE = 1e-4
"""Float32 keeps 7 digits, of which sums in another order and a few updates leave 4 to 5."""
SOLVER = 1e-5
"""A descent ends where its own tolerance is met, which rounding moves: the root of the 1e-13 that
is left of a cost is
3e-7, and a flat optimum multiplies it."""
CANCELLING = 1e-6
"""Many layers, or a small difference of large numbers, multiply the rounding of float64, which is
another one with vector instructions of another processor, by up to 1e8.
"""
_SHOWN, _PROJECTIONS, _PROJECTED = 6, 4, 100_000


@dataclass(frozen=True)
class Case:
    """One golden case.

    Parameters
    ----------
    name
        Unique within its kind.
    owner
        What it is a trial of: ``kind:name`` of a registered component, or a name in `CONSTANTS`.
    compute
        Gives tensors by name.
    others
        What else its digits rest on.
    tolerance
        Largest difference of digits, relative to the largest number of a tensor's digits.
    settings
        What was chosen to stand for all settings of the same branches; stored.
    """

    name: str
    owner: str
    compute: Callable[[], Mapping[str, Any]]
    others: tuple[str, ...] = ()
    tolerance: float = DOUBLE
    settings: Any = None

    @property
    def versions(self) -> dict[str, int]:
        """Versions of all that the digits rest on."""
        return {name: version(name) for name in (self.owner, *self.others)}

    def digits(self) -> Digits:
        """Compute the digits."""
        return {name: told(value) for name, value in self.compute().items()}


def version(name: str) -> int:
    """Return the version of what a case rests on."""
    if name in CONSTANTS:
        number: int = getattr(versions, f"{name.upper()}_VERSION")
        return number
    kind, _, own = name.partition(":")
    return versions.version_of(REGISTRIES[kind].get(own))


def told(value: Any) -> list[float]:
    """Return the digits of a tensor: its values if they are few, else its norm and some fixed projections."""
    tensor = (
        value if isinstance(value, Tensor) else torch.tensor(np.asarray(value, dtype=np.float64))
    )
    flat = tensor.detach().cpu().double().flatten()
    if len(flat) > _SHOWN:
        some = flat[:: 1 + len(flat) // _PROJECTED]
        places = torch.arange(1, len(some) + 1, dtype=torch.float64)
        rows = [torch.cos(places * places.sqrt() * step) for step in range(1, _PROJECTIONS)]
        flat = torch.stack(
            [(row @ some) * math.sqrt(2 / len(some)) for row in rows] + [flat.norm()]
        )
    return [float(f"{number:.12g}") for number in flat.tolist()]


def moved(stored: Digits, found: Digits, tolerance: float) -> str:
    """Return the name of the first digits that moved beyond the tolerance, or an empty text."""
    for name in {**stored, **found}:
        before, after = stored.get(name, []), found.get(name, [])
        scale = max((abs(number) for number in before if math.isfinite(number)), default=0.0)
        if len(before) != len(after) or not all(
            one == other
            or (math.isnan(one) and math.isnan(other))
            or abs(one - other) <= tolerance * scale
            for one, other in zip(before, after, strict=True)
        ):
            return name
    return ""
