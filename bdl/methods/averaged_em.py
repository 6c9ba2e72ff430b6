"""Online factor analysis by EM that forgets and averages: as good as the batch fit, in one pass.

`OnlineEm` weights all statistics equally, so those made under the first, bad F and psi fade only as fast as the
slowest direction of EM lets them: slower than 1 / sqrt(t) where factors are weak. Here, after Cappe and Moulines
(2009), each block of B observations moves A, E[h h^T] and s by the larger step B / (D + t / 5), so that they remember
about the last D + t / 5 observations; more than D of them, because from fewer one cannot tell a weak factor from
noise, and what EM overfits it is slow to give up. The noise that this adds is taken out by averaging F and psi over
the iterations with weights proportional to t, by Shamir and Zhang's (2013) recursion, which needs no horizon; the
average is the estimate. E[h h^T] = m m^T + Sigma is averaged as a whole and psi is positive by construction.

The work is done in units of the standard deviations of the first observations, so that the estimate does not
depend on the units of the parameters. F starts at Q, psi at 1 and the statistics at what this model expects.

Notes
-----
Relative covariance distance at 100,000 observations of `bdl.data.factor_model` (rows, K = 10): ACCURACY

References
----------
Cappe and Moulines (2009), On-line expectation-maximization algorithm for latent data models, sections 2 and 3.
Shamir and Zhang (2013), Stochastic gradient descent for non-smooth optimization, section 4.
"""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from annotated_types import Ge
from torch import Tensor

from bdl.methods.base import Noise, Shapes
from bdl.methods.online_em import Statistics, blend, maximise
from bdl.methods.online_fa import by_coordinate, centre, inverse, latent_posterior, start
from bdl.posteriors import FactorAnalysis

_FORGETTING = 5
"""The statistics remember about the last fifth of the observations."""


class AveragedEmState(NamedTuple):
    """The iterate, and its average, which is the estimate; both in units of the standard deviations."""

    seen: Tensor
    """Observations seen, ()."""
    mean: Tensor
    """Their mean, (..., D), in the unit of the parameters."""
    variance: Tensor
    """Variance (divisor n) of the first observations, (..., D), in the squared unit of the parameters."""
    statistics: Statistics
    loadings: Tensor
    """F^T, (..., K, D)."""
    diag: Tensor
    """psi, (..., D)."""
    mean_loadings: Tensor
    """Average of F^T, (..., K, D)."""
    mean_diag: Tensor
    """Average of psi, (..., D)."""


@dataclass(frozen=True)
class AveragedEm:
    """Settings of averaged online EM.

    Parameters
    ----------
    latent_dim
        Factors, K.
    warmup
        First observations, which set the mean and the units only; rounded up to whole blocks.
    block
        Observations that F and psi are kept for, B. It hardly changes the estimate, but K^2 D operations a block
        are saved on all but one observation.
    """

    latent_dim: Annotated[int, Ge(1)] = 10
    warmup: Annotated[int, Ge(2)] = 100
    block: Annotated[int, Ge(1)] = 100

    def init_noise(self, dim: int) -> Shapes:
        """Ask for the D x K matrix whose orthonormal columns start F."""
        return {"F": (dim, self.latent_dim)}

    def init(self, noise: Noise) -> AveragedEmState:
        """Start at mean 0, F = Q of the reduced QR decomposition, psi = 1, statistics as this model expects them."""
        loadings = start(noise)
        zero = torch.zeros_like(loadings[..., 0, :])
        diag = torch.ones_like(zero)
        eye = torch.eye(loadings.shape[-2], dtype=zero.dtype, device=zero.device)
        statistics = Statistics(loadings, eye.expand_as(loadings @ loadings.mT), diag + loadings.square().sum(-2))
        seen = torch.zeros((), dtype=torch.int64)
        return AveragedEmState(seen, zero, zero, statistics, loadings, diag, loadings, diag)

    def update(self, state: AveragedEmState, observation: Tensor) -> AveragedEmState:
        """Learn from a block of one observation, (..., D)."""
        return self._learn(state, observation.unsqueeze(-2))

    def update_block(self, state: AveragedEmState, observations: Tensor) -> AveragedEmState:
        """Learn from the observations (..., n, D), cut into blocks of B; the last may be shorter.

        A stream handed over in pieces gives the same whatever their lengths, if these are multiples of B.
        """
        for block in torch.split(observations, self.block, -2):
            state = self._learn(state, block)
        return state

    def posterior(self, state: AveragedEmState) -> FactorAnalysis:
        """Give N(mean, F F^T + diag(psi)) for the averages of F and psi, in the unit of the parameters."""
        unit = _unit(state.variance)
        return FactorAnalysis(
            state.mean, (state.mean_loadings * unit.unsqueeze(-2)).mT, state.mean_diag * unit.square()
        )

    def _learn(self, state: AveragedEmState, observations: Tensor) -> AveragedEmState:
        size, dim = observations.shape[-2:]
        seen, mean, deviations = centre(state.seen, state.mean, observations)
        learning = state.seen >= self.warmup
        between = state.seen / size * (mean - state.mean).square()  # of the block's mean and the mean before
        share = torch.where(learning, 0, size / seen).to(mean.dtype)
        variance = torch.lerp(state.variance, deviations.square().mean(-2) + between, share)

        deviations = torch.where(learning, deviations / _unit(variance).unsqueeze(-2), 0)
        latent = latent_posterior(state.loadings, state.diag, deviations)
        gain = torch.where(learning, (size / (dim + seen / _FORGETTING)).clamp(max=1), 0).to(mean.dtype)
        second = latent.means.mT @ latent.means / size + latent.covariance
        second = torch.lerp(state.statistics.latent, second, gain)
        solve, learned = inverse(second), (seen - self.warmup).clamp(min=size)
        weight = (2 * size / (learned + size)).to(mean.dtype)

        def learn(cross: Tensor, square: Tensor, average: Tensor, mean_diag: Tensor, d: Tensor) -> tuple[Tensor, ...]:
            cross, square = blend(cross, square, latent.means, d, gain)
            loadings, diag = maximise(cross, square, solve)
            averages = torch.lerp(average, loadings, weight), torch.lerp(mean_diag, diag, weight)
            return cross, square, loadings, diag, *averages

        old = state.statistics.cross, state.statistics.square, state.mean_loadings, state.mean_diag
        cross, square, *estimates = by_coordinate(learn, *old, deviations)
        return AveragedEmState(seen, mean, variance, Statistics(cross, second, square), *estimates)


def _unit(variance: Tensor) -> Tensor:
    """Standard deviations, and 1 for what did not vary."""
    return torch.where(variance > 0, variance, 1).sqrt()
