"""Models as `torch.nn.Module`, for libraries that train those."""

import copy
from itertools import pairwise

import torch
from torch import nn

from bdl.errors import InputError
from bdl.models.modules import GivenModule, Module
from bdl.models.networks import Linear, Mlp
from bdl.models.problem import Problem
from bdl.models.skeleton import make_network

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "softplus": nn.Softplus,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}


def torch_module(problem: Problem, seed: int) -> nn.Module:
    """Build the model of a problem as a module, float32, on the CPU.

    ``torch.nn.utils.parameters_to_vector(module.parameters())`` is the parameter vector of the problem, (D,).

    Parameters
    ----------
    problem
        Whose model is meant.
    seed
        Of its start, which has the law that the engine's fits start from.

    Raises
    ------
    InputError
        If the model is none that can be built.
    """
    network = _network(problem)
    noise = torch.randn(problem.dim, generator=torch.Generator().manual_seed(seed))
    nn.utils.vector_to_parameters(problem.initial(noise), network.parameters())
    return network.requires_grad_(True).train()


def _network(problem: Problem) -> nn.Module:
    model = problem.model
    if isinstance(model, Module):
        if isinstance(model, GivenModule):
            network = copy.deepcopy(model.network)
        else:
            network = make_network(model.factory, model.settings, model.shape, problem.d_in, problem.d_out)
        return network if model.shape is None else nn.Sequential(nn.Unflatten(1, model.shape), network)
    if not isinstance(model, Linear | Mlp):
        raise InputError(f"model {type(model).__name__} is no torch module: use linear, mlp or module")
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(model.widths(problem.d_in, problem.d_out)):
        layers += [nn.Linear(n_in, n_out, bias=model.bias)]
        if isinstance(model, Mlp):
            layers += [_ACTIVATIONS[model.activation]()]
    return nn.Sequential(*layers[: -1 if isinstance(model, Mlp) else None])
