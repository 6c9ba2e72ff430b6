"""Online factor analysis by expectation maximisation (Brownlie 2022, Algorithm 2).

The complete-data statistics are running means over all observations, each made with the F and psi of its time,

    A = mean(d m^T),  B = mean(m m^T),  s = mean(d o d),

and after each observation, with H = B + Sigma, F = A H^{-1} and psi = s - rowsum(F o A). This psi is the print's
s + rowsum((F H) o F - 2 F o A) for the new F. Published as it is: Sigma is the latest, not averaged; psi has no floor.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bdl.methods.base import Noise
from bdl.methods.online_fa import (
    OnlineEstimator,
    blend,
    by_coordinate,
    centre,
    inverse,
    latent_posterior,
    product,
    start,
)


class Statistics(NamedTuple):
    """Means over observations of what the complete-data likelihood depends on."""

    cross: Tensor  # Of m d^T, A^T: (..., K, D)
    latent: Tensor  # Of m m^T, or of E[h h^T]: (..., K, K)
    square: Tensor  # Of d o d: (..., D)


class EmState(NamedTuple):
    """The estimate, and the statistics that it was made from."""

    seen: Tensor  # Observations seen, ()
    mean: Tensor  # Their mean, (..., D)
    statistics: Statistics
    loadings: Tensor  # F^T, (..., K, D)
    diag: Tensor  # psi, (..., D)


@dataclass(frozen=True)
class OnlineEm(OnlineEstimator):
    """Settings of online expectation maximisation; the warm-up moves the mean and the statistics."""

    def init(self, noise: Noise) -> EmState:
        loadings = start(noise)
        zero = torch.zeros_like(loadings[..., 0, :])
        statistics = Statistics(torch.zeros_like(loadings), torch.zeros_like(loadings @ loadings.mT), zero)
        seen = torch.zeros((), dtype=torch.int64, device=zero.device)
        return EmState(seen, zero, statistics, loadings, torch.ones_like(zero))

    def update(self, state: EmState, observation: Tensor) -> EmState:
        seen, mean, deviations = centre(state.seen, state.mean, observation.unsqueeze(-2))
        latent = latent_posterior(state.loadings, state.diag, deviations)
        gain = seen.to(mean.dtype).reciprocal()
        second = torch.lerp(state.statistics.latent, product(latent.means, latent.means), gain)
        solve, learning = inverse(second + latent.covariance), seen > self.warmup

        def learn(cross: Tensor, square: Tensor, loadings: Tensor, diag: Tensor, d: Tensor) -> tuple[Tensor, ...]:
            cross, square = blend(cross, square, latent.means, d, gain)
            new_loadings, new_diag = maximise(cross, square, solve)
            return cross, square, torch.where(learning, new_loadings, loadings), torch.where(learning, new_diag, diag)

        old = state.statistics.cross, state.statistics.square, state.loadings, state.diag
        cross, square, loadings, diag = by_coordinate(learn, *old, deviations)
        return EmState(seen, mean, Statistics(cross, second, square), loadings, diag)


def maximise(cross: Tensor, square: Tensor, solve: Tensor) -> tuple[Tensor, Tensor]:
    """Return F^T and psi, which maximise the complete-data likelihood; `solve` is H^{-1}, (..., K, K)."""
    loadings = solve @ cross
    return loadings, square - (loadings * cross).sum(-2)
