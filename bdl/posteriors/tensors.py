"""Posteriors as named tensors, and back, to store them, send them and move them to devices."""

import sys
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from bdl.errors import InputError
from bdl.posteriors.base import Posterior
from bdl.registry import Registry
from bdl.trusted_code import require_trusted

FAMILIES = Registry(
    "posterior",
    {
        "diagonal": "bdl.posteriors.independent:DiagonalGaussian",
        "factor-analysis": "bdl.posteriors.low_rank:FactorAnalysis",
        "full": "bdl.posteriors.full:FullGaussian",
        "linearised": "bdl.posteriors.full:Linearised",
        "traced": "bdl.posteriors.full:Traced",
        "full-precision": "bdl.posteriors.full:FullPrecision",
        "low-rank-precision": "bdl.posteriors.low_rank:LowRankPrecision",
        "kronecker": "bdl.posteriors.kronecker:KroneckerGaussian",
        "last-layer": "bdl.posteriors.full:LastLayer",
        "point": "bdl.posteriors.empirical:Point",
        "dropout": "bdl.posteriors.empirical:Dropout",
        "mixture": "bdl.posteriors.low_rank:Mixture",
        "empirical": "bdl.posteriors.empirical:Empirical",
        "scaled": "bdl.posteriors.independent:Scaled",
        "student-t": "bdl.posteriors.independent:StudentT",
        "weighted": "bdl.posteriors.empirical:Weighted",
    },
)
"""Families by name; each is a NamedTuple of tensors."""

Tree = TypeVar("Tree")


def to_tensors(posterior: Posterior) -> tuple[str, dict[str, Tensor]]:
    """Take a posterior apart: name of the family, and tensors by field.

    The name is ``module:Class`` or ``path/to/file.py:Class`` if the family is not registered.
    `InputError` if the posterior is not a NamedTuple of tensors.
    """
    kind: Any = type(posterior)
    fields = posterior._asdict() if hasattr(posterior, "_asdict") else {}
    if not fields or not all(isinstance(value, Tensor) for value in fields.values()):
        raise InputError(
            f"posterior {kind.__name__} cannot be stored: make it a NamedTuple of tensors"
        )
    module = kind.__module__
    # files that were named by path have no importable name
    location = sys.modules[module].__file__ if module.startswith("bdl_user_") else module
    target = f"{location}:{kind.__qualname__}"
    names = {registered: name for name, registered in FAMILIES.targets.items()}
    return names.get(target, target), fields


def from_tensors(family: str, tensors: Mapping[str, Tensor]) -> Posterior:
    """Build a posterior from the family and the tensors that `to_tensors` returned.

    `InputError` if there is no such family, or it has other fields.
    """
    module, _, name = family.rpartition(":")
    known = getattr(sys.modules.get(module), name, None)
    if module and not (isinstance(known, type) and hasattr(known, "_fields")):
        require_trusted(family, "a stored posterior")  # the file may be a stranger's
    kind = FAMILIES.get(family)
    field_names = getattr(kind, "_fields", ())
    # fields that were added later have defaults, which stand for what older files lack
    missing = set(field_names) - set(tensors) - set(getattr(kind, "_field_defaults", ()))
    if missing or not set(tensors) <= set(field_names):
        raise InputError(
            f"posterior '{family}' has the fields {', '.join(field_names)}, "
            f"not {', '.join(sorted(tensors))}"
        )
    return kind(**tensors)


def copy_tensors(tree: Tree) -> Tree:
    """Copy the tensors of a posterior, or of any tree, without their gradients.

    Other leaves are shared.
    """

    def copy(leaf: Any) -> Any:
        return leaf.detach().clone() if isinstance(leaf, Tensor) else leaf

    return tree_map(copy, tree)


def as_type(tree: Tree, dtype: torch.dtype, device: torch.device | None = None) -> Tree:
    """Convert the floating-point tensors of a posterior, or of any tree.

    Whole numbers only change device.
    """

    def convert(leaf: Tensor) -> Tensor:
        return leaf.to(device=device, dtype=dtype if leaf.is_floating_point() else None)

    return tree_map(convert, tree)
