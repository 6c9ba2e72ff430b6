"""A device without hardware: tensors are computed on the CPU, and refuse tensors that are there by mistake."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

ELSEWHERE = "lazy:0"
"""A device that PyTorch knows by name, and has no code for."""

_MOVES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}
"""What may bring tensors of two devices together."""


class WrongDevice(RuntimeError):
    """An operation between the device and the CPU that a GPU would refuse, or have to wait for."""


class There(Tensor):
    """A tensor on the device, whose numbers are in a tensor on the CPU."""

    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> "There":
        with (
            no_dispatch()
        ):  # its shape is that of a tensor without numbers, which operations in place may change
            whole = torch.empty(
                here.untyped_storage().nbytes() // here.itemsize, dtype=here.dtype, device="meta"
            )
            shape = whole.as_strided(here.shape, here.stride(), here.storage_offset())
        own: There = Tensor._make_subclass(cls, shape, dispatch_device=True)  # type: ignore[attr-defined]
        own.here = here
        return own

    def new_tensor(self, data: Any) -> Tensor:
        """Make a tensor on the device; PyTorch's own takes the device from where shapes are."""
        return torch.tensor(data, dtype=self.dtype, device=ELSEWHERE)

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _call(function, args, kwargs or {})


class _Device(TorchDispatchMode):
    """Sees operations without a tensor on the device as well, such as those that make one."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _call(function, args, kwargs or {})


_made = [0]
"""Tensors that were made from nothing on the CPU, less those that went from there to the device.
"""


@contextmanager
def none_left_behind() -> Iterator[None]:
    """Refuse more tensors that are made from nothing, without a device, than are moved to it."""
    before = _made[0]
    yield
    if _made[0] > before:
        raise WrongDevice("a tensor is made without a device, and stays on the CPU")


@contextmanager
def elsewhere() -> Iterator[None]:
    """Let ``device=ELSEWHERE`` and ``.to(ELSEWHERE)`` work."""
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(
        True
    )  # torch.tensor moves to the device where the mode sees it
    try:
        with _Device():
            yield
    finally:
        torch._C._set_only_lift_cpu_tensors(before)


def here(tree: Any) -> Any:
    """Return the numbers of tensors that have to be on the device.

    `WrongDevice` if one of them is not.
    """
    wrong = [
        leaf
        for leaf in tree_leaves(tree)
        if isinstance(leaf, Tensor) and not isinstance(leaf, There)
    ]
    if wrong:
        raise WrongDevice(
            f"{len(wrong)} tensors are on the CPU, the first has the shape {tuple(wrong[0].shape)}"
        )
    return tree_map(lambda leaf: leaf.here if isinstance(leaf, There) else leaf, tree)


def _call(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if function is torch.ops.prim.device.default:
        return torch.device(ELSEWHERE)
    leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    there = any(isinstance(leaf, There) for leaf in leaves)
    if there and function not in _MOVES:
        _check(function, [leaf for leaf in leaves if not isinstance(leaf, There)])
    where = kwargs.get("device")
    to_cpu = where is None or torch.device(where).type == "cpu"
    if function in _MOVES:
        _made[0] -= bool(leaves) and not there and not to_cpu
    elif not leaves:
        _made[0] += to_cpu
    if there and where is not None and to_cpu:
        raise WrongDevice(f"{function}: a tensor leaves the device")
    inside = {**kwargs, "device": "cpu"} if where is not None else kwargs
    plain, inside = tree_map(
        lambda leaf: leaf.here if isinstance(leaf, There) else leaf, (args, inside)
    )
    found = function(*plain, **inside)
    if torch.Tag.inplace_view in function.tags:  # the shape of the tensor itself changes, too
        with no_dispatch():
            function(*args, **kwargs)
        return args[0]
    stays = there if where is None else torch.device(where).type == torch.device(ELSEWHERE).type
    return tree_map(
        lambda leaf: There(leaf) if stays and isinstance(leaf, Tensor) else leaf, found
    )


def _check(function: Any, strange: Sequence[Tensor]) -> None:
    """Refuse tensors of the CPU among others, but for single numbers in an operation that is element by element."""
    wrong = [leaf for leaf in strange if leaf.ndim or torch.Tag.pointwise not in function.tags]
    if wrong:
        raise WrongDevice(f"{function}: a tensor of shape {tuple(wrong[0].shape)} is on the CPU")
