"""Online factor analysis by expectation maximisation (Brownlie 2022, Algorithm 2).

The complete-data statistics are running means over all observations, each made with the F and psi
of its time,

    A = mean(d m^T),  B = mean(m m^T),  s = mean(d o d),

and after each observation, with H = B + Sigma, F = A H^{-1} and psi = s - rowsum(F o A). This psi
is the print's s + rowsum((F H) o F - 2 F o A) for the new F. Published as it is: Sigma is the
latest, not averaged; psi has no floor.
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


class EmState(NamedTuple):
    """The estimate, and the means over observations of what the complete-data likelihood depends on."""

    seen: Tensor  # Observations seen, ()
    mean: Tensor  # Their mean, (..., D)
    cross: Tensor  # Mean of m d^T, A^T: (..., K, D)
    second: Tensor  # Mean of m m^T, B: (..., K, K)
    square: Tensor  # Mean of d o d, s: (..., D)
    loadings: Tensor  # F^T, (..., K, D)
    diag: Tensor  # psi, (..., D)


@dataclass(frozen=True)
class OnlineEm(OnlineEstimator):
    """Settings of online expectation maximisation.

    The warm-up moves the mean and the statistics.
    """

    def init(self, noise: Noise) -> EmState:
        seen, zero, loadings, diag = start(noise)
        cross = torch.zeros_like(loadings)
        return EmState(seen, zero, cross, cross @ cross.mT, zero, loadings, diag)

    def update(self, state: EmState, observation: Tensor) -> EmState:
        seen, mean, deviations = centre(state.seen, state.mean, observation.unsqueeze(-2))
        latent = latent_posterior(state.loadings, state.diag, deviations)
        gain = seen.to(mean.dtype).reciprocal()
        second = torch.lerp(state.second, product(latent.means, latent.means), gain)
        solve, learning = inverse(second + latent.covariance), seen > self.warmup

        def learn(
            cross: Tensor, square: Tensor, loadings: Tensor, diag: Tensor, d: Tensor
        ) -> tuple[Tensor, ...]:
            cross, square = blend(cross, square, latent.means, d, gain)
            new = solve @ cross
            new_diag = square - (new * cross).sum(-2)
            return (
                cross,
                square,
                torch.where(learning, new, loadings),
                torch.where(learning, new_diag, diag),
            )

        old = state.cross, state.square, state.loadings, state.diag
        cross, square, loadings, diag = by_coordinate(learn, *old, deviations)
        return EmState(seen, mean, cross, second, square, loadings, diag)
