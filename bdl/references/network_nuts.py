"""The posterior of a network whose prior and noise precision are unknown as well, as a method
without a search.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from annotated_types import Ge
from numpy.typing import NDArray
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.guest import Guest, Train
from bdl.models.networks import Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem
from bdl.posteriors.predictive import MeanVariance
from bdl.references.certificate import FUNCTION_RULES, check_length, describe_broken_rules
from bdl.references.chains import ChainSettings, build_log_posterior, climb_to_mode, sample_chains
from bdl.references.compiled_posterior import (
    NormalLaw,
    Vector,
    build_log_posterior_with_precisions,
    has_compiled_posterior,
)
from bdl.references.function_certificate import certify_functions
from bdl.references.jackknife import jackknife_error
from bdl.references.mcmc import ChainDraws

PRECISION_LAWS: Mapping[str, NormalLaw] = {
    "prior_precision": (math.log(3), 1.0),
    "noise_precision": (math.log(10), 2.0),
}
"""Mean and standard deviation of the log precisions, standardised targets: 95 % of the prior
precisions are from 0.4 to 21, and of the noise's standard deviations from 0.04 to 2.2 of those of
the targets.
"""
MAX_SCORE_ERROR = 0.01
"""Monte-Carlo error of a score, nats a row, up to which it is certified: a fifth of the margin."""
_DEPTH = 9
"""On boston the smallest effective sample size is three times that with 8 for as many gradients;
10 is no better.
"""
_ONE_CHAIN = torch.tensor(1)
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
    chain_count: Tensor = _ONE_CHAIN
    """Number of chains, which have as many draws each; 1 where it was not stored."""

    def __call__(self, x: Tensor) -> MeanVariance:
        """Predict targets at standardised inputs, (n, d): a normal for each network, (S, n)."""
        model = Mlp(tuple(map(int, self.hidden)), _ACTIVATIONS[int(self.activation)])

        def evaluate(parameters: Tensor) -> Tensor:
            return model(parameters, x, 1)

        # some networks at a time: the hidden units of all at many rows would fill the memory
        f = torch.func.vmap(evaluate, chunk_size=64)(self.theta.double()).squeeze(-1)
        return MeanVariance(f, (1 / self.noise_precision.double()).unsqueeze(1).expand(f.shape))

    def leave_out(self, chain: int) -> Self:
        """Return the networks of all other chains."""
        length = len(self.theta) // int(self.chain_count)
        is_kept = torch.ones(len(self.theta), dtype=torch.bool)
        # chains are stored one after the other, with as many draws each
        is_kept[chain * length : (chain + 1) * length] = False
        return self._replace(
            theta=self.theta[is_kept],
            noise_precision=self.noise_precision[is_kept],
            chain_count=self.chain_count - 1,
        )

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
    judged by its rules at the training rows alone, by what the networks put out there and by beta:
    what is far beyond them, where chains mix more slowly, is not predicted. Alpha, which no
    prediction shows, is not judged.

    Parameters
    ----------
    draws, tune
        Iterations of each chain that are judged, and before these.
    chains
        Number of chains of a round, even: the first half starts at modes for the precisions 3 and
        10, the second at draws of the prior.
    rounds
        Most rounds of new chains. The last is that after which the NMLL of the training rows has
        a Monte-Carlo error of `MAX_SCORE_ERROR` at most.
    kept
        Draws of each chain that predict, evenly spaced.
    """

    draws: Annotated[int, Ge(1)] = 1000
    tune: Annotated[int, Ge(1)] = 300
    chains: Annotated[int, Ge(2)] = 4
    rounds: Annotated[int, Ge(1)] = 1
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
        density = build_log_posterior_with_precisions(problem, x, y, *PRECISION_LAWS.values())
        rounds: list[ChainDraws] = []
        for number in range(self.rounds):
            settings = ChainSettings(
                self.draws,
                self.tune,
                self.chains,
                self.kept,
                # chains of a round have consecutive seeds
                seed + number * self.chains,
                max_depth=_DEPTH,
            )
            starts = _find_starts(problem, x, y, settings)
            rounds.append(sample_chains(density, starts, settings))
            networks = _collect(train, _join_rounds(rounds), settings.stored_draws)
            if _score_error(networks, x, y) <= MAX_SCORE_ERROR:
                break
        return networks


def _collect(train: Train, draws: ChainDraws, stored: NDArray[np.int64]) -> SampledNetworks:
    """Judge chains of parameters and log precisions, and keep the draws that predict."""
    problem, x, y = train.problem, torch.from_numpy(train.x), torch.from_numpy(train.y)
    theta, logs = np.split(draws.theta, [problem.dim], axis=2)
    precision = np.exp(logs[:, :, 1])
    noise = {"noise_precision": torch.from_numpy(precision).unsqueeze(-1)}
    certificate = certify_functions(
        problem, draws._replace(theta=theta), x, y, noise, beyond=False
    )
    assert isinstance(problem.model, Mlp), "check has seen to it"
    return SampledNetworks(
        torch.from_numpy(theta[:, stored].reshape(-1, problem.dim)).float(),
        torch.from_numpy(precision[:, stored].ravel()),
        torch.tensor(problem.model.hidden),
        torch.tensor(_ACTIVATIONS.index(problem.model.activation)),
        torch.tensor([certificate.worst_of(rule) for rule in FUNCTION_RULES], dtype=torch.float64),
        torch.tensor(len(theta)),
    )


def _join_rounds(rounds: Sequence[ChainDraws]) -> ChainDraws:
    """Join the chains of rounds: those that started at modes come first, as the rules expect."""

    def join(arrays: list[NDArray[Any]]) -> NDArray[Any]:
        halves = [np.split(array, 2) for array in arrays]
        return np.concatenate([half for order in zip(*halves, strict=True) for half in order])

    return ChainDraws(
        join([draws.theta for draws in rounds]),
        join([draws.diverging for draws in rounds]),
        join([draws.energy for draws in rounds]),
        join([draws.steps for draws in rounds]),
        rounds[-1].origin,
    )


def _score_error(networks: SampledNetworks, x: Tensor, y: Tensor) -> float:
    """Compute the jackknife error over chains of the NMLL of the training rows, nats.

    Test rows would tell when to stop by what is scored.
    """
    answer = networks(x)
    squared = (y - answer.mean).square() / answer.variance
    densities = -(squared + (2 * math.pi * answer.variance).log()) / 2
    by_chain = densities.reshape(int(networks.chain_count), -1, len(y))
    scores: list[float] = []
    for chain in range(len(by_chain)):
        others = torch.cat([by_chain[:chain], by_chain[chain + 1 :]]).flatten(0, 1)
        scores.append(float(math.log(len(others)) - others.logsumexp(0).mean()))
    return jackknife_error(np.array(scores))


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
