"""Reference posteriors by the No-U-Turn sampler, certified and cached: of regressions, and of
networks as functions.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bdl.errors import InputError
from bdl.models.likelihoods import Bernoulli, GaussianLikelihood
from bdl.models.networks import LinearModel
from bdl.models.priors import PrecisionPrior
from bdl.models.problem import Hyper, Problem
from bdl.references.base import JudgedDraws, Reference, Truth, load_or_sample
from bdl.references.certificate import (
    Certificate,
    DrawQuality,
    FunctionCertificate,
    certify,
    check_length,
)
from bdl.references.chains import ChainSettings, build_log_posterior, find_starts, sample_chains
from bdl.references.function_certificate import certify_functions
from bdl.references.mcmc import Regression, SamplerSettings, sample_regression

_FORMAT, _NETWORK_FORMAT = 1, 1
"""Part of every key, of regressions and of networks; a change of what is sampled, judged or
written raises it.
"""


def _hash_inputs(head: str, arrays: Iterable[NDArray[np.float64]], settings: object) -> str:
    content = hashlib.sha256(head.encode())
    for values in arrays:
        # one order of bytes on every machine, since caches are shared
        content.update(np.ascontiguousarray(values, dtype="<f8").tobytes())
    content.update(json.dumps(settings, sort_keys=True).encode())
    return content.hexdigest()


@dataclass(frozen=True, eq=False)
class LinearRecipe:
    """What is sampled, and how."""

    regression: Regression
    settings: SamplerSettings

    certificate: ClassVar[type[DrawQuality]] = Certificate

    @cached_property
    def key(self) -> str:
        """SHA-256 (hex) over data, likelihood, prior and sampler settings."""
        x, y, alpha = self.regression.x, self.regression.y, self.regression.prior_precision
        # the shape as well, which arrays with the same bytes may differ in
        return _hash_inputs(
            f"{_FORMAT}{x.shape}{self.regression.noise_precision!r}",
            (x, y, alpha),
            asdict(self.settings),
        )

    def describe(self) -> dict[str, Any]:
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

    def sample(self) -> JudgedDraws:
        """Sample and certify; raise `InputError` if a rule is broken."""
        draws = sample_regression(self.regression, self.settings)
        return JudgedDraws(draws.theta, certify(draws).admit())


@dataclass(frozen=True)
class NutsReference(Reference, SamplerSettings):
    """The posterior of a linear model with Gaussian or Bernoulli targets, from draws that passed
    every rule.
    """

    def check(self, problem: Problem) -> None:
        check_length(self.chains, self.draws)
        if not (
            isinstance(problem.model, LinearModel)
            and isinstance(problem.likelihood, GaussianLikelihood | Bernoulli)
        ):
            raise InputError(
                "nuts samples linear models with a gaussian or bernoulli likelihood only: give one"
            )

    def recipe(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> LinearRecipe:
        noise = hyper.get("noise_precision")
        regression = Regression(
            cast(LinearModel, problem.model).design(x).numpy(),
            y.numpy(),
            problem.prior_precision(hyper).expand(problem.dim).numpy(),
            None if noise is None else float(noise),
        )
        return LinearRecipe(regression, SamplerSettings(*astuple(self)))

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> Truth:
        """Take the draws from the cache, or sample, certify and keep them.

        `InputError` if a rule is broken, the cache is corrupt, or the extra ``mcmc`` is not
        installed.
        """
        judged = load_or_sample(self.recipe(problem, x, y, hyper))
        judged.certificate.admit()
        chains = torch.from_numpy(judged.theta)
        pooled = chains.flatten(0, 1)
        return Truth(
            pooled.mean(0), torch.cov(pooled.T).reshape(problem.dim, problem.dim), {}, chains
        )


@dataclass(frozen=True, eq=False)
class NetworkRecipe:
    """What is sampled, how, and where its functions are judged.

    All as the model sees it, float64.
    """

    problem: Problem
    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    hyper: Hyper
    settings: ChainSettings

    certificate: ClassVar[type[DrawQuality]] = FunctionCertificate

    @cached_property
    def key(self) -> str:
        """SHA-256 (hex) over data, model, likelihood, prior, hyper-parameters and settings."""
        components = self.problem.model, self.problem.likelihood, self.problem.prior
        data = (values.numpy() for values in (self.x, self.y, self.test_x, self.test_y))
        head = f"{_NETWORK_FORMAT}{components}{self.x.shape}{self.test_x.shape}"
        return _hash_inputs(head, data, [asdict(self.settings), self._hyper])

    def describe(self) -> dict[str, Any]:
        return {
            "model": str(self.problem.model),
            "likelihood": str(self.problem.likelihood),
            "rows": len(self.y),
            "parameters": self.problem.dim,
            **self._hyper,
            "settings": asdict(self.settings),
        }

    def sample(self) -> JudgedDraws:
        """Sample and judge; what breaks a rule is kept, and says so."""
        density = build_log_posterior(self.problem, self.x, self.y, self.hyper)
        chains = sample_chains(
            density, find_starts(self.problem, self.hyper, density, self.settings), self.settings
        )
        certificate = certify_functions(self.problem, chains, self.test_x, self.test_y, self.hyper)
        return JudgedDraws(chains.theta[:, self.settings.stored_draws], certificate)

    @property
    def _hyper(self) -> Mapping[str, float]:
        return {name: float(self.hyper[name]) for name in self.problem.hyper}


@dataclass(frozen=True)
class NetworkMcmc(Reference, ChainSettings):
    """The posterior of a network, or of any model whose prior has a precision, known as a
    function.

    Parameters
    ----------
    uncertified
        Whether draws that break a rule are used as the truth nevertheless.
    """

    uncertified: bool = False

    of_functions = True

    def check(self, problem: Problem) -> None:
        check_length(self.chains, self.draws)
        if not isinstance(problem.prior, PrecisionPrior) or problem.buffers():
            raise InputError(
                "network-mcmc samples models with a gaussian prior and without running "
                "statistics: give one"
            )

    def recipe(
        self,
        problem: Problem,
        x: Tensor,
        y: Tensor,
        hyper: Hyper,
        test_x: Tensor | None = None,
        test_y: Tensor | None = None,
    ) -> NetworkRecipe:
        """Describe what `fit` would sample.

        The rows at which functions are judged are by default those that train.
        """
        judged = (x, y) if test_x is None or test_y is None else (test_x, test_y)
        # without `uncertified`, the last field: what is sampled does not depend on it
        return NetworkRecipe(problem, x, y, *judged, hyper, ChainSettings(*astuple(self)[:-1]))

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, *judged: Tensor) -> Truth:
        """Take the draws from the cache, or sample, judge and keep them; arguments as in `recipe`.

        `InputError` if a rule is broken and the reference is not to be used uncertified, the cache
        is corrupt, or the extra ``mcmc`` is not installed.
        """
        judged_draws = load_or_sample(self.recipe(problem, x, y, hyper, *judged))
        if not self.uncertified:
            judged_draws.certificate.admit()
        chains = torch.from_numpy(judged_draws.theta)
        # units may be permuted without changing the function: moments of parameters mean nothing
        nothing = torch.zeros(0, dtype=torch.float64)
        return Truth(
            *(nothing, nothing.reshape(0, 0), {}, chains),
            chains_agree=judged_draws.certificate.supports_errors,
        )
