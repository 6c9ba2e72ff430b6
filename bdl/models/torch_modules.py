"""Models as `torch.nn.Module`, for libraries that train those, and pretrained weights, read from files."""

import copy
import hashlib
import io
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

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


_DIGEST = "[0-9a-fA-F]{12,64}"


def read_weights(path: Path, sha256: str | None) -> Mapping[str, Any]:
    """Read named tensors from a file that ``torch.save`` wrote.

    Parameters
    ----------
    path
        The file.
    sha256
        Hex digest that it must have, or 12 characters of its start at the least; None takes any file.

    Raises
    ------
    InputError
        If the file is missing, damaged or another than asked for; or if the digest is none.
    """
    if sha256 is not None and not re.fullmatch(_DIGEST, sha256):
        raise InputError(f"sha256 '{sha256[:64]}': give the file's SHA-256 in hex, or its first 12 characters or more")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"weights {path}: {error.strerror}; give the path of a file that torch.save wrote") from None
    found = hashlib.sha256(content).hexdigest()
    if sha256 and not found.startswith(sha256.lower()):
        raise InputError(f"weights {path}: expected sha256 {sha256}, found {found[: len(sha256)]}; get the file again")
    try:
        # of the bytes that the digest is of: the file may be another by now
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:
        raise InputError(f"weights {path}: cannot be read ({type(error).__name__}); get the file again") from None
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise InputError(f"weights {path}: no tensors by name; save the network's state_dict()")
    return state


def with_weights(net: nn.Module, state: Mapping[str, Any], source: str) -> nn.Module:
    """Start a network from pretrained tensors, but for its last layer; its attribute `pretrained` names them.

    Parameters
    ----------
    net
        The network, which is changed and returned.
    state
        Tensors by the network's own names.
    source
        What messages call them.

    Raises
    ------
    InputError
        If names or shapes are those of another architecture.
    """
    own = net.state_dict()
    last = [*dict(net.named_parameters())][-1].rpartition(".")[0]
    idle = (f"{last}.", "num_batches_tracked")  # counts are of no use with a fixed momentum, and old files lack them
    wanted = {name: value.shape for name, value in own.items() if not (name.startswith(idle) or name.endswith(idle))}
    wrong = [name for name, shape in wanted.items() if name not in state or state[name].shape != shape]
    strange = [name for name in state if name not in own]
    if wrong or strange:
        raise InputError(
            f"weights {source}: of another architecture: {len(wrong)} tensors are missing or of another shape and "
            f"{len(strange)} unknown, the first is {(wrong + strange)[0]}; use weights of this network"
        )
    net.load_state_dict({name: state[name] for name in wanted}, strict=False)
    vars(net)["pretrained"] = frozenset(wanted)
    return net
