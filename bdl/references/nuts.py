"""Reference posteriors of regressions by the No-U-Turn sampler, certified and cached."""

import hashlib
import json
from dataclasses import asdict, astuple, dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.models.likelihoods import Bernoulli, Gaussian
from bdl.models.networks import Linear
from bdl.models.problem import Hyper, Problem
from bdl.references.base import Truth
from bdl.references.cache import Made, obtain
from bdl.references.certificate import Certificate, certify, check_length
from bdl.references.judging import Judged
from bdl.references.mcmc import Regression, Settings, sample

_FORMAT = 1
"""Part of every key; a change of the sampled model or of the files raises it."""


@dataclass(frozen=True, eq=False)
class LinearRecipe:
    """What is sampled, and how."""

    regression: Regression
    settings: Settings

    certificate: ClassVar[type[Judged]] = Certificate

    @cached_property
    def key(self) -> str:
        """SHA-256 (hex) over data, likelihood, prior and sampler settings."""
        content = hashlib.sha256(f"{_FORMAT}{self.regression.x.shape}{self._noise}".encode())
        for values in (self.regression.x, self.regression.y, self.regression.prior_precision):
            content.update(np.ascontiguousarray(values, dtype="<f8").tobytes())
        content.update(json.dumps(asdict(self.settings), sort_keys=True).encode())
        return content.hexdigest()

    def about(self) -> dict[str, Any]:
        """Describe the problem: what the info file says of it."""
        rows, dim = self.regression.x.shape
        precisions = sorted(set(self.regression.prior_precision.tolist()))
        return {
            "likelihood": "bernoulli" if self.regression.noise_precision is None else "gaussian",
            "rows": rows,
            "parameters": dim,
            "prior_precision": precisions,
            "noise_precision": self.regression.noise_precision,
            "settings": asdict(self.settings),
        }

    def make(self) -> Made:
        """Sample and certify; raise `InputError` if a rule is broken."""
        draws = sample(self.regression, self.settings)
        return Made(draws.theta, certify(draws).admit())

    @property
    def _noise(self) -> str:
        return repr(self.regression.noise_precision)


@dataclass(frozen=True)
class NutsReference(Settings):
    """The posterior of a linear model with Gaussian or Bernoulli targets, from draws that passed every rule."""

    @property
    def estimates(self) -> tuple[str, ...]:
        """Names of the hyper-parameters that it estimates: none."""
        return ()

    def check(self, problem: Problem) -> None:
        """Raise `InputError` unless the model is linear with such targets, and draws can be judged."""
        check_length(self.chains, self.draws)
        if not (isinstance(problem.model, Linear) and isinstance(problem.likelihood, Gaussian | Bernoulli)):
            raise InputError("nuts samples linear models with a gaussian or bernoulli likelihood only: give one")

    def recipe(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> LinearRecipe:
        """Describe what is sampled; arguments as in `fit`."""
        noise = hyper.get("noise_precision")
        regression = Regression(
            cast(Linear, problem.model).design(x).numpy(),
            y.numpy(),
            problem.prior_precision(hyper).expand(problem.dim).numpy(),
            None if noise is None else float(noise),
        )
        return LinearRecipe(regression, Settings(*astuple(self)))

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> Truth:
        """Take the draws from the cache, or sample, certify and keep them.

        Raises
        ------
        InputError
            If a rule is broken, the cache is corrupt, or the extra ``mcmc`` is not installed.
        """
        found = obtain(self.recipe(problem, x, y, hyper))
        found.certificate.admit()
        chains = torch.from_numpy(found.theta)
        pooled = chains.flatten(0, 1)
        return Truth(pooled.mean(0), torch.cov(pooled.T).reshape(problem.dim, problem.dim), {}, chains)
