"""Networks without parameters: what a `torch.nn.Module` does, given the tensors that it works with."""

import copy
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
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
    widest: int  # Values that the widest layer puts out for one row

    @property
    def sizes(self) -> list[int]:
        """Entries of each parameter."""
        return [shape.numel() for shape in self.shapes.values()]

    def tensors(self, theta: Tensor) -> dict[str, Tensor]:
        """Name the parameters in a vector (D,), and the constants, on its device and floats in its type."""
        parts = zip(self.shapes.items(), torch.split(theta, self.sizes), strict=True)
        named = {name: part.view(shape) for (name, shape), part in parts}
        dtypes = {
            name: theta.dtype if value.is_floating_point() else None
            for name, value in self.constants.items()
        }
        return named | {
            name: value.to(theta.device, dtypes[name]) for name, value in self.constants.items()
        }


def import_factory(name: str) -> Callable[..., Any]:
    """Import a function that makes modules: ``module:function`` or ``path/to/file.py:function``."""
    if ":" not in name and name not in FACTORIES.targets:
        raise InputError(f"factory '{name}': give module:function or path/to/file.py:function")
    return FACTORIES.get(name)


def make_network(
    factory: str, settings: Mapping[str, Any], shape: tuple[int, ...] | None, d_in: int, d_out: int
) -> nn.Module:
    """Call a factory; arguments as in `bdl.models.modules.Module`.

    `InputError` if it fails, or makes no network.
    """
    if shape is not None and math.prod(shape) != d_in:
        raise InputError(
            f"shape {list(shape)} has {math.prod(shape)} values a row: the data have {d_in}; mend shape"
        )
    make = import_factory(factory)
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


def take_apart(name: str, net: nn.Module, row: tuple[int, ...], d_out: int) -> Skeleton:
    """Take a network apart, float32, on the CPU, which is changed by that.

    Messages call it `name`.

    `row` is the shape of one row. `InputError` if the network draws random numbers of its own,
    fails, or has other inputs, or outputs than `d_out`.
    """
    _check_layers(name, net)
    widest = _measure_widest_layer(name, net, row, d_out)
    norms = {name: part for name, part in net.named_modules() if isinstance(part, _BatchNorm)}
    for part in norms.values():
        part.num_batches_tracked = None
    statistics = {
        f"{name}.{kind}".removeprefix("."): getattr(part, kind).clone()
        for name, part in norms.items()
        for kind in ("running_mean", "running_var")
        if part.track_running_stats
    }
    pretrained: Collection[str] = getattr(net, "pretrained", ())
    shapes, centre, spread, biases = (
        dict[str, torch.Size](),
        list[Tensor](),
        list[Tensor](),
        list[Tensor](),
    )
    for key, value in net.named_parameters():
        kept, bias, flat = (
            key in pretrained,
            key.rpartition(".")[2] == "bias",
            value.detach().flatten(),
        )
        drawn = value.ndim > 1 and not bias and not kept
        shapes[key] = value.shape
        centre.append(0 * flat if drawn or (bias and not kept) else flat)
        spread.append(
            torch.full_like(flat, math.sqrt(2 / (len(flat) / len(value))) if drawn else 0.0)
        )
        biases.append(torch.full(flat.shape, bias))
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
    )


def _check_layers(owner: str, net: nn.Module) -> None:
    """Refuse layers that need what a pure function has not."""
    for name, part in net.named_modules():
        if isinstance(part, _DropoutNd) and part.p > 0:
            raise InputError(
                f"{owner}: {name} draws random numbers of its own; leave dropout to a method"
            )
        if isinstance(part, _NormBase) and part.track_running_stats:
            if not isinstance(part, _BatchNorm):
                raise InputError(
                    f"{owner}: {name} gathers statistics; give track_running_stats=False"
                )
            if part.momentum is None:
                raise InputError(f"{owner}: {name} averages all minibatches; give it a momentum")


def _measure_widest_layer(owner: str, net: nn.Module, row: tuple[int, ...], d_out: int) -> int:
    """Try two rows of zeros and count the values that each layer puts out for one."""
    found = [math.prod(row)]

    def look(part: nn.Module, given: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            found.append(output.numel() // 2)

    handles = [part.register_forward_hook(look) for part in net.modules()]
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
    return max(found)


def _copy_without_values(net: nn.Module, **changes: Any) -> nn.Module:
    """Copy a network without the numbers in it, and change attributes of its batch normalisations."""
    hollow = copy.deepcopy(net).to("meta")
    for part in hollow.modules():
        if isinstance(part, _BatchNorm):
            for name, value in changes.items():
                setattr(part, name, value)
    return hollow
