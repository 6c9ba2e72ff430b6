"""Components made from their settings, and labels that stand for them."""

import pickle
import sys
from contextlib import nullcontext

import pytest

from bdl.errors import InputError
from bdl.registry import Label, Registry
from bdl.trusted_code import require_trusted

OWN = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Own:
    size: int
    sides: tuple[int, ...] = ()

class Plain:
    pass

def function():
    return 3
"""


@pytest.fixture
def own(tmp_path):
    """Return a registry of a file of components."""
    path = tmp_path / "own.py"
    path.write_text(OWN, "utf-8")
    return Registry(
        "thing", {name.lower(): f"{path}:{name}" for name in ("Own", "Plain", "function")}
    )


def test_a_dataclass_is_made_from_json_values(own):
    made = own.build("own", {"size": 3, "sides": [1, 2]})
    assert (type(made).__name__, made.size, made.sides) == ("Own", 3, (1, 2))
    assert own.build("own", {"size": 3}).sides == ()
    assert made == own.build("own", {"size": 3, "sides": [1, 2]})


def test_what_is_no_class_is_given_as_it_is(own):
    assert own.build("function", {})() == 3
    with pytest.raises(InputError, match="thing 'function' has no settings: remove size, top"):
        own.build("function", {"size": 3, "top": 1})


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("own", {}, "thing 'own': size: Field required"),
        ("own", {"size": 1.0}, "thing 'own': size: Input should be a valid integer"),
        (
            "own",
            {"size": 1, "sides": [1, "x"]},
            "thing 'own': sides.1: Input should be a valid integer",
        ),
        ("plain", {}, "thing 'plain' is not a dataclass: give a frozen dataclass"),
        ("onw", {}, "unknown thing 'onw': did you mean own"),
    ],
)
def test_refusals(own, name, settings, message):
    with pytest.raises(InputError, match=message):
        own.build(name, settings)


def test_a_contract_is_asked_for(own):
    asking = Registry("thing", own.builtin, contract="bdl.training.schedule:Rate")
    with pytest.raises(
        InputError, match=r"thing 'own' lacks factor; see bdl\.training\.schedule:Rate"
    ):
        asking.build("own", {"size": 3})


def test_a_label_is_text_that_knows_more():
    label = Label("own_3", "own", {"size": 3})
    assert {"own_3": 1}[label] == 1
    again = pickle.loads(pickle.dumps(label))
    assert (again, again.name, again.settings) == ("own_3", "own", {"size": 3})
    assert (Label("own").name, Label("own").settings) == ("own", {})
    labels = [label, Label("own_3", "own", {"size": 4}), Label("own_3", "other", {"size": 3})]
    assert len({one.key for one in labels}) == 3
    assert label.key == '["own_3","own",{"size":3}]'


@pytest.mark.parametrize(
    ("target", "is_trusted"),
    [
        pytest.param("bdl.methods.vifa:Vifa", True, id="a component"),
        pytest.param("bdl.models.resnet:torchvision", True, id="a factory"),
        pytest.param("bdl.methods.vifa:dataclass", False, id="what a module imports"),
        pytest.param("bdl.methods.vifa:Nothing", False, id="nothing"),
        pytest.param("bdl.methods.nothing:Vifa", False, id="no module"),
        pytest.param("subprocess:run", False, id="another package"),
    ],
)
def test_results_may_ask_for_what_the_package_defines_alone(target, is_trusted):
    """It is not imported to find out."""
    with nullcontext() if is_trusted else pytest.raises(InputError, match="from outside"):
        require_trusted(target, "rows.parquet")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("def load(:\n", "SyntaxError: "),
        ("raise ValueError('x')\n", "ValueError: x"),
        ("import nothing_of_the_kind\n", "is the package installed"),
    ],
)
def test_a_module_that_cannot_be_imported_is_refused_in_a_line(
    tmp_path, monkeypatch, content, reason
):
    (tmp_path / "badmod.py").write_text(content, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "badmod", raising=False)
    with pytest.raises(InputError, match="cannot import 'badmod'") as caught:
        Registry("thing", {}).get("badmod:load")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
