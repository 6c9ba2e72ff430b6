"""Problems, which evaluate log p(D, theta) for one model, on a minibatch or on all data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from bdl.errors import InputError
from bdl.models.base import BufferedModel, LayeredModel, Layers, Layout, Model, RecomputingModel
from bdl.models.likelihoods import Likelihood
from bdl.models.priors import GaussianPrior, PrecisionPrior, Prior

Hyper = Mapping[str, Tensor]
Buffers = Mapping[str, Tensor]


class Batch(NamedTuple):
    """A minibatch of one trial, standardised by the trial's own training rows.

    `y_unit` is the standard deviation of the training targets: original target units per
    standardised unit.
    """

    x: Tensor  # Inputs, (M, d_in)
    y: Tensor  # Targets, (M,)
    n: Tensor  # Size N of the whole training set, a scalar
    y_unit: Tensor  # A scalar


@dataclass(frozen=True)
class Problem:
    """Model, likelihood and prior of one kind of trial, with `d_in` inputs and `d_out` outputs."""

    model: Model
    likelihood: Likelihood
    d_in: int
    d_out: int = 1
    prior: Prior = field(default_factory=GaussianPrior)

    @property
    def classes(self) -> int:
        """Number of classes; 0 for targets that are numbers."""
        return 0 if self.likelihood.fits(0) else max(2, self.d_out)

    @property
    def dim(self) -> int:
        """Number of parameters, D."""
        return self.model.dim(self.d_in, self.d_out)

    @property
    def latent_dim(self) -> int:
        """Number of the prior's latent variables, P; D where they are the parameters."""
        return self.prior.latent_dim(self.layout)

    @property
    def layout(self) -> Layout:
        """Layout of the model's parameters."""
        return Layout(self.model, self.d_in, self.d_out)

    @property
    def hyper(self) -> tuple[str, ...]:
        """Names of the per-trial hyper-parameters it needs."""
        return (*self.prior.hyper, *self.likelihood.hyper)

    @property
    def widest(self) -> int:
        """Number of outputs of the widest layer for one row, as far as it is known."""
        if isinstance(self.model, BufferedModel):
            return self.model.widest(self.d_in, self.d_out)
        if isinstance(self.model, LayeredModel):
            return max(self.model.widths(self.d_in, self.d_out))
        return max(self.d_in, self.d_out)

    def initial(self, noise: Tensor) -> Tensor:
        """Return the model's initial parameters, made of standard-normal noise: (D,) -> (D,)."""
        return self.model.initial(noise, self.d_in, self.d_out)

    def log_likelihoods(self, theta: Tensor, batch: Batch, hyper: Hyper) -> Tensor:
        """Evaluate log p(y_i | x_i, theta) for each example: (D,) -> (M,), nats."""
        f = self.model(theta, batch.x, self.d_out)
        return self.likelihood.log_prob(f, batch.y, hyper, batch.y_unit)

    def log_likelihood(self, theta: Tensor, batch: Batch, hyper: Hyper) -> Tensor:
        """Estimate log p(D | theta) from a minibatch: N times the batch mean, nats."""
        # times N, so that gradients are unbiased for the posterior of all data
        return batch.n * self.log_likelihoods(theta, batch, hyper).mean()

    def prior_precision(self, hyper: Hyper) -> Tensor:
        """Return the prior precision: a scalar, or (D,) if the biases have another.

        `InputError` if the prior has none.
        """
        if not isinstance(self.prior, PrecisionPrior):
            name = type(self.prior).__name__
            raise InputError(
                f"prior {name} has no precision: use the prior 'gaussian', "
                "or a method that pushes draws"
            )
        return self.prior.precision(hyper, self.layout)

    def push(self, phi: Tensor, hyper: Hyper) -> Tensor:
        """Map the prior's latent variables to the parameters: (P,) -> (D,)."""
        return self.prior.push(phi, hyper, self.layout)

    def log_prior(self, phi: Tensor, hyper: Hyper) -> Tensor:
        """Evaluate the prior's log-density, normalised: latent variables (P,) -> scalar, nats.

        They are the parameters theta under a Gaussian prior; `push` maps them to theta under any.
        """
        return self.prior.log_prob(phi, hyper, self.layout)

    def buffers(self) -> dict[str, Tensor]:
        """Return the running statistics of the model before training, by name; {} if none."""
        if not isinstance(self.model, BufferedModel):
            return {}
        return self.model.buffers(self.d_in, self.d_out)

    def predict(self, theta: Tensor, x: Tensor, buffers: Buffers) -> Tensor:
        """Evaluate the model with its running statistics: (D,), (M, d_in) -> (M, d_out)."""
        if isinstance(self.model, BufferedModel):
            return self.model.predict(theta, x, self.d_out, buffers)
        return self.model(theta, x, self.d_out)

    def predict_linearised(
        self, mode: Tensor, theta: Tensor, x: Tensor, buffers: Buffers
    ) -> Tensor:
        """Evaluate f(mode) + J (theta - mode), J being the derivative of `predict` at the mode.

        Shapes as in `predict`.
        """
        value_and_change: tuple[Tensor, Tensor] = torch.func.jvp(  # type: ignore[assignment]
            lambda at: self.predict(at, x, buffers), (mode,), (theta - mode,)
        )
        value, change = value_and_change
        return value + change

    def track(self, theta: Tensor, x: Tensor, buffers: Buffers) -> dict[str, Tensor]:
        """Return the running statistics after one more minibatch of training inputs, (M, d_in)."""
        if isinstance(self.model, BufferedModel):
            return self.model.track(theta, x, self.d_out, buffers)
        return dict(buffers)

    @property
    def recomputes(self) -> bool:
        """Whether predictions need statistics of the training rows for each theta."""
        return bool(getattr(self.model, "recomputes", False))

    def recompute_statistics(self, theta: Tensor, x: Tensor) -> dict[str, Tensor]:
        """Compute these statistics, for `predict`: (D,), training inputs (n, d_in)."""
        assert isinstance(self.model, RecomputingModel), "called only where `recomputes`"
        return self.model.recompute_statistics(theta, x, self.d_out)

    def layers(self, theta: Tensor, batch: Batch, hyper: Hyper) -> Layers:
        """Return each layer's inputs, (M, in), and errors of the log-likelihood, (M, out).

        Errors are the derivatives of log p(y_i | x_i, theta) by the layer's outputs for example i.
        An example's gradient of the weights is the outer product of both, that of the bias the
        error. `InputError` if the model is not made of dense layers.
        """

        def value(f: Tensor) -> Tensor:
            return self.likelihood.log_prob(f, batch.y, hyper, batch.y_unit).sum()

        return self.layout.layered.backpropagate(
            theta, batch.x, self.d_out, torch.func.grad(value)
        )


CHUNK = 2**20
"""Values of the widest layer, over rows and parameter vectors, held in memory at a time."""


def full_batch(x: Tensor, y: Tensor) -> Batch:
    """Make a batch of all training rows, for hyper-parameters in the unit of `y`."""
    return Batch(x, y, x.new_tensor(len(y)), x.new_ones(()))


def log_likelihood(theta: Tensor, problem: Problem, batch: Batch, hyper: Hyper) -> Tensor:
    """Evaluate log p(D | theta), `batch` holding all examples: (m, D) -> (m,), nats."""

    def log_likelihood_of_vector(theta: Tensor) -> Tensor:
        return problem.log_likelihoods(theta, batch, hyper).sum()

    # in chunks: a grid or a sampler asks for millions of vectors at once
    chunk_size = max(1, CHUNK // (len(batch.y) * problem.widest))
    return vmap(log_likelihood_of_vector, chunk_size=chunk_size)(theta)


def log_joint(theta: Tensor, problem: Problem, batch: Batch, hyper: Hyper) -> Tensor:
    """Evaluate log p(D, theta), `batch` holding all examples: (m, D) -> (m,), nats.

    The latent variables of the prior are the parameters.
    """
    return log_likelihood(theta, problem, batch, hyper) + problem.log_prior(theta, hyper)
