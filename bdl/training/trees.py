"""Trees of tensors, which are tuples, lists and mappings: PyTorch's own functions take longer than a small update."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_map

Kind = tuple[object, ...]
"""Structure of arguments, and shapes, strides, types and devices of their tensors."""


def flat(tree: Any) -> tuple[list[Tensor], Kind]:
    """Return the tensors of a tree, and its kind."""
    leaves, kind = list[Tensor](), list[object]()
    _flatten(tree, leaves, kind)
    return leaves, tuple(kind)


def _flatten(tree: Any, leaves: list[Tensor], kind: list[object]) -> None:
    """Append the tensors of tuples, lists and mappings to `leaves`, and what makes a kind of them to `kind`."""
    if isinstance(tree, Tensor):
        leaves.append(tree)
        kind.append((tree.shape, tree.stride(), tree.dtype, tree.device))
    elif isinstance(tree, dict):
        kind.append(tuple(tree))
        for part in tree.values():
            _flatten(part, leaves, kind)
    else:
        kind.append((type(tree), len(tree)))
        for part in tree:
            _flatten(part, leaves, kind)


def tensors(tree: Any) -> Sequence[Tensor]:
    """Return the tensors of tuples, lists and mappings in their order."""
    if isinstance(tree, Tensor):
        return (tree,)
    return [leaf for part in (tree.values() if isinstance(tree, dict) else tree) for leaf in tensors(part)]


def rebuilt(tree: Any, leaves: Iterator[Any]) -> Any:
    """Put leaves where the tensors of a tree are, or the Nones that stand for them."""
    if tree is None or isinstance(tree, Tensor):
        return next(leaves)
    if isinstance(tree, dict):
        return {name: rebuilt(part, leaves) for name, part in tree.items()}
    parts = [rebuilt(part, leaves) for part in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)


def settled(state: Any) -> Any:
    """Return dimensions of size one the strides that go with the shape.

    Any stride does for them, and a trace would be made anew for each that comes along. The numbers stay where they are
    if they lie in the order of the shape; else they are copied into it. Tensors without such dimensions stay as they
    are.
    """
    return tree_map(_settled, state)


def _settled(leaf: Tensor) -> Tensor:
    if 1 not in leaf.shape:
        return leaf
    strides = [prod(leaf.shape[after:]) for after in range(1, leaf.ndim + 1)]
    return leaf.contiguous().as_strided(leaf.shape, strides)
