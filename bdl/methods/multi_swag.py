"""MultiSWAG: an ensemble whose members are SWAG's Gaussians (Wilson and Izmailov 2020, section 4).

Each member starts by itself and is what `bdl.methods.swag` makes of minibatches of its own; the posterior is their
equal mixture. As in `bdl.methods.deep_ensemble` E epochs show each member E / members times the data. It collects once
in so many epochs as there are members, when it has seen as many rows as one SWAG sees in an epoch.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Gt

from bdl.methods.base import Noise
from bdl.methods.counters import StepCounters
from bdl.methods.deep_ensemble import Ensemble, EnsembleState, member
from bdl.methods.swag import Swag
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import Mixture


@dataclass(frozen=True)
class MultiSwag(Ensemble):
    """Settings of MultiSWAG.

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
        return self.warmup_epochs

    @property
    def _member(self) -> Swag:
        return Swag(self.initial_scale, self.warmup_epochs, self.rank)

    def check(self, problem: Problem) -> None:
        self._member.check(problem)

    def due(self, counters: StepCounters) -> tuple[str, ...]:
        whole = counters.ended and counters.epochs % self.members == 0
        return ("collect",) if whole and counters.epochs > self.warmup_epochs else ()

    def collect(
        self, state: EnsembleState, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> EnsembleState:
        """Let each member collect its iterate."""
        return self._each(self._member.collect, state, batches, hyper, problem)

    def posterior(self, state: EnsembleState) -> Mixture:
        each = [self._member.posterior(member(state, number)) for number in range(self.members)]
        return Mixture(*(torch.stack(tensors) for tensors in zip(*each, strict=True)))
