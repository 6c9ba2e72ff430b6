"""What gradients and updates of the methods cost, beside VIFA: the engine on one workload, contenders in turn."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import NamedTuple

from bdl.methods.base import MinibatchMethod
from bdl.methods.bbb import BayesByBackprop
from bdl.methods.mc_dropout import McDropout
from bdl.methods.slang import Slang, SlangOnlineEig
from bdl.methods.swag import Swag
from bdl.methods.vifa import Vifa
from peers.comparison import Contender, Cost, compare
from peers.timing import engine_seconds, engine_setup
from peers.workload import Workload, make


class Entry(NamedTuple):
    """A method, and what its updates consist of."""

    method: MinibatchMethod
    gradients: int
    """Gradients of one model on one minibatch that an update evaluates."""


REFERENCE = "VIFA"
ENTRIES: Mapping[str, Entry] = {
    REFERENCE: Entry(Vifa(latent_dim=1, gradients_per_update=4), 4),
    "SLANG": Entry(Slang(rank=1, samples=4), 4),
    "SLANG-OnlineEig": Entry(SlangOnlineEig(rank=1, samples=4), 4),
    "BBB": Entry(BayesByBackprop(samples=4), 4),
    "MC dropout": Entry(McDropout(gradients_per_update=4), 4),
    "SWAG": Entry(Swag(rank=20, warmup_epochs=0), 1),
}
LIMITS = {"SLANG": 3.0, "BBB": 1.0}
"""Largest cost of a gradient that is acceptable, relative to VIFA."""


@dataclass(frozen=True)
class MethodCost(Cost):
    """What one method costs; the fields of `Cost` are those of a gradient."""

    gradients: int
    """Gradients in an update."""
    update_us: float
    """Microseconds per update of one model, median of the repeats."""
    update_ratio: float
    """Cost of an update relative to VIFA, median of the repeats."""


@dataclass(frozen=True)
class Target:
    """Whether a method is as cheap as it should be."""

    limit: float
    ratio: float
    holds: bool


def measure(trials: int, epochs: int, repeats: int, *, compile: bool) -> dict[str, MethodCost]:
    """Time all methods in turn."""
    work = make(trials)
    contenders = {
        name: _contender(work.with_method(entry.method), entry, epochs, compile)
        for name, entry in ENTRIES.items()
    }
    return {
        name: _with_update(cost, ENTRIES[name].gradients)
        for name, cost in compare(contenders, repeats).items()
    }


def targets(costs: Mapping[str, Cost]) -> dict[str, Target]:
    """Hold the ratios against the limits."""
    return {
        name: Target(limit, costs[name].ratio, costs[name].ratio <= limit)
        for name, limit in LIMITS.items()
    }


def _contender(
    work: Workload[MinibatchMethod], entry: Entry, epochs: int, compile: bool
) -> Contender:
    """Compile the method, if that is wanted; its unit of cost is a gradient."""
    setup = engine_setup(work) if compile else None
    per_minibatch = entry.gradients / entry.method.batches_per_step
    return Contender(lambda: engine_seconds(work, epochs, compile) / per_minibatch, setup)


def _with_update(cost: Cost, gradients: int) -> MethodCost:
    relative = gradients / ENTRIES[REFERENCE].gradients
    return MethodCost(
        **asdict(cost),
        gradients=gradients,
        update_us=gradients * cost.us,
        update_ratio=relative * cost.ratio,
    )
