"""Checks of what the functions of a method return, for errors that name the author's file.

Without them tensors of a wrong shape would be broadcast, and give numbers that look right.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import (
    keystr,
    register_pytree_node,
    tree_flatten_with_path,
    tree_structure,
)

from bdl.errors import InputError
from bdl.methods.base import Method
from bdl.posteriors.base import check_finite
from bdl.registry import locate_definition, outside_file

V = TypeVar("V")


class UnknownHyperparameter(InputError, KeyError):
    """A method asks for a hyper-parameter that its entry does not have."""

    def __str__(self) -> str:  # that of KeyError adds quotes
        return str(self.args[0])


class WrongReturn(InputError):
    """A function of a method has returned what it may not."""


class KnownHyper(dict[str, V]):
    """Hyper-parameters by name; a wrong name is answered by those that there are."""

    def __missing__(self, name: str) -> NoReturn:
        raise UnknownHyperparameter(
            f"unknown hyper-parameter {name!r}; known: {', '.join(sorted(self))}"
        )


def _unflatten_hyper(values: Any, names: Any) -> KnownHyper[Any]:
    return KnownHyper(zip(names, values, strict=True))


# methods may map functions over the hyper-parameters, as over any mapping
register_pytree_node(
    KnownHyper, lambda hyper: (list(hyper.values()), tuple(hyper)), _unflatten_hyper
)


@contextmanager
def returned_by(method: Method, function: str, value: object) -> Iterator[None]:
    """Add to each `InputError` of a block that a function of the method has returned the value.

    The message has the file and the line where a function from outside the package is defined.
    """
    try:
        yield
    except InputError as error:
        kind = type(method)
        place = f" ({locate_definition(kind, function)})" if outside_file(kind) else ""
        raise WrongReturn(
            f"{kind.__name__}.{function} returned {_describe(value)}: {error}{place}"
        ) from None


def check_state(state: object, dtype: torch.dtype | None = None) -> None:
    """Raise `InputError` unless a state is a tree of tensors.

    If there is a `dtype`, that of all its floating-point numbers, these have to be finite too.
    """
    for path, leaf in tree_flatten_with_path(state)[0]:
        name = _name_leaf(path)
        if not isinstance(leaf, Tensor):
            advice = "return tensors, in a NamedTuple say"
            raise InputError(f"{name} is {_describe(leaf)}: {advice}" if path else advice)
        if dtype is not None and leaf.is_floating_point():
            check_dtype(name, leaf, dtype)
            check_finite(name, leaf, "a fit has to start from numbers")


def check_update(before: object, after: object) -> None:
    """Raise `InputError` unless two states have the same structure, shapes and types."""
    if tree_structure(before) != tree_structure(after):
        raise InputError(f"return the new state, {_describe(before)} as `init` does")
    leaves = zip(tree_flatten_with_path(before)[0], tree_flatten_with_path(after)[0], strict=True)
    for (path, old), (_, new) in leaves:
        name = _name_leaf(path)
        if not isinstance(new, Tensor):
            raise InputError(f"{name} is {_describe(new)}: return a tensor")
        if new.shape != old.shape:
            raise InputError(
                f"{name} has shape {tuple(new.shape)}: "
                f"give it shape {tuple(old.shape)}, that of the state before"
            )
        check_dtype(name, new, old.dtype)


def check_numbers(tree: object, advice: str) -> None:
    """Raise `InputError` unless all numbers of a state or a posterior are finite."""
    for path, leaf in tree_flatten_with_path(tree)[0]:
        if isinstance(leaf, Tensor):
            check_finite(_name_leaf(path), leaf, advice)


def check_dtype(name: str, tensor: Tensor, dtype: torch.dtype) -> None:
    """Raise `InputError` unless a tensor has this type."""
    if tensor.dtype != dtype:
        raise InputError(
            f"{name} is {_type_name(tensor.dtype)}: make it {_type_name(dtype)}, "
            "the type of what it is computed from"
        )


def check_dtypes(tree: Any, dtype: torch.dtype) -> None:
    """Raise `InputError` unless all floating-point numbers of a posterior have this type."""
    for path, leaf in tree_flatten_with_path(tree)[0]:
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            check_dtype(_name_leaf(path), leaf, dtype)


def _name_leaf(path: Any) -> str:
    return keystr(path).lstrip(".") or "it"


def _type_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _describe(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if value is None:
        return "None"
    return f"a {type(value).__name__}"
