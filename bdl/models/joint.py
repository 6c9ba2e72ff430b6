"""The log-density of all data and the parameters, log p(D, theta), at many parameter vectors."""

from torch import Tensor
from torch.func import vmap

from bdl.models.problem import Batch, Hyper, Problem

CHUNK = 2**20
"""Values of the widest layer, over rows and parameter vectors, held in memory at a time."""


def whole(x: Tensor, y: Tensor) -> Batch:
    """Take all training rows as one batch, (n, d) and (n,), for hyper-parameters in the unit of `y`."""
    return Batch(x, y, x.new_tensor(len(y)), x.new_ones(()))


def log_likelihood(theta: Tensor, problem: Problem, batch: Batch, hyper: Hyper) -> Tensor:
    """Evaluate log p(D | theta), `batch` holding all examples: (m, D) -> (m,), nats."""

    def one(theta: Tensor) -> Tensor:
        return problem.log_likelihoods(theta, batch, hyper).sum()

    values: Tensor = vmap(one, chunk_size=max(1, CHUNK // (len(batch.y) * problem.widest)))(theta)
    return values


def log_joint(theta: Tensor, problem: Problem, batch: Batch, hyper: Hyper) -> Tensor:
    """Evaluate log p(D, theta), `batch` holding all examples: (m, D) -> (m,), nats.

    The latent variables of the prior are the parameters.
    """
    return log_likelihood(theta, problem, batch, hyper) + problem.log_prior(theta, hyper)
