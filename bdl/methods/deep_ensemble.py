"""Ensembles: members that start by themselves and learn from minibatches of their own.

An update takes a minibatch for each member, so that E epochs show each of them E / members times
the data.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from annotated_types import Ge, Gt
from torch.utils._pytree import tree_map

from bdl.methods.base import MinibatchMethod, Noise, Shapes, StartedMethod
from bdl.methods.counters import StepCounters
from bdl.methods.point_estimate import Adam
from bdl.methods.swag import Swag
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import Empirical, Mixture


@dataclass(frozen=True)
class Ensemble(StartedMethod):
    """Members that start and learn by themselves; the state is theirs, stacked.

    Parameters
    ----------
    members
        How many there are, S.
    """

    members: Annotated[int, Ge(2)] = 5

    @property
    def batches_per_step(self) -> int:
        return self.members

    @property
    def _member(self) -> MinibatchMethod:
        """The method of a member, which takes one minibatch an update, and no noise."""
        raise NotImplementedError

    def init_noise(self, problem: Problem) -> Shapes:
        return {"theta": (self.members, problem.dim)}

    def init(self, problem: Problem, noise: Noise) -> Any:
        return _stack_states(
            [self._member.init(problem, {"theta": theta}) for theta in noise["theta"]]
        )

    def step(
        self, state: Any, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> Any:
        return self._map_members(self._member.step, state, batches, hyper, problem)

    def _map_members(
        self,
        function: Callable[..., Any],
        state: Any,
        batches: Batch,
        hyper: Hyper,
        problem: Problem,
    ) -> Any:
        """Apply a member's function to all members, each with its minibatch."""

        def apply(number: int) -> Any:
            batch = batches._replace(x=batches.x[number], y=batches.y[number])
            return function(member_state(state, number), batch, hyper, {}, problem)

        # one after the other: side by side, convolutions are slower and all layers in memory
        # together
        return _stack_states([apply(number) for number in range(self.members)])


@dataclass(frozen=True)
class DeepEnsemble(Ensemble):
    """Deep ensembles: point estimates by Adam (Lakshminarayanan, Pritzel and Blundell 2017)."""

    @property
    def _member(self) -> Adam:
        return Adam(initial_scale=self.initial_scale)

    def posterior(self, state: Any) -> Empirical:
        return Empirical(state.params["theta"])


@dataclass(frozen=True)
class MultiSwag(Ensemble):
    """MultiSWAG: an equal mixture of SWAG's Gaussians (Wilson and Izmailov 2020, section 4).

    It collects once in so many epochs as there are members, when it has seen as many rows as one
    SWAG sees in an epoch.

    Parameters
    ----------
    rank
        Deviations that each member keeps, K.
    warmup_epochs
        Epochs of the training in which nothing is collected; train for more than these.
    """

    initial_scale: Annotated[float, Gt(0)] | None = 0.1
    rank: Annotated[int, Ge(2)] = 2
    warmup_epochs: Annotated[int, Ge(0)] = 500

    @property
    def idle_epochs(self) -> int:
        """Epochs in which nothing is collected: rounds of all members end at multiples of them."""
        return (self.warmup_epochs // self.members + 1) * self.members - 1

    @property
    def _member(self) -> Swag:
        return Swag(self.initial_scale, self.warmup_epochs, self.rank)

    def check(self, problem: Problem) -> None:
        self._member.check(problem)

    def due(self, counters: StepCounters) -> tuple[str, ...]:
        round_ended = counters.ended and counters.epochs % self.members == 0
        return ("collect",) if round_ended and counters.epochs > self.warmup_epochs else ()

    def collect(
        self, state: Any, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> Any:
        """Let each member collect its iterate."""
        return self._map_members(self._member.collect, state, batches, hyper, problem)

    def posterior(self, state: Any) -> Mixture:
        components = [
            self._member.posterior(member_state(state, number)) for number in range(self.members)
        ]
        return Mixture(*(torch.stack(tensors) for tensors in zip(*components, strict=True)))


def member_state(state: Any, number: int) -> Any:
    """Return the state of one member."""
    return tree_map(lambda leaf: leaf[number], state)


def _stack_states(states: list[Any]) -> Any:
    return tree_map(lambda *leaves: torch.stack(leaves), *states)
