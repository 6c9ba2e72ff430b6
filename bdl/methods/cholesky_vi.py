"""Variational inference with a full covariance through its Cholesky factor, by stochastic gradients.

q(theta) = N(m, V), V = L L^T, where L is lower triangular and its diagonal the exponential of what is learnt. Under a
prior of precision alpha the negative ELBO is

    J = (1/2) sum_i alpha_i (m_i^2 + V_ii) - sum_i log L_ii - E_q[log p(D | theta)] + const,

since (1/2) log |V| = sum_i log L_ii and V_ii = sum_j L_ij^2. With theta_s = m + L z_s and G_s the gradient at theta_s
of minus N times the mean log-likelihood of a minibatch, its gradients are

    dJ/dm = alpha o m + mean_s G_s
    dJ/dL = diag(alpha) L + tril(mean_s G_s z_s^T) - diag(1 / L_ii),

and for the logarithm of L_ii that of L_ii times L_ii. The lecture notes that the method is from print half of the sum
over log L_ii, and so half of the last term: the best covariance for a Gaussian posterior would be half of the true one.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from bdl.methods.base import MinibatchMethod, Noise, Shapes, start
from bdl.methods.bbb import Decay
from bdl.methods.optim import Adam, Optimizer, OptimState, Params, Sgd
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import FullGaussian


class CholeskyState(NamedTuple):
    """Parameters ``m`` (D,) and ``A`` (D, D), which is L but for log L_ii on its diagonal; the optimiser's state."""

    params: Params
    optim: OptimState


@dataclass(frozen=True)
class CholeskyVi(MinibatchMethod):
    """Settings of full-covariance variational inference.

    Parameters
    ----------
    samples
        Samples S from q in an update; each sees the whole minibatch.
    optimizer
        ``"adam"`` or ``"sgd"``.
    betas
        Decay rates of Adam's two moments.
    initial_scale
        Standard deviation of the initial m, which is normal with mean 0; null for the model's own start.
    initial_std
        Start of every L_ii; L is diagonal then.
    """

    samples: Annotated[int, Ge(1)] = 4
    optimizer: Literal["sgd", "adam"] = "adam"
    betas: tuple[Decay, Decay] = (0.9, 0.99)
    initial_scale: Annotated[float, Ge(0)] | None = 0.0
    initial_std: Annotated[float, Gt(0)] = 0.3

    @property
    def _optimizer(self) -> Optimizer:
        return Adam(*self.betas) if self.optimizer == "adam" else Sgd()

    def init(self, problem: Problem, noise: Noise) -> CholeskyState:
        """Start with L = initial_std I."""
        m = start(problem, noise["theta"], self.initial_scale)
        params = {"m": m, "A": torch.full_like(m, self.initial_std).log().diag_embed()}
        return CholeskyState(params, self._optimizer.init(params))

    def step_noise(self, problem: Problem) -> Shapes:
        """Declare S samples' worth."""
        return {"z": (self.samples, problem.dim)}

    def step(self, state: CholeskyState, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem) -> CholeskyState:
        """Average the gradients of S samples, and move m and L once."""
        grads = elbo_gradients(state.params, batch, hyper, noise["z"], problem)
        steps, optim = self._optimizer.update(grads, state.optim, dict.fromkeys(grads, hyper["learning_rate"]))
        return CholeskyState({name: state.params[name] + steps[name] for name in steps}, optim)

    def posterior(self, state: CholeskyState) -> FullGaussian:
        """Return N(m, L L^T)."""
        return FullGaussian(state.params["m"], factor(state.params["A"]))


def factor(A: Tensor) -> Tensor:
    """Return L, (D, D), of the matrix that is learnt."""
    return A.tril(-1) + A.diagonal().exp().diag_embed()


def elbo_gradients(params: Params, batch: Batch, hyper: Hyper, z: Tensor, problem: Problem) -> Params:
    """Estimate the gradients of J (the negative ELBO) from one minibatch; formulas in the module docstring.

    Parameters
    ----------
    params
        ``m`` (D,) and ``A`` (D, D), lower triangular with log L_ii on its diagonal.
    batch, hyper
        As in `Problem.log_likelihood`.
    z
        Standard normals, (S, D).
    problem
        Model, likelihood and prior.

    Returns
    -------
    dict
        Gradients with the same keys and shapes as `params`, nats per unit of each parameter.
    """
    m, L = params["m"], factor(params["A"])

    def cost(theta: Tensor) -> Tensor:
        return -problem.log_likelihood(theta, batch, hyper)

    G = torch.func.vmap(torch.func.grad(cost))(m + z @ L.T)
    alpha = problem.prior_precision(hyper)
    by_factor = (alpha * L.T).T + (G.T @ z / len(z)).tril()
    by_log = by_factor.diagonal() * L.diagonal() - 1
    return {"m": alpha * m + G.mean(0), "A": by_factor.tril(-1) + by_log.diag_embed()}
