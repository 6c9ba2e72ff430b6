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

from bdl.methods.base import Noise, Shapes, StartedMethod
from bdl.methods.descent import DescentState
from bdl.methods.point_estimate import Adam
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import Empirical


class EnsembleState(NamedTuple):
    """What the members have learnt."""

    members: DescentState  # Their states, stacked


@dataclass(frozen=True)
class DeepEnsemble(StartedMethod):
    """Settings of deep ensembles.

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
    def _member(self) -> Adam:
        return Adam(initial_scale=self.initial_scale)

    def init_noise(self, problem: Problem) -> Shapes:
        return {"theta": (self.members, problem.dim)}

    def init(self, problem: Problem, noise: Noise) -> EnsembleState:
        return _stacked([self._member.init(problem, {"theta": theta}) for theta in noise["theta"]])

    def step(self, state: EnsembleState, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem) -> EnsembleState:
        def one(number: int) -> DescentState:
            own: DescentState = tree_map(lambda leaf: leaf[number], state.members)
            part = batches._replace(x=batches.x[number], y=batches.y[number])
            moved: DescentState = self._member.step(own, part, hyper, {}, problem)
            return moved

        # one after the other: side by side, convolutions are slower and all layers in memory together
        return _stacked([one(number) for number in range(self.members)])

    def posterior(self, state: EnsembleState) -> Empirical:
        return Empirical(state.members.params["theta"])


def _stacked(states: list[DescentState]) -> EnsembleState:
    return EnsembleState(tree_map(lambda *leaves: torch.stack(leaves), *states))
