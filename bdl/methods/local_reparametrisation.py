"""Local reparametrisation: draws of what layers put out in place of their weights (Kingma, Salimans and Welling 2015).

With independent Gaussian weights of means M and variances V, (out, in), and inputs a of a layer, what it puts out for
one row is Gaussian with means M a and variances V a^2. Each row has a draw of its own there, so that the gradient by a
minibatch of rows varies less than with one draw of the weights for all rows; its mean is the same.
"""

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.models.activations import ACTIVATIONS
from bdl.models.networks import Linear, Mlp
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors.kronecker import to_blocks
from bdl.rng import random_normals

_TINY = 1e-20
"""Added to variances: the derivative of a root is infinite at 0, where a layer without a bias has no inputs."""


def check(problem: Problem) -> None:
    """Raise `InputError` if the model is not one of dense layers with a function between them."""
    if not isinstance(problem.model, Mlp | Linear):
        name = type(problem.model).__name__
        raise InputError(f"local_reparametrisation needs dense layers, not {name}: use linear or mlp, or leave it out")


def draws(key: Tensor, samples: int, rows: int, problem: Problem) -> Tensor:
    """Draw normals for S samples of each of M rows, (S, M, units): how many they are, a method cannot say beforehand.

    `key` are two standard normals, of which the generator's key is made.
    """
    count = samples * rows * sum(_widths(problem)[1:])
    keys = (key * 2**24).to(torch.int32).unsqueeze(0)
    step = torch.zeros((), dtype=torch.int32, device=key.device)
    halves = random_normals(keys, step, (count + 1) // 2, key.dtype)
    return torch.cat(halves, 1)[0, :count].view(samples, rows, -1)


def gradients(
    mu: Tensor, sigma: Tensor, batch: Batch, hyper: Hyper, z: Tensor, problem: Problem
) -> tuple[Tensor, Tensor]:
    """Differentiate minus the log-likelihood of all rows, averaged over samples, by means and standard deviations.

    Parameters
    ----------
    mu, sigma
        Of the parameters, (D,).
    batch, hyper
        As in `Problem.log_likelihood`.
    z
        Standard normals, (S, M, units): for each row one of each unit of every layer but the inputs.
    problem
        Model and likelihood.
    """

    def cost(mu: Tensor, sigma: Tensor) -> Tensor:
        def fit(own: Tensor) -> Tensor:
            f = outputs(mu, sigma.square(), batch.x, own, problem)
            return problem.likelihood.log_prob(f, batch.y, hyper, batch.y_unit).mean()

        return -batch.n * torch.func.vmap(fit)(z).mean()

    found: tuple[Tensor, Tensor] = torch.func.grad(cost, argnums=(0, 1))(mu, sigma)
    return found


def outputs(mu: Tensor, var: Tensor, x: Tensor, z: Tensor, problem: Problem) -> Tensor:
    """Draw what the model puts out for each row: (D,), (D,), (M, d_in), (M, units) -> (M, d_out)."""
    widths, model, a = _widths(problem), problem.model, x
    parts = torch.split(z, list(widths[1:]), -1)
    for layer, (M, V, own) in enumerate(zip(to_blocks(mu, widths), to_blocks(var, widths), parts, strict=True)):
        if layer and isinstance(model, Mlp):
            a = ACTIVATIONS[model.activation].function(a)
        if M.shape[-1] > a.shape[-1]:  # the biases are a last column
            a = torch.cat([a, torch.ones_like(a[:, :1])], 1)
        a = a @ M.mT + (a.square() @ V.mT + _TINY).sqrt() * own
    return a


def _widths(problem: Problem) -> tuple[int, ...]:
    assert isinstance(problem.model, Mlp | Linear), "as `check` wants it"
    return problem.model.widths(problem.d_in, problem.d_out)
