"""What base classes of methods ask for, and what they answer."""

from dataclasses import dataclass

import pytest
import torch

from bdl.errors import InputError
from bdl.methods import METHODS
from bdl.methods.base import Direct, ExternalMethod, MinibatchMethod, StreamMethod, stacked
from bdl.models.problem import Batch
from bdl.posteriors import Point


@dataclass(frozen=True)
class Unfinished(MinibatchMethod):
    """Does not say how it moves, nor where it ends."""

    def init(self, problem, noise):
        return noise["theta"]


@dataclass(frozen=True)
class Stranger:
    """Has everything, and is derived from nothing."""

    def fit(self, problem, x, y, hyper, seed):
        return Point(x)


@dataclass(frozen=True)
class Once(Direct):
    """Returns what it was given."""

    def fit(self, problem, x, y, hyper, seed):
        return Point(x + seed)


def test_what_a_method_lacks_is_named():
    assert METHODS.lacking(Unfinished) == "posterior, step; see bdl.methods.base:MinibatchMethod"
    assert METHODS.lacking(Stranger) == (
        "a base class: derive it from bdl.methods.base:MinibatchMethod or bdl.methods.base:StreamMethod or "
        "bdl.methods.base:ExternalMethod"
    )
    assert METHODS.lacking(Once) is None


def test_a_method_of_a_file_is_refused_with_what_it_lacks(tmp_path):
    own = tmp_path / "own.py"
    own.write_text("from dataclasses import dataclass\n\n\n@dataclass(frozen=True)\nclass Own:\n    size: int = 1\n")
    with pytest.raises(
        InputError, match=r"own\.py:Own' lacks a base class: derive it from bdl\.methods\.base:Minibatch"
    ):
        METHODS.build(f"{own}:Own", {})


@pytest.mark.parametrize("name", METHODS.builtin)
def test_every_method_is_of_one_kind(name):
    method = METHODS.get(name)
    assert METHODS.lacking(method) is None
    assert [issubclass(method, kind) for kind in (MinibatchMethod, StreamMethod, ExternalMethod)].count(True) == 1
    kinds = {"minibatches": MinibatchMethod, "observations": StreamMethod, "rows": ExternalMethod}
    assert issubclass(method, kinds[method.source])


def test_a_direct_method_yields_once():
    ((updates, posterior),) = Once().fits(None, torch.zeros(3), torch.zeros(3), {}, 7)
    assert updates == 0
    assert posterior.loc.tolist() == [7.0] * 3
    assert not Once.course
    assert Once().draws == 0


def test_minibatches_are_stacked_where_there_is_one():
    one = Batch(torch.zeros(5, 2), torch.zeros(5), torch.tensor(5.0), torch.tensor(1.0))
    two = one._replace(x=torch.zeros(2, 5, 2), y=torch.zeros(2, 5))
    assert [value.shape for value in stacked(one, 1)[:2]] == [(1, 5, 2), (1, 5)]
    assert stacked(two, 2) is two
