"""Networks without parameters: the function of a `torch.nn.Module`, and its tensors apart."""

import copy
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.dropout import _DropoutNd

from bdl.errors import InputError
from bdl.registry import Registry

FACTORIES = Registry("module", {})


@dataclass(frozen=True, eq=False)
class Skeleton:
    """A network in four states, its parameters taken out."""

    training: nn.Module  # Batch normalisation by the minibatch
    tracking: nn.Module  # The same, writing running statistics
    averaging: nn.Module  # The same, writing those of the minibatch alone
    evaluation: nn.Module  # Batch normalisation by running statistics
    shapes: Mapping[str, torch.Size]  # Shape of each parameter by name, in their order
    statistics: Mapping[str, Tensor]  # Running statistics before training, by name
    constants: Mapping[str, Tensor]  # Other buffers by name
    centre: Tensor  # Mean of each parameter at the start, (D,)
    spread: Tensor  # Its standard deviation, (D,)
    biases: Tensor  # Mask of the biases, bool, (D,)
    widest: int  # Number of outputs of the widest layer for one row
    last_called: str  # Name of the layer with parameters that is called last

    @property
    def sizes(self) -> list[int]:
        """Entries of each parameter."""
        return [shape.numel() for shape in self.shapes.values()]

    def tensors(self, theta: Tensor) -> dict[str, Tensor]:
        """Return the parameters in a vector (D,), and the constants, by name.

        Constants are moved to the vector's device, and floats get its type.
        """
        tensors = dict[str, Tensor]()
        vectors = torch.split(theta, self.sizes)
        for (name, shape), vector in zip(self.shapes.items(), vectors, strict=True):
            tensors[name] = vector.view(shape)
        for name, value in self.constants.items():
            dtype = theta.dtype if value.is_floating_point() else None
            tensors[name] = value.to(theta.device, dtype)
        return tensors


def import_factory(name: str) -> Callable[..., Any]:
    """Import a function that makes modules.

    Its name is ``module:function`` or ``path/to/file.py:function``.
    """
    if ":" not in name and name not in FACTORIES.targets:
        raise InputError(f"factory '{name}': give module:function or path/to/file.py:function")
    return FACTORIES.get(name)


def make_network(
    factory: str, settings: Mapping[str, Any], shape: tuple[int, ...] | None, d_in: int, d_out: int
) -> nn.Module:
    """Call a factory; arguments as in `bdl.models.modules.Module`.

    `InputError` if it fails, or returns no network.
    """
    if shape is not None and math.prod(shape) != d_in:
        raise InputError(
            f"shape {list(shape)} has {math.prod(shape)} values a row: "
            f"the data have {d_in}; mend shape"
        )
    make = import_factory(factory)
    # values that the function draws are the same in every process, and the caller's random numbers
    # go on as if nothing had been drawn
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            net = make(d_in if shape is None else shape, d_out, **settings)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"factory '{factory}' fails: {type(error).__name__}: {error}"
            ) from error
    if not isinstance(net, nn.Module):
        raise InputError(
            f"factory '{factory}' gives {type(net).__name__}: let it return a torch.nn.Module"
        )
    return net


def take_apart(owner: str, net: nn.Module, row: tuple[int, ...], d_out: int) -> Skeleton:
    """Take a network, float32 on the CPU, apart, which changes it.

    Messages call it `owner`. `row` is the shape of one row. `InputError` if the network draws
    random numbers of its own, fails, or has other inputs, or outputs than `d_out`.
    """
    _check_layers(owner, net)
    widest, last_called = _trace_layers(owner, net, row, d_out)
    statistics = dict[str, Tensor]()
    for module_name, module in net.named_modules():
        if isinstance(module, _BatchNorm):
            module.num_batches_tracked = None
            if module.track_running_stats:
                for kind in ("running_mean", "running_var"):
                    # the network itself, if it is the normalisation, has an empty name
                    name = f"{module_name}.{kind}".removeprefix(".")
                    statistics[name] = getattr(module, kind).clone()
    pretrained: Collection[str] = getattr(net, "pretrained", ())
    shapes = dict[str, torch.Size]()
    centre, spread, biases = list[Tensor](), list[Tensor](), list[Tensor]()
    for name, value in net.named_parameters():
        is_bias, is_pretrained = name.rpartition(".")[2] == "bias", name in pretrained
        is_random = value.ndim > 1 and not is_bias and not is_pretrained
        flat = value.detach().flatten()
        shapes[name] = value.shape
        centre.append(0 * flat if is_random or (is_bias and not is_pretrained) else flat)
        scale = math.sqrt(2 / (len(flat) / len(value))) if is_random else 0.0
        spread.append(torch.full_like(flat, scale))
        biases.append(torch.full(flat.shape, is_bias))
    return Skeleton(
        training=_copy_without_values(
            net, track_running_stats=False, running_mean=None, running_var=None
        ).train(),
        tracking=_copy_without_values(net).train(),
        averaging=_copy_without_values(net, momentum=1.0).train(),
        evaluation=_copy_without_values(net).eval(),
        shapes=shapes,
        statistics=statistics,
        constants={
            name: value.clone() for name, value in net.named_buffers() if name not in statistics
        },
        centre=torch.cat(centre),
        spread=torch.cat(spread),
        biases=torch.cat(biases),
        widest=widest,
        last_called=last_called,
    )


def _check_layers(owner: str, net: nn.Module) -> None:
    """Raise `InputError` for layers that cannot be a pure function."""
    for name, module in net.named_modules():
        if isinstance(module, _DropoutNd) and module.p > 0:
            raise InputError(
                f"{owner}: {name} draws random numbers of its own; leave dropout to a method"
            )
        if isinstance(module, _NormBase) and module.track_running_stats:
            if not isinstance(module, _BatchNorm):
                raise InputError(
                    f"{owner}: {name} gathers statistics; give track_running_stats=False"
                )
            if module.momentum is None:
                raise InputError(f"{owner}: {name} averages all minibatches; give it a momentum")
        elif isinstance(module, _BatchNorm):
            raise InputError(
                f"{owner}: predictions of a row depend on others by {name}; give it "
                "track_running_stats=True"
            )
    for name, value in net.named_parameters():
        if not value.requires_grad:
            raise InputError(
                f"{owner}: {name} has requires_grad=False, and all parameters are trained; call "
                "requires_grad_(True), or keep what is constant as a buffer"
            )


def _trace_layers(owner: str, net: nn.Module, row: tuple[int, ...], d_out: int) -> tuple[int, str]:
    """Return the most outputs of a layer for one row, and the layer that is called last.

    Two rows of zeros are tried. A layer is a module with parameters, none of which is of a module
    in it.
    """
    widths, called = [math.prod(row)], [""]

    def record(name: str, module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            widths.append(output.numel() // 2)
        has_parts = any([*child.parameters()] for child in module.children())
        if [*module.parameters()] and not has_parts:
            called.append(name)

    handles = [
        module.register_forward_hook(partial(record, name)) for name, module in net.named_modules()
    ]
    try:
        with torch.no_grad():
            outputs = net.eval()(torch.zeros(2, *row))
    except Exception as error:
        raise InputError(
            f"{owner}: rows of shape {row} fail: {type(error).__name__}: {error}"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    if outputs.shape != (2, d_out):
        raise InputError(
            f"{owner} gives outputs {tuple(outputs.shape)} for 2 rows: make it (2, {d_out})"
        )
    return max(widths), called[-1]


def _copy_without_values(net: nn.Module, **changes: Any) -> nn.Module:
    """Copy a network without its numbers, and change attributes of its batch normalisations."""
    meta_net = copy.deepcopy(net).to("meta")
    for module in meta_net.modules():
        if isinstance(module, _BatchNorm):
            for name, value in changes.items():
                setattr(module, name, value)
    return meta_net
