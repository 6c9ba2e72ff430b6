"""Draws on disk: kept once, found by content, refused when a file was changed."""

import json
import os

import numpy as np
import pytest

from bdl.errors import InputError
from bdl.references import nuts
from bdl.references.base import files, obtain, read, state, write
from bdl.references.mcmc import Draws, Origin, Regression, Settings
from bdl.references.nuts import LinearRecipe

pytest.importorskip("arviz_stats")

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((30, 2)), (RNG.random(30) < 0.5).astype(float)


def recipe(**changes) -> LinearRecipe:
    given = {"x": X, "y": Y, "prior_precision": np.ones(2), "noise_precision": None} | changes
    settings = given.pop("settings", Settings(draws=1000))
    return LinearRecipe(Regression(**given), settings)


def draws(seed: int = 0, scale: float = 1.0) -> Draws:
    """Independent draws, which pass every rule; shifted chains, which do not, if `scale` is 0."""
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal((4, 1000, 2)) + (1 - scale) * np.arange(4)[:, None, None]
    none = np.zeros((4, 1000), dtype=bool)
    return Draws(theta, none, rng.standard_normal((4, 1000)), none.astype(np.int64), Origin("fake", 1, 0, {}, 1.5))


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """A data directory of its own and a sampler that counts."""
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path))
    made = []

    def fake(regression, settings):
        made.append(regression)
        return draws(len(made))

    monkeypatch.setattr(nuts, "sample", fake)
    return made


def test_kept_draws_are_found_by_later_versions():
    """A new key would sample all references again."""
    one = LinearRecipe(Regression(np.eye(2), np.array([0.0, 1.0]), np.ones(2), 0.5), Settings(draws=1000))
    assert one.key == "6e925be2b7e100a8350140818786da8ceb9ce02d7bb1944f5fde18414f5a73d1"


def test_draws_are_sampled_once(calls):
    assert state(recipe()) == "missing"
    first, second = obtain(recipe()), obtain(recipe())
    assert len(calls) == 1
    assert state(recipe()) == "ready"
    np.testing.assert_array_equal(first.theta, draws(1).theta)
    np.testing.assert_array_equal(second.theta, first.theta)
    assert second.certificate.origin == first.certificate.origin
    write(recipe())
    np.testing.assert_array_equal(read(recipe()).theta, draws(2).theta)
    assert not [path for path in files(recipe())[0].parent.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    "changes",
    [
        {"x": X + 1e-12},
        {"y": 1 - Y},
        {"prior_precision": np.array([1.0, 2.0])},
        {"noise_precision": 1.0},
        {"settings": Settings(draws=1001)},
        {"settings": Settings(draws=1000, seed=2)},
        {"settings": Settings(draws=1000, sampler="pymc")},
    ],
)
def test_whatever_is_sampled_takes_part_in_the_key(changes):
    assert recipe().key == recipe().key
    assert recipe(**changes).key != recipe().key


def test_arrays_of_other_shapes_have_other_keys():
    """Their bytes are the same."""
    wide = Regression(np.ones((2, 3)), np.array([0.0, 1.0]), np.ones(3))
    tall = Regression(np.ones((3, 2)), np.array([0.0, 1.0, 1.0]), np.ones(2))
    assert wide.x.tobytes() + wide.y.tobytes() + wide.prior_precision.tobytes() == (
        tall.x.tobytes() + tall.y.tobytes() + tall.prior_precision.tobytes()
    )
    assert LinearRecipe(wide, Settings()).key != LinearRecipe(tall, Settings()).key


def test_the_info_says_what_was_sampled_and_by_which_rules(calls):
    obtain(recipe())
    info = json.loads(files(recipe())[1].read_text())
    assert info["key"] == recipe().key
    assert (info["rows"], info["parameters"], info["prior_precision"]) == (30, 2, [1.0])
    assert info["likelihood"] == "bernoulli"
    assert info["settings"]["draws"] == 1000
    assert info["rules"][0] == "1. r_hat < 1.01, every coordinate"
    assert len(info["rules"]) == 5
    assert info["certificate"]["origin"]["seconds"] == 1.5


def change_info(text: bytes) -> bytes:
    """Praise a reference: the text stays valid."""
    content = json.loads(text)
    content["certificate"]["bulk_ess"][0] += 1
    return json.dumps(content).encode()


@pytest.mark.parametrize(
    ("which", "change"),
    [
        (0, lambda content: content[:-8]),
        (0, lambda content: content[:-8] + bytes(8)),
        (0, lambda content: b""),
        (0, lambda content: content[:20] + b"(" + content[21:]),
        (0, lambda content: b"PK\x03\x04" + content[4:]),
        (1, lambda content: content[: len(content) // 2]),
        (1, lambda content: b"{}"),
        (1, change_info),
    ],
)
def test_changed_files_are_refused(calls, which, change):
    obtain(recipe())
    path = files(recipe())[which]
    path.write_bytes(change(path.read_bytes()))
    os.utime(path, ns=(1, 1))  # a change within the resolution of the counters is seen as well
    with pytest.raises(InputError, match=r"corrupt reference .*; delete it, and it is sampled again") as caught:
        obtain(recipe())
    assert "\n" not in str(caught.value)
    assert state(recipe()) == "corrupt"
    assert len(calls) == 1


def test_a_refused_reference_is_not_kept(calls, monkeypatch):
    monkeypatch.setattr(nuts, "sample", lambda regression, settings: draws(scale=0))
    with pytest.raises(InputError, match=r"reference refused: rule 1 \(r_hat < 1.01\) fails at coordinate 0"):
        obtain(recipe())
    assert state(recipe()) == "missing"


def test_a_folder_that_cannot_be_written_is_named(calls, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path / "file"))
    with pytest.raises(InputError, match="set BDL_DATA_DIR to a folder"):
        write(recipe())
