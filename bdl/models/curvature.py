"""The generalised Gauss-Newton matrix of minus the log-likelihood, and its Kronecker factors.

With the derivative J_i, (C, D), of the C outputs of row i, and a root R_i of the Fisher information of its likelihood
about them,

    H = sum_i (R_i^T J_i)^T (R_i^T J_i).

It is minus the Hessian where the model is linear in its parameters, and the likelihood's information about the outputs
does not depend on the target.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.models.base import Layers
from bdl.models.problem import Hyper, Problem

_CHUNK = 1 << 22
"""Numbers of the rows R_i^T J_i that are held at a time."""


def gauss_newton(problem: Problem, theta: Tensor, x: Tensor, hyper: Hyper) -> Tensor:
    """Return H, (D, D).

    Parameters
    ----------
    problem
        Model and likelihood.
    theta
        Parameters, (D,).
    x
        Inputs of all training rows, (n, d_in).
    hyper
        Hyper-parameters in the unit of the targets that the model sees.
    """

    def rows(x: Tensor, root: Tensor) -> Tensor:
        pull = torch.func.vjp(lambda at: problem.predict(at, x.unsqueeze(0), {}).squeeze(0), theta)[1]
        found: Tensor = torch.func.vmap(pull)(root.mT)[0]
        return found

    total, size = theta.new_zeros(len(theta), len(theta)), max(1, _CHUNK // (len(theta) * problem.d_out))
    for part, root in zip(torch.split(x, size), torch.split(_roots(problem, theta, x, hyper), size), strict=True):
        G = torch.func.vmap(rows)(part, root).flatten(0, 1)
        total.addmm_(G.mT, G)
    return total


def kronecker(problem: Problem, theta: Tensor, x: Tensor, hyper: Hyper) -> Tensor:
    """Return H by Kronecker factors, (D, D); arguments as for `gauss_newton`.

    It is zero but for the weights of each dense layer, (1/n) sum_i e_i^T e_i (x) sum_i a_i a_i^T, and for its biases,
    sum_i e_i^T e_i, where a_i are the layer's inputs and the rows of e_i, (C, out), the errors of R_i^T f_i (Botev,
    Ritter and Barber 2017). Weights and biases stand apart, as they do in the software of Daxberger et al. (2021).

    Raises
    ------
    InputError
        If the model is not made of dense layers.
    """
    backpropagate: Callable[..., Layers] | None = None
    for name in ("backpropagate", "dense_layers"):
        backpropagate = backpropagate or getattr(problem.model, name, None)
    if backpropagate is None:
        raise InputError(f"{type(problem.model).__name__} is not made of dense layers: use curvature: ggn")
    roots = _roots(problem, theta, x, hyper)
    passes = [backpropagate(theta, x, problem.d_out, lambda f, column=column: column) for column in roots.unbind(-1)]
    blocks = []
    for own in zip(*passes, strict=True):
        inputs, errors = own[0][0], torch.cat([errors for _, errors in own])
        outer = errors.mT @ errors
        blocks += [torch.kron(outer, inputs.mT @ inputs / len(x)), outer]
    biases = sum(map(len, blocks)) == len(theta)
    joined: Tensor = torch.block_diag(*blocks if biases else blocks[::2])  # type: ignore[no-untyped-call]
    return joined


def _roots(problem: Problem, theta: Tensor, x: Tensor, hyper: Hyper) -> Tensor:
    """Return R of each row, (n, C, C)."""
    f = problem.predict(theta, x, {})
    return problem.likelihood.root_fisher(f, hyper, torch.ones((), dtype=f.dtype))
