"""Bayes by Backprop: mean-field variational inference with reparametrised gradients.

Blundell et al. (2015): q(theta) = N(mu, diag(sigma^2)) with sigma = softplus(rho) = log(1 +
exp(rho)). Under a prior of precision alpha the negative ELBO J = E_q[-log p(D | theta)] + KL(q ||
prior) has the divergence in closed form,

    KL = (1/2) sum_i (alpha_i (mu_i^2 + sigma_i^2) - 1 - log alpha_i) - sum_i log sigma_i,

and with theta_s = mu + sigma o z_s, G_s the gradient at theta_s of minus N times the mean
log-likelihood of a minibatch, its gradients are

    dJ/dmu  = alpha mu + mean_s G_s
    dJ/drho = (alpha sigma - 1 / sigma + mean_s G_s o z_s) o sigmoid(rho).

J is in nats for all N rows; published code descends J / N, which is the same to Adam.

Any other prior is one of latent variables phi, which it maps to theta: q is then over phi, and J
is differentiated through its samples. KL is in closed form where the prior knows its mean under q,
and otherwise the average of log q - log p over the samples. q may also be Student's t, with the
scales sigma (Mata 2018, section 3.2).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from annotated_types import Gt
from torch import Tensor
from torch.nn.functional import softplus

from bdl.errors import InputError
from bdl.methods.base import Noise, Shapes
from bdl.methods.optim import OptimState, Params, SampledDescent, sample_gradients
from bdl.models.priors import HorseshoePrior, PrecisionPrior
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import DiagonalGaussian, Scaled, StudentT


class BbbState(NamedTuple):
    """Variational parameters ``mu`` (P,) and ``rho`` (P,), and the optimiser's state.

    P is the number of the prior's latent variables, which is D but for priors with scales.
    """

    params: Params
    optim: OptimState
    # Numbers of the scales that multiply each parameter, (J, D); empty under other priors
    source: Tensor


@dataclass(frozen=True)
class BayesByBackprop(SampledDescent):
    """Settings of Bayes by Backprop; the defaults are those of the SLANG paper's regressions.

    Parameters
    ----------
    initial_rho
        Start of every rho: -1 is a standard deviation of 0.313. Latent scales start around 1.
    degrees
        Degrees of freedom of a q that is Student's t; null for the Gaussian.
    """

    initial_rho: float = -1.0
    degrees: Annotated[float, Gt(0)] | None = None

    retired: ClassVar[Mapping[str, Any]] = {"optimizer": "adam", "local_reparametrisation": False}

    def check(self, problem: Problem) -> None:
        name = type(problem.prior).__name__
        if isinstance(problem.prior, HorseshoePrior):
            if self.degrees is not None:
                raise InputError(
                    f"degrees: under {name}, whose scales are latent, bbb needs a Gaussian; "
                    "leave it out"
                )
        elif problem.latent_dim != problem.dim:
            raise InputError(
                f"bbb does not know the latent variables of {name}: use the prior 'horseshoe'"
            )

    def init(self, problem: Problem, noise: Noise) -> BbbState:
        normals, prior = noise["theta"], problem.prior
        # logarithms of scales start at 0, the scales at 1
        mu = torch.cat(
            [self.start(problem, normals), normals.new_zeros(problem.latent_dim - problem.dim)]
        )
        # numbers like the rest of the state, whose type is changed as one; `posterior` makes them
        # indices
        source = (
            prior.source(problem.layout).to(normals)
            if isinstance(prior, HorseshoePrior)
            else normals.new_zeros(0, 1)
        )
        params = {"mu": mu, "rho": torch.full_like(mu, self.initial_rho)}
        return BbbState(params, self._optimizer.init(params), source)

    def step_noise(self, problem: Problem) -> Shapes:
        return {"z": (self.samples, problem.latent_dim * (1 if self.degrees is None else 2))}

    def gradients(
        self, state: BbbState, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> Params:
        if self.degrees is None and isinstance(problem.prior, PrecisionPrior):
            return mean_field_elbo_gradients(state.params, batch, hyper, noise["z"], problem)
        return torch.func.grad(self._negative_elbo)(
            state.params, batch, hyper, noise["z"], problem
        )

    def posterior(self, state: BbbState) -> DiagonalGaussian | StudentT | Scaled:
        q, dim = self._latent(state.params), state.source.shape[1]
        if not len(state.source):
            return q
        assert isinstance(q, DiagonalGaussian), "as `check` wants it"
        return Scaled(q.loc[:dim], q.var[:dim], q.loc[dim:], q.var[dim:], state.source.long())

    def _latent(self, params: Params) -> DiagonalGaussian | StudentT:
        """Return the distribution of the latent variables."""
        mu, sigma = params["mu"], softplus(params["rho"])
        return (
            DiagonalGaussian(mu, sigma.square())
            if self.degrees is None
            else StudentT(mu, sigma, torch.full_like(mu[0], self.degrees))
        )

    def _negative_elbo(
        self, params: Params, batch: Batch, hyper: Hyper, z: Tensor, problem: Problem
    ) -> Tensor:
        """Estimate J from one minibatch.

        `params` are those of the P latent variables, and `z` are standard normals, (S, P), or (S,
        2 P) for Student's t.
        """
        q, prior = self._latent(params), problem.prior
        phi = q.sample(z)
        fit = torch.func.vmap(
            lambda sample: problem.log_likelihood(problem.push(sample, hyper), batch, hyper)
        )(phi)
        if isinstance(prior, HorseshoePrior) and isinstance(q, DiagonalGaussian):
            return (
                -fit.mean()
                - q.entropy()
                - prior.expected_log_prob(q.loc, q.var, hyper, problem.layout)
            )
        return (q.log_prob(phi) - problem.log_prior(phi, hyper) - fit).mean()


def mean_field_elbo_gradients(
    params: Params, batch: Batch, hyper: Hyper, z: Tensor, problem: Problem
) -> Params:
    """Estimate the gradients of J from one minibatch and standard normals `z` (S, D).

    Formulas are in the module docstring. `params` are ``mu`` (D,) and ``rho`` (D,); gradients have
    the same keys and shapes, nats per unit.
    """
    mu, sigma, alpha = params["mu"], softplus(params["rho"]), problem.prior_precision(hyper)
    G = sample_gradients(mu + sigma * z, batch, hyper, problem)
    by_sigma = alpha * sigma - 1 / sigma + (G * z).mean(0)
    # the slope of softplus is the sigmoid
    return {"mu": alpha * mu + G.mean(0), "rho": by_sigma * torch.sigmoid(params["rho"])}
