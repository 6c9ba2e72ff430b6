"""What the leaderboard says of methods, beside the built pages, which the tests of the site look at."""

from importlib import import_module
from inspect import isabstract
from pathlib import Path

import pytest
from leaderboard import BOARDS, FAMILIES, family, marks, name_groups
from leaderboard_runs import published_run

from bdl.methods import METHODS
from bdl.methods.guest import Guest
from bdl.spec import list_benchmarks, load_request

GUESTS = Path(__file__).parents[2] / "bdl/guests"


def guests():
    """Classes of guests, without importing the libraries that they are of."""
    for path in GUESTS.glob("[!_]*.py"):
        module = import_module(f"bdl.guests.{path.stem}")
        yield from (
            name
            for name, one in vars(module).items()
            if isinstance(one, type)
            and issubclass(one, Guest)
            and not isabstract(one)
            and not name.startswith("_")
        )


@pytest.mark.parametrize("method", [*METHODS.builtin, *guests()])
def test_every_method_has_one_family(method):
    assert family(method) in FAMILIES
    assert sum(method in names.split() for names in FAMILIES.values()) == 1


def test_every_method_of_a_shipped_benchmark_has_a_family():
    specs = [load_request(name).benchmark for name, _ in list_benchmarks()]
    methods = {entry.method.name for spec in specs for entry in spec.entries.values()}
    assert [method for method in methods if family(method) == "other"] == []


def test_a_benchmark_stands_on_one_page_at_most():
    specs = {name: load_request(name).benchmark for name, _ in list_benchmarks()}
    stands = {
        page: {name for name in specs if board.belongs(specs[name])}
        for page, board in BOARDS.items()
    }
    assert {
        "uci-regression",
        "uci-gap",
        "slang-uci",
        "slang-online-eig-uci",
        "noisy-wine-splits",
    } < stands["uci"]
    assert {"uci-linear-posterior", "posterior-methods", "network-posterior"} < stands[
        "posteriors"
    ]
    assert {"noisy-mnist", "mnist-slang", "mnist-priors", "blindness-detection"} < stands["images"]
    assert sum(map(len, stands.values())) == len(set().union(*stands.values()))


def test_a_data_set_of_two_rankings_has_two_names():
    cells = [
        {"dataset": "iris", "group": "a/iris", "benchmark": "a"},
        {"dataset": "iris", "group": "b/iris", "benchmark": "b"},
        {"dataset": "wine", "group": "a/wine", "benchmark": "a"},
    ]
    name_groups(cells)
    assert [cell["dataset"] for cell in cells] == ["iris (a)", "iris (b)", "wine"]


def test_rows_of_another_protocol_and_uncertified_ones_are_marked():
    texts: dict[str, list[str]] = {}
    for name, entry in (("uci-contenders", "nuts"), ("uci-contenders/large", "vifa")):
        found = published_run(name).found
        rows = found.rows[found.rows["entry"] == entry]
        texts[entry] = [text for text, _ in marks(found, rows)]
    assert "uncertified" in texts["nuts"]
    assert texts["vifa"] == ["other protocol"]
    protocol = published_run("uci-regression").found
    assert marks(protocol, protocol.rows[protocol.rows["entry"] == "vifa-nn"]) == []
