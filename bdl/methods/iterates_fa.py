"""Online factor analysis of all iterates of SGD: a posterior of any network in O(DK) numbers.

Brownlie (2022), chapter 4. Where SWAG keeps one iterate an epoch and the last K deviations, here
every iterate after the warm-up epochs is an observation of an online estimator, and its model of
their distribution is the posterior.

Differs from the thesis, whose estimators start at F = Q, psi = 1 and are tried on variances from 1
upwards. Iterates of SGD have standard deviations around 1e-3, and some may not vary at all: the
weights of a dead ReLU unit, in float32. So

- the first W iterates (W = 100, the warm-up of the estimators) give each parameter an origin,
  their mean, and a unit, their standard deviation, but at least a hundredth of its root mean
  square over the parameters: one that stands still has a unit as well, in which the start is
  narrow, and in which it is not far off should it move later;
- the estimator learns (theta - origin) / unit from the iterates that follow, its own warm-up
  first, and its estimate is translated back. Online PX-EM finds units of its own as well, which
  changes nothing but where it starts;
- psi is kept from falling below `_LEAST_NOISE`: published EM has no floor, and divides by a psi of
  exactly zero as soon as one parameter stands still.

Notes
-----
Successive iterates are strongly correlated, and a network's drift. On `yacht` (network 6-50-1,
minibatches of 10, 1620 iterates after 60 epochs, five settings) one direction has 95 % to 99.6 %
of their variance. Of the total variance of the iterates learnt from, the posterior with K = 10 has
0.01 to 0.14 by `OnlineEm`, 0.01 to 0.06 by `OnlineSga` and 0.60 to 0.94 by `OnlinePxEm`: EM by
itself hardly changes the size of F, whatever the unit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from annotated_types import Ge
from torch import Tensor

from bdl.methods.base import Noise, Shapes
from bdl.methods.counters import StepCounters
from bdl.methods.online_em import OnlineEm
from bdl.methods.online_px_em import OnlinePxEm
from bdl.methods.online_sga import OnlineSga
from bdl.methods.sgd_iterates import VARIANCE_FLOOR, ConstantSgd, welford_weights
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import FactorAnalysis

_Estimator = OnlineEm | OnlineSga | OnlinePxEm
_ESTIMATORS: dict[str, type[_Estimator]] = {"em": OnlineEm, "sga": OnlineSga, "px-em": OnlinePxEm}

_LEAST_SHARE, _LEAST_NOISE = 1e-4, 1e-6
"""Least squared unit relative to the mean over parameters, and least psi in squared units, above
float32's rounding.
"""


class State(NamedTuple):
    """The iterate, the units, and the state of the estimator."""

    theta: Tensor  # Parameters, (D,)
    measured: Tensor  # Iterates of which the units are made, at most W, a scalar
    origin: Tensor  # Mean of the first W iterates after the warm-up epochs, (D,)
    scatter: Tensor  # Sum of their squared deviations from it, (D,)
    estimate: Any  # State of the estimator, in units


@dataclass(frozen=True)
class IteratesFa(ConstantSgd):
    """Settings of online factor analysis of SGD's iterates.

    Parameters
    ----------
    estimator
        ``"em"`` (thesis, Algorithm 2), ``"sga"`` (Algorithm 1) or ``"px-em"``, each with its
        default settings.
    latent_dim
        Factors, K.
    """

    estimator: Literal["em", "sga", "px-em"] = "em"
    latent_dim: Annotated[int, Ge(1)] = 2

    retired: ClassVar[Mapping[str, Any]] = {"prior_decay": True}

    @property
    def _estimator(self) -> _Estimator:
        return _ESTIMATORS[self.estimator](latent_dim=self.latent_dim)

    def check(self, problem: Problem) -> None:
        self._estimator.check_dim(problem.dim)

    def init_noise(self, problem: Problem) -> Shapes:
        return {**super().init_noise(problem), **self._estimator.init_noise(problem.dim)}

    def init(self, problem: Problem, noise: Noise) -> State:
        theta = self.start(problem, noise["theta"])
        zeros = torch.zeros_like(theta)
        return State(theta, zeros[0], theta, zeros, self._estimator.init(noise))

    def due(self, counters: StepCounters) -> tuple[str, ...]:
        iterates = counters.updates - self.warmup_epochs * counters.per_epoch
        if iterates <= 0:
            return ()
        return ("measure",) if iterates <= self._estimator.warmup else ("learn",)

    def measure(
        self, state: State, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> State:
        """Take the iterate into the units."""
        measured = state.measured + 1
        weight, gain = welford_weights(measured)
        delta = state.theta - state.origin
        return state._replace(
            measured=measured,
            origin=torch.lerp(state.origin, state.theta, weight),
            scatter=state.scatter + gain * delta.square(),
        )

    def learn(
        self, state: State, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> State:
        """Learn from the iterate."""
        observation = (state.theta - state.origin) / self._unit(state.scatter)
        estimate = self._estimator.update(state.estimate, observation)
        diag = estimate.diag.clamp(min=_LEAST_NOISE)
        return state._replace(estimate=estimate._replace(diag=diag))

    def posterior(self, state: State) -> FactorAnalysis:
        """Return the estimate in the unit of the parameters, psi at least `VARIANCE_FLOOR`.

        While the estimator has seen no more than its warm-up it is a narrow Gaussian at the last
        iterate.
        """
        estimator, unit = self._estimator, self._unit(state.scatter)
        ready = state.estimate.n_observations > estimator.warmup
        estimate = estimator.posterior(state.estimate)
        return FactorAnalysis(
            torch.where(ready, state.origin + unit * estimate.loc, state.theta),
            torch.where(ready, unit.unsqueeze(-1) * estimate.factors, 0),
            torch.where(ready, unit.square() * estimate.diag, 0).clamp(min=VARIANCE_FLOOR),
        )

    def _unit(self, scatter: Tensor) -> Tensor:
        variance = scatter / self._estimator.warmup
        return (
            torch.maximum(variance, _LEAST_SHARE * variance.mean())
            .clamp(min=VARIANCE_FLOOR)
            .sqrt()
        )
