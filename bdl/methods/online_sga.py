"""Online factor analysis by stochastic gradient ascent (Brownlie 2022, Algorithm 1).

Each observation makes one step of plain gradient ascent on its own log-likelihood, in F and gamma
= log psi. With r = d - F m,

    dL/dF     = diag(psi)^{-1} (r m^T - F Sigma)
    dL/dgamma = (psi^{-1} o (r o r + rowsum(F Sigma o F)) - 1) / 2.

This is the print's d m^T - F (Sigma + m m^T) and d o d - 2 d o (F m) + rowsum((F (Sigma + m m^T))
o F), in which less cancels. Correction: equation 4.26 has exp(beta) where exp(gamma) is meant.
"""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from annotated_types import Gt
from torch import Tensor

from bdl.methods.base import Noise
from bdl.methods.online_fa import (
    OnlineEstimator,
    centre,
    initial_estimate,
    latent_posterior,
    map_coordinates,
)


class SgaState(NamedTuple):
    """The estimate."""

    n_observations: Tensor  # ()
    mean: Tensor  # Mean of the observations, (..., D)
    loadings: Tensor  # F^T, (..., K, D)
    diag: Tensor  # psi, (..., D)


@dataclass(frozen=True)
class OnlineSga(OnlineEstimator):
    """Settings of online stochastic gradient ascent.

    Parameters
    ----------
    learning_rate
        Step of F and of gamma.
    """

    learning_rate: Annotated[float, Gt(0)] = 0.001

    def init(self, noise: Noise) -> SgaState:
        return SgaState(*initial_estimate(noise))

    def update(self, state: SgaState, observation: Tensor) -> SgaState:
        n_observations, mean, deviations = centre(
            state.n_observations, state.mean, observation.unsqueeze(-2)
        )
        latent = latent_posterior(state.loadings, state.diag, deviations)
        rate = self.learning_rate * (n_observations > self.warmup).to(mean.dtype)

        def ascend(loadings: Tensor, diag: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
            residual = deviation - latent.means @ loadings
            spread = latent.covariance @ loadings
            to_loadings = (latent.means.mT * residual - spread) / diag.unsqueeze(-2)
            squares = residual.squeeze(-2).square() + (spread * loadings).sum(-2)
            to_log_diag = 0.5 * (squares / diag - 1)
            return loadings + rate * to_loadings, diag * (rate * to_log_diag).exp()

        loadings, diag = map_coordinates(ascend, state.loadings, state.diag, deviations)
        return SgaState(n_observations, mean, loadings, diag)
