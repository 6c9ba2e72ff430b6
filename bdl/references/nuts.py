"""Reference posteriors of regressions by the No-U-Turn sampler, certified and cached."""

from dataclasses import astuple, dataclass
from typing import cast

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.models.likelihoods import Bernoulli, Gaussian
from bdl.models.networks import Linear
from bdl.models.problem import Hyper, Problem
from bdl.references.base import Truth
from bdl.references.cache import Recipe, obtain
from bdl.references.certificate import FEWEST_DRAWS
from bdl.references.mcmc import Regression, Settings


@dataclass(frozen=True)
class NutsReference(Settings):
    """The posterior of a linear model with Gaussian or Bernoulli targets, from draws that passed every rule."""

    @property
    def estimates(self) -> tuple[str, ...]:
        """Names of the hyper-parameters that it estimates: none."""
        return ()

    def check(self, problem: Problem) -> None:
        """Raise `InputError` unless the model is linear with such targets, and draws can be judged."""
        if self.chains % 2 or self.draws < FEWEST_DRAWS:
            raise InputError(
                f"{self.chains} chains of {self.draws} draws cannot be certified: "
                f"give an even number of chains, of {FEWEST_DRAWS} draws or more"
            )
        if not (isinstance(problem.model, Linear) and isinstance(problem.likelihood, Gaussian | Bernoulli)):
            raise InputError("nuts samples linear models with a gaussian or bernoulli likelihood only: give one")

    def recipe(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> Recipe:
        """Describe what is sampled; arguments as in `fit`."""
        noise = hyper.get("noise_precision")
        regression = Regression(
            cast(Linear, problem.model).design(x).numpy(),
            y.numpy(),
            problem.prior_precision(hyper).expand(problem.dim).numpy(),
            None if noise is None else float(noise),
        )
        return Recipe(regression, Settings(*astuple(self)))

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
