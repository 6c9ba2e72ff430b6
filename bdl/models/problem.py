"""A Problem: everything needed to evaluate log p(D, theta) on a minibatch, for one model."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bdl.models.likelihoods import Likelihood
from bdl.models.networks import Model

Hyper = Mapping[str, Tensor]


class Batch(NamedTuple):
    """A minibatch of one trial, standardised by the trial's own training rows."""

    x: Tensor
    """Inputs, (M, d_in)."""
    y: Tensor
    """Targets, (M,)."""
    n: Tensor
    """Size N of the whole training set, a scalar."""
    y_unit: Tensor
    """Original target units per standardised unit (the training targets' standard deviation), a scalar."""


@dataclass(frozen=True)
class Problem:
    """Model, likelihood and Gaussian prior of one kind of trial.

    Parameters
    ----------
    model, likelihood
        The components.
    d_in, d_out
        Numbers of inputs and outputs.
    bias_precision
        Prior precision of the biases; None gives them the same precision as the weights.

    Notes
    -----
    The prior is N(0, 1/alpha) on every parameter, alpha being the hyper-parameter ``prior_precision``.
    """

    model: Model
    likelihood: Likelihood
    d_in: int
    d_out: int = 1
    bias_precision: float | None = None

    @property
    def dim(self) -> int:
        """Number of parameters, D."""
        return self.model.dim(self.d_in, self.d_out)

    @property
    def hyper(self) -> tuple[str, ...]:
        """Names of the per-trial hyper-parameters it needs."""
        return ("prior_precision", *self.likelihood.hyper)

    def log_likelihoods(self, theta: Tensor, batch: Batch, hyper: Hyper) -> Tensor:
        """Evaluate log p(y_i | x_i, theta) for each example: (D,) -> (M,), nats."""
        f = self.model(theta, batch.x, self.d_out)
        return self.likelihood.log_prob(f, batch.y, hyper, batch.y_unit)

    def log_likelihood(self, theta: Tensor, batch: Batch, hyper: Hyper) -> Tensor:
        """Estimate log p(D | theta) from a minibatch: N times the batch mean, nats."""
        return batch.n * self.log_likelihoods(theta, batch, hyper).mean()

    def prior_precision(self, hyper: Hyper) -> Tensor:
        """Prior precision: a scalar, or (D,) when the biases have their own."""
        alpha = hyper["prior_precision"]
        if self.bias_precision is None:
            return alpha
        mask = self.model.bias_mask(self.d_in, self.d_out).to(alpha.device)
        return torch.where(mask, self.bias_precision, alpha)

    def log_prior(self, theta: Tensor, hyper: Hyper) -> Tensor:
        """Evaluate log p(theta), normalised: (D,) -> scalar, nats."""
        alpha = self.prior_precision(hyper)
        return 0.5 * (alpha.log() - math.log(2 * math.pi) - alpha * theta.square()).sum(-1)
