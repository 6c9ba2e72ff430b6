"""Online factor analysis by stochastic gradient ascent (Brownlie 2022, Algorithm 1).

Each observation makes one step of plain gradient ascent on its own log-likelihood, in F and gamma = log psi. With
r = d - F m,

    dL/dF     = diag(psi)^{-1} (r m^T - F Sigma)
    dL/dgamma = (psi^{-1} o (r o r + rowsum(F Sigma o F)) - 1) / 2.

This is the print's d m^T - F (Sigma + m m^T) and d o d - 2 d o (F m) + rowsum((F (Sigma + m m^T)) o F), in which less
cancels. Correction: equation 4.26 has exp(beta) where exp(gamma) is meant.
"""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from bdl.methods.base import Noise
from bdl.methods.online_fa import Latent, OnlineEstimator, by_coordinate, centre, latent_posterior, start
from bdl.posteriors import FactorAnalysis


class SgaState(NamedTuple):
    """The estimate."""

    seen: Tensor
    """Observations seen, ()."""
    mean: Tensor
    """Their mean, (..., D)."""
    loadings: Tensor
    """F^T, (..., K, D)."""
    diag: Tensor
    """psi, (..., D)."""


@dataclass(frozen=True)
class OnlineSga(OnlineEstimator):
    """Settings of online stochastic gradient ascent.

    Parameters
    ----------
    learning_rate
        Step of F and of gamma.
    warmup
        First observations, which move the mean only.
    """

    learning_rate: Annotated[float, Gt(0)] = 0.001
    warmup: Annotated[int, Ge(0)] = 100

    def init(self, noise: Noise) -> SgaState:
        """Start at mean 0, F = Q of the reduced QR decomposition, psi = 1."""
        loadings = start(noise)
        zero = torch.zeros_like(loadings[..., 0, :])
        return SgaState(torch.zeros((), dtype=torch.int64), zero, loadings, torch.ones_like(zero))

    def update(self, state: SgaState, observation: Tensor) -> SgaState:
        """Move the mean, then F and psi by one step at the old F and psi."""
        seen, mean, deviations = centre(state.seen, state.mean, observation.unsqueeze(-2))
        latent = latent_posterior(state.loadings, state.diag, deviations)
        rate = self.learning_rate * (seen > self.warmup).to(mean.dtype)

        def ascend(loadings: Tensor, diag: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
            to_loadings, to_log_diag = gradients(loadings, diag, deviation, latent)
            return loadings + rate * to_loadings, diag * (rate * to_log_diag).exp()

        return SgaState(seen, mean, *by_coordinate(ascend, state.loadings, state.diag, deviations))

    def update_block(self, state: SgaState, observations: Tensor) -> SgaState:
        """Update by each of the observations (..., B, D) in turn."""
        for observation in observations.unbind(-2):
            state = self.update(state, observation)
        return state

    def posterior(self, state: SgaState) -> FactorAnalysis:
        """Return N(mean, F F^T + diag(psi))."""
        return FactorAnalysis(state.mean, state.loadings.mT, state.diag)


def gradients(loadings: Tensor, diag: Tensor, deviation: Tensor, latent: Latent) -> tuple[Tensor, Tensor]:
    """Gradients of log N(d | 0, F F^T + diag(psi)) with respect to F^T and log psi (module docstring).

    Parameters
    ----------
    loadings
        F^T, (..., K, D).
    diag
        psi, (..., D).
    deviation
        d as a row, (..., 1, D).
    latent
        Posterior of h.

    Returns
    -------
    tuple of Tensor
        Shapes (..., K, D) and (..., D).
    """
    residual = deviation - latent.means @ loadings
    spread = latent.covariance @ loadings
    to_loadings = (latent.means.mT * residual - spread) / diag.unsqueeze(-2)
    squares = residual.squeeze(-2).square() + (spread * loadings).sum(-2)
    return to_loadings, 0.5 * (squares / diag - 1)
