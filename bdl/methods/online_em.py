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
    centre,
    initial_estimate,
    inverse,
    latent_posterior,
    map_coordinates,
    product,
)


class EmState(NamedTuple):
    """The estimate, and the mean sufficient statistics of the complete data."""

    n_observations: Tensor  # ()
    mean: Tensor  # Mean of the observations, (..., D)
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
        n_observations, zero, loadings, diag = initial_estimate(noise)
        cross = torch.zeros_like(loadings)
        return EmState(n_observations, zero, cross, cross @ cross.mT, zero, loadings, diag)

    def update(self, state: EmState, observation: Tensor) -> EmState:
        n_observations, mean, deviations = centre(
            state.n_observations, state.mean, observation.unsqueeze(-2)
        )
        latent = latent_posterior(state.loadings, state.diag, deviations)
        gain = n_observations.to(mean.dtype).reciprocal()
        second = torch.lerp(state.second, product(latent.means, latent.means), gain)
        solve, learning = inverse(second + latent.covariance), n_observations > self.warmup

        def learn(
            cross: Tensor, square: Tensor, loadings: Tensor, diag: Tensor, d: Tensor
        ) -> tuple[Tensor, ...]:
            cross, square = blend(cross, square, latent.means, d, gain)
            new_loadings = solve @ cross
            new_diag = square - (new_loadings * cross).sum(-2)
            return (
                cross,
                square,
                torch.where(learning, new_loadings, loadings),
                torch.where(learning, new_diag, diag),
            )

        arguments = state.cross, state.square, state.loadings, state.diag, deviations
        cross, square, loadings, diag = map_coordinates(learn, *arguments)
        return EmState(n_observations, mean, cross, second, square, loadings, diag)
