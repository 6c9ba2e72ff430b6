"""Variational inference with a full covariance, by stochastic gradients of its Cholesky factor.

q(theta) = N(m, V), V = L L^T, where L is lower triangular and its diagonal the exponential of what
is learnt. Under a prior of precision alpha the negative ELBO is

    J = (1/2) sum_i alpha_i (m_i^2 + V_ii) - sum_i log L_ii - E_q[log p(D | theta)] + const,

since (1/2) log |V| = sum_i log L_ii and V_ii = sum_j L_ij^2. With theta_s = m + L z_s and G_s the
gradient at theta_s of minus N times the mean log-likelihood of a minibatch, its gradients are

    dJ/dm = alpha o m + mean_s G_s
    dJ/dL = diag(alpha) L + tril(mean_s G_s z_s^T) - diag(1 / L_ii),

and for the logarithm of L_ii that of L_ii times L_ii. The lecture notes that the method is from
print half of the sum over log L_ii, and so half of the last term: the best covariance for a
Gaussian posterior would be half of the true one.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Gt
from torch import Tensor

from bdl.methods.base import Noise, Shapes
from bdl.methods.optim import DescentState, Params, SampledDescent, sample_gradients
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import FullGaussian


@dataclass(frozen=True)
class CholeskyVi(SampledDescent):
    """Settings of full-covariance variational inference.

    The parameters in its state are ``m`` (D,) and ``A`` (D, D), which is L but for log L_ii on its
    diagonal.

    Parameters
    ----------
    initial_std
        Start of every L_ii; L is diagonal then.
    """

    initial_std: Annotated[float, Gt(0)] = 0.3

    def init(self, problem: Problem, noise: Noise) -> DescentState:
        m = self.start(problem, noise["theta"])
        params = {"m": m, "A": torch.full_like(m, self.initial_std).log().diag_embed()}
        return DescentState(params, self._optimizer.init(params))

    def step_noise(self, problem: Problem) -> Shapes:
        return {"z": (self.samples, problem.dim)}

    def gradients(
        self, state: DescentState, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> Params:
        m, L, z = state.params["m"], cholesky_factor(state.params["A"]), noise["z"]
        G = sample_gradients(m + z @ L.T, batch, hyper, problem)
        alpha = problem.prior_precision(hyper)
        by_factor = (alpha * L.T).T + (G.T @ z / len(z)).tril()
        by_log = by_factor.diagonal() * L.diagonal() - 1
        return {"m": alpha * m + G.mean(0), "A": by_factor.tril(-1) + by_log.diag_embed()}

    def posterior(self, state: DescentState) -> FullGaussian:
        return FullGaussian(state.params["m"], cholesky_factor(state.params["A"]))


def cholesky_factor(A: Tensor) -> Tensor:
    """Return L, (D, D), of the matrix that is learnt."""
    return A.tril(-1) + A.diagonal().exp().diag_embed()
