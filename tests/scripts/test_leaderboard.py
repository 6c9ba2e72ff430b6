"""What the leaderboard says of methods, beside the built pages, which the tests of the site look at."""

from importlib import import_module
from pathlib import Path

import pytest
from leaderboard import BOARDS, FAMILIES, family

from bdl.methods import METHODS
from bdl.methods.guest import Guest
from bdl.spec import list_benchmarks, load_variant

GUESTS = Path(__file__).parents[2] / "bdl/guests"


def guests():
    """Classes of guests, without importing the libraries that they are of."""
    for path in GUESTS.glob("[!_]*.py"):
        module = import_module(f"bdl.guests.{path.stem}")
        yield from (
            name
            for name, one in vars(module).items()
            if isinstance(one, type) and issubclass(one, Guest) and one is not Guest and not name.startswith("_")
        )


@pytest.mark.parametrize("method", [*METHODS.builtin, *guests()])
def test_every_method_has_one_family(method):
    assert family(method) in FAMILIES
    assert sum(method in names.split() for names in FAMILIES.values()) == 1


def test_a_method_of_elsewhere_has_none():
    assert family("own.py:Method") == "other"


def test_benchmarks_stand_on_their_pages():
    stands = {name: [] for name in BOARDS}
    for benchmark, _ in list_benchmarks():
        for name, board in BOARDS.items():
            if board.belongs(load_variant(benchmark).benchmark):
                stands[name].append(benchmark)
    assert {"uci-regression", "uci-gap", "slang-uci", "slang-online-eig-uci", "noisy-wine-splits"} < {*stands["uci"]}
    assert "uci-linear-posterior" not in stands["uci"]
    assert {"uci-linear-posterior", "posterior-methods", "network-posterior", "vifa-synthetic"} < {
        *stands["posteriors"]
    }
    assert {"noisy-mnist", "mnist-slang", "mnist-priors", "blindness-detection"} < {*stands["images"]}
    assert len([name for found in stands.values() for name in found]) == len(
        {name for found in stands.values() for name in found}
    )
