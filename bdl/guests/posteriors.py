"""Samplers and variational inference of the library `posteriors`."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, Gt
from torch import Tensor, nn

from bdl.methods.guest import Guest, Train, minimise_with_adam
from bdl.posteriors import DiagonalGaussian, Empirical


@dataclass(frozen=True)
class _PosteriorsGuest(Guest):
    needs_model = True
    needs: ClassVar = {"posteriors": "bdl-bench[posteriors]"}
    hyper = ("learning_rate",)


@dataclass(frozen=True)
class Sghmc(_PosteriorsGuest):
    """`posteriors.sgmcmc.sghmc` (Chen et al. 2014) with gradients of all rows, after a descent.

    Parameters
    ----------
    draws
        Parameter vectors that are kept.
    thinning
        Updates from one to the next.
    warmup
        Updates before the first.
    friction
        The friction alpha: updates are stable at rates below alpha over the largest curvature of
        log p(D, theta).
    descent
        Updates of Adam before that, at a rate of 0.01.
    """

    draws: Annotated[int, Ge(1)] = 100
    thinning: Annotated[int, Ge(1)] = 50
    warmup: Annotated[int, Ge(0)] = 1000
    friction: Annotated[float, Gt(0)] = 30.0
    descent: Annotated[int, Ge(1)] = 1000

    def fit(self, train: Train, hyper: Mapping[str, float], seed: int) -> Empirical:
        sghmc = _import_quietly("posteriors.sgmcmc").sghmc
        theta = nn.Parameter(
            nn.utils.parameters_to_vector(train.module(seed).parameters()).detach()
        )
        minimise_with_adam(
            [theta], lambda: -train.log_joint(theta, hyper) / len(train.y), self.descent, 0.01
        )
        steps = sghmc.build(
            _log_posterior(train, hyper), hyper["learning_rate"], alpha=self.friction
        )
        state, draws = steps.init(theta.detach()), list[Tensor]()
        for number in range(1, self.warmup + self.draws * self.thinning + 1):
            state, _ = steps.update(state, None)
            if number > self.warmup and (number - self.warmup) % self.thinning == 0:
                draws.append(state.params.clone())
        return Empirical(torch.stack(draws))


@dataclass(frozen=True)
class DiagonalVi(_PosteriorsGuest):
    """`posteriors.vi.diag`: a diagonal Gaussian, by Adam and draws from it.

    Parameters
    ----------
    steps
        Updates, by all rows.
    initial_std
        Standard deviations that it starts from.
    """

    steps: Annotated[int, Ge(1)] = 2000
    initial_std: Annotated[float, Gt(0)] = 0.05

    def fit(self, train: Train, hyper: Mapping[str, float], seed: int) -> DiagonalGaussian:
        import torchopt

        diag = _import_quietly("posteriors.vi").diag
        start = nn.utils.parameters_to_vector(train.module(seed).parameters()).detach()
        log_deviations = torch.full_like(start, self.initial_std).log()
        optimizer = torchopt.adam(lr=hyper["learning_rate"])
        steps = diag.build(_log_posterior(train, hyper), optimizer, init_log_sds=log_deviations)
        state = steps.init(start)
        for _ in range(self.steps):
            state, _ = steps.update(state, None)
        return DiagonalGaussian(state.params.detach(), (2 * state.log_sd_diag).exp().detach())


def _import_quietly(name: str) -> Any:
    """Import a module of the library without the warnings of tensordict about its classes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return import_module(name)


def _log_posterior(train: Train, hyper: Mapping[str, float]) -> Any:
    """Return log p(D, theta) with the second value that the library requires."""

    def evaluate(theta: Tensor, batch: Any) -> tuple[Tensor, Tensor]:
        return train.log_joint(theta, hyper), torch.zeros(())

    return evaluate
