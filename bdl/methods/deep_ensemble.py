"""Deep ensembles: point estimates from several starts (Lakshminarayanan, Pritzel and Blundell 2017).

Each member starts by itself and descends by Adam, on minibatches of its own; its cost is that of
`bdl.methods.point_estimate`. An update takes a minibatch for each member, so that E epochs show each of them E /
members times the data.
"""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from annotated_types import Ge
from torch.utils._pytree import tree_map

from bdl.methods.base import MinibatchMethod, Noise, Shapes
from bdl.methods.point_estimate import Adam, PointState
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import Empirical


class EnsembleState(NamedTuple):
    """What the members have learnt."""

    members: PointState
    """Their states, stacked."""


@dataclass(frozen=True)
class DeepEnsemble(MinibatchMethod):
    """Settings of deep ensembles.

    Parameters
    ----------
    members
        How many there are, S.
    initial_scale
        Standard deviation of the initial parameters, which are normal with mean 0; null for the model's own start.
    """

    members: Annotated[int, Ge(2)] = 5
    initial_scale: Annotated[float, Ge(0)] | None = None

    @property
    def batches_per_step(self) -> int:
        """Minibatches that one `step` consumes: one a member."""
        return self.members

    @property
    def _member(self) -> Adam:
        return Adam(initial_scale=self.initial_scale)

    def init_noise(self, problem: Problem) -> Shapes:
        """Declare one normal a parameter of each member."""
        return {"theta": (self.members, problem.dim)}

    def init(self, problem: Problem, noise: Noise) -> EnsembleState:
        """Start each member."""
        return _stacked([self._member.init(problem, {"theta": theta}) for theta in noise["theta"]])

    def step(self, state: EnsembleState, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem) -> EnsembleState:
        """Descend once with every member."""

        def one(number: int) -> PointState:
            own: PointState = tree_map(lambda leaf: leaf[number], state.members)
            part = batches._replace(x=batches.x[number], y=batches.y[number])
            return self._member.step(own, part, hyper, {}, problem)

        # one after the other: side by side, convolutions are slower and all layers in memory together
        return _stacked([one(number) for number in range(self.members)])

    def posterior(self, state: EnsembleState) -> Empirical:
        """Return each member the same probability."""
        return Empirical(state.members.params["theta"])


def _stacked(states: list[PointState]) -> EnsembleState:
    return EnsembleState(tree_map(lambda *leaves: torch.stack(leaves), *states))
