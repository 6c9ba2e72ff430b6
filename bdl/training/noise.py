"""The standard normals a method asks for, cut from a trial's counter-based stream."""

from math import prod

import torch
from torch import Tensor

from bdl.methods.base import Shapes


def pairs(shapes: Shapes) -> int:
    """Count the generator's pairs that fill these shapes."""
    return (sum(map(prod, shapes.values())) + 1) // 2


def shaped(halves: tuple[Tensor, ...], shapes: Shapes) -> dict[str, Tensor]:
    """Cut one trial's normals, tensors of one axis end to end, into named tensors."""
    sizes = [prod(shape) for shape in shapes.values()]
    flat = torch.cat(halves)[: sum(sizes)]
    parts = torch.split(flat, sizes)
    return {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
