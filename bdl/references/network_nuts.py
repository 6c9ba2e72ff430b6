"""The posterior of a network whose prior and noise precision are unknown as well, as a method
without a search.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.guest import Guest, Train
from bdl.models.networks import Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem
from bdl.posteriors.predictive import MeanVariance
from bdl.references.certificate import check_length, describe_broken_rules
from bdl.references.chains import (
    ChainSettings,
    NormalLaw,
    Vector,
    build_log_posterior,
    build_log_posterior_with_precisions,
    climb_to_mode,
    has_compiled_posterior,
    sample_chains,
)
from bdl.references.function_certificate import FUNCTION_RULES, certify_functions

PRECISION_LAWS: Mapping[str, NormalLaw] = {
    "prior_precision": (math.log(3), 1.0),
    "noise_precision": (math.log(10), 2.0),
}
"""Mean and standard deviation of the log precisions, standardised targets: 95 % of the prior
precisions are from 0.4 to 21, and of the noise's standard deviations from 0.04 to 2.2 of those of
the targets.
"""
_DEPTH = 9
"""On boston the smallest effective sample size is three times that with 8 for as many gradients;
10 is no better.
"""
_ACTIVATIONS: tuple[Literal["relu", "tanh"], ...] = ("relu", "tanh")


class SampledNetworks(NamedTuple):
    """Networks with noise of their own, all equally probable: S of them, from chains one after the
    other.
    """

    theta: Tensor
    """Parameters, (S, D)."""
    noise_precision: Tensor
    """In standardised units, (S,)."""
    hidden: Tensor
    """Units of each hidden layer."""
    activation: Tensor
    """Number of the activation in `_ACTIVATIONS`."""
    worst: Tensor
    """Worst value of each rule of `FUNCTION_RULES` at the training rows."""

    def __call__(self, x: Tensor) -> MeanVariance:
        """Predict targets at standardised inputs, (n, d): a normal for each network, (S, n)."""
        model = Mlp(tuple(map(int, self.hidden)), _ACTIVATIONS[int(self.activation)])

        def evaluate(parameters: Tensor) -> Tensor:
            return model(parameters, x, 1)

        f = torch.func.vmap(evaluate, chunk_size=64)(self.theta.double()).squeeze(-1)
        return MeanVariance(f, (1 / self.noise_precision.double()).unsqueeze(1).expand(f.shape))

    @property
    def certificate(self) -> str:
        """What rows say of the chains: that they are certified, or which rules they break."""
        pairs = zip(FUNCTION_RULES, self.worst.tolist(), strict=True)
        return describe_broken_rules(
            rule.number for rule, value in pairs if not rule.passes(value)
        )


@dataclass(frozen=True)
class NetworkNuts(Guest):
    """The No-U-Turn sampler of nutpie over weights, prior precision alpha and noise precision
    beta.

    log alpha ~ N(log 3, 1) and log beta ~ N(log 10, 4), for standardised targets; given these,
    prior and likelihood are those of all entries. Chains start as those of `network-mcmc`, and are
    judged by its rules at the training rows alone: what is far beyond them, where chains mix more
    slowly, is not predicted.

    Parameters
    ----------
    draws, tune
        Iterations of each chain that are judged, and before these.
    chains
        Number of chains, even: the first half starts at modes for the precisions 3 and 10, the
        second at draws of the prior.
    kept
        Draws of each chain that predict, evenly spaced.
    """

    draws: Annotated[int, Ge(1)] = 1000
    tune: Annotated[int, Ge(1)] = 300
    chains: Annotated[int, Ge(2)] = 4
    kept: Annotated[int, Ge(1)] = 100

    self_tuned = True
    needs_model = True
    needs_numbers = True
    needs: ClassVar = {"nutpie": "bdl-bench[mcmc]", "numba": "bdl-bench[mcmc]"}

    def check(self, problem: Problem) -> None:
        super().check(problem)
        check_length(self.chains, self.draws)
        prior = problem.prior
        if not has_compiled_posterior(problem):
            raise InputError(
                f"NetworkNuts samples one hidden layer of {' or '.join(_ACTIVATIONS)}: "
                "use the model 'mlp'"
            )
        if not isinstance(prior, GaussianPrior) or prior.bias_precision is not None:
            raise InputError(
                "NetworkNuts samples one prior precision: use the prior 'gaussian' "
                "without bias_precision"
            )

    def fit(self, train: Train, hyper: Mapping[str, float], seed: int) -> SampledNetworks:
        problem, x, y = train.problem, torch.from_numpy(train.x), torch.from_numpy(train.y)
        settings = ChainSettings(
            self.draws, self.tune, self.chains, self.kept, seed, max_depth=_DEPTH
        )
        sampled = sample_chains(
            build_log_posterior_with_precisions(problem, x, y, *PRECISION_LAWS.values()),
            _find_starts(problem, x, y, settings),
            settings,
        )
        theta, logs = np.split(sampled.theta, [problem.dim], axis=2)
        precision = np.exp(logs[:, :, 1])
        noise = {"noise_precision": torch.from_numpy(precision).unsqueeze(-1)}
        certificate = certify_functions(
            problem, sampled._replace(theta=theta), x, y, noise, beyond=False
        )
        assert isinstance(problem.model, Mlp), "check has seen to it"
        return SampledNetworks(
            torch.from_numpy(theta[:, settings.stored_draws].reshape(-1, problem.dim)).float(),
            torch.from_numpy(precision[:, settings.stored_draws].ravel()),
            torch.tensor(problem.model.hidden),
            torch.tensor(_ACTIVATIONS.index(problem.model.activation)),
            torch.tensor(
                [certificate.worst_of(rule) for rule in FUNCTION_RULES], dtype=torch.float64
            ),
        )


def _find_starts(problem: Problem, x: Tensor, y: Tensor, settings: ChainSettings) -> list[Vector]:
    """Find where chains start: modes for the central precisions, then draws of the whole prior.

    (D + 2,) each.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    noise = torch.randn(
        settings.chains,
        problem.dim + len(PRECISION_LAWS),
        generator=generator,
        dtype=torch.float64,
    )
    centres, widths = torch.tensor(list(PRECISION_LAWS.values()), dtype=torch.float64).T
    density = build_log_posterior(
        problem, x, y, dict(zip(PRECISION_LAWS, centres.exp(), strict=True))
    )
    starts = []
    for number, row in enumerate(noise):
        theta, logs = row[: problem.dim], centres + widths * row[problem.dim :]
        if number < settings.chains // 2:
            starts.append(
                np.concatenate(
                    [climb_to_mode(problem.initial(theta).numpy(), density), centres.numpy()]
                )
            )
        else:
            network = problem.prior.sample(
                theta, dict(zip(PRECISION_LAWS, logs.exp(), strict=True)), problem.layout
            )
            starts.append(torch.cat([network, logs]).numpy())
    return starts
