"""Reference posteriors of regressions by the No-U-Turn sampler, certified and cached."""

from dataclasses import dataclass, fields
from typing import Annotated, cast

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor

from bdl.errors import InputError
from bdl.models.likelihoods import Bernoulli, Gaussian
from bdl.models.networks import Linear
from bdl.models.problem import Hyper, Problem
from bdl.references.base import Truth
from bdl.references.cache import Recipe, obtain
from bdl.references.mcmc import Regression, Sampler, Settings


@dataclass(frozen=True)
class NutsReference:
    """The posterior of a linear model with Gaussian or Bernoulli targets, from draws that passed every rule.

    Parameters
    ----------
    draws, tune
        Kept and warm-up iterations of each chain.
    chains
        Number of chains.
    seed
        Gives all chains their randomness.
    target_accept
        Acceptance rate that the warm-up adapts the step size to; nearer to 1 there are fewer divergences.
    sampler
        ``"nutpie"``, ``"pymc"``, or null for nutpie where it is installed and pymc elsewhere.
    """

    draws: Annotated[int, Ge(100)] = 10_000
    tune: Annotated[int, Ge(1)] = 1_000
    chains: Annotated[int, Ge(2)] = 4
    seed: Annotated[int, Ge(0)] = 1
    target_accept: Annotated[float, Gt(0), Lt(1)] = 0.9
    sampler: Sampler | None = None

    @property
    def estimates(self) -> tuple[str, ...]:
        """Names of the hyper-parameters that it estimates: none."""
        return ()

    def check(self, problem: Problem) -> None:
        """Raise `InputError` unless the model is linear, with Gaussian or Bernoulli targets."""
        if not (isinstance(problem.model, Linear) and isinstance(problem.likelihood, Gaussian | Bernoulli)):
            raise InputError("nuts samples linear models with a gaussian or bernoulli likelihood only: give one")

    def recipe(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> Recipe:
        """Say what is sampled; arguments as in `fit`."""
        noise = hyper.get("noise_precision")
        regression = Regression(
            cast(Linear, problem.model).design(x).numpy(),
            y.numpy(),
            problem.prior_precision(hyper).expand(problem.dim).numpy(),
            None if noise is None else float(noise),
        )
        settings = {field.name: getattr(self, field.name) for field in fields(Settings)}
        return Recipe(regression, Settings(**settings))

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> Truth:
        """Take the draws from the cache, or sample, certify and keep them.

        Raises
        ------
        InputError
            If a rule is broken, the cache is corrupt, or the extra ``mcmc`` is not installed.
        """
        chains = torch.from_numpy(obtain(self.recipe(problem, x, y, hyper)).theta)
        pooled = chains.flatten(0, 1)
        return Truth(pooled.mean(0), torch.cov(pooled.T).reshape(problem.dim, problem.dim), {}, chains)
