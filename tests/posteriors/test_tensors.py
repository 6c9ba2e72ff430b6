"""Posteriors taken apart and put together again."""

from typing import NamedTuple

import pytest
import torch

from bdl.errors import InputError
from bdl.posteriors import Dropout, from_tensors, to_tensors
from bdl.posteriors.tensors import as_type
from bdl.registry import Registry


class Stranger(NamedTuple):
    """A family that nobody registered."""

    loc: torch.Tensor


def test_other_families_are_named_by_their_place(tmp_path):
    """A module, or a file, as where a method is given as path/to/file.py:Method and has a posterior of its own."""
    family, tensors = to_tensors(Stranger(torch.ones(2)))
    assert family == f"{__name__}:Stranger"
    assert from_tensors(family, tensors) == Stranger(tensors["loc"])
    file = tmp_path / "mine.py"
    file.write_text(
        "from collections import namedtuple\nclass Mine(namedtuple('Mine', 'loc')):\n    pass\n"
    )
    mine = Registry("method", {}).get(f"{file}:Mine")
    assert to_tensors(mine(torch.ones(2)))[0] == f"{file}:Mine"


@pytest.mark.parametrize("posterior", [object(), Stranger("text"), torch.ones(2)])
def test_what_is_no_tuple_of_tensors_is_refused(posterior):
    with pytest.raises(InputError, match="cannot be stored: make it a NamedTuple of tensors"):
        to_tensors(posterior)


def test_unknown_families_and_other_fields_are_refused():
    with pytest.raises(InputError, match="unknown posterior 'diagnal': did you mean diagonal"):
        from_tensors("diagnal", {})
    with pytest.raises(
        InputError, match="posterior 'diagonal' has the fields loc, var, not loc, scale"
    ):
        from_tensors("diagonal", {"loc": torch.ones(2), "scale": torch.ones(2)})


def test_only_floating_point_tensors_change_type():
    changed = as_type(
        Dropout(torch.ones(3), torch.tensor([0, 1, 1]), torch.tensor([0.5])), torch.float64
    )
    assert [tensor.dtype for tensor in changed] == [torch.float64, torch.int64, torch.float64]
