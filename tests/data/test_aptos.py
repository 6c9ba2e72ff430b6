"""Photographs in Kaggle's layout: reading, decoding once, splits, and what is wrong with a folder."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bdl.data.fundus import Aptos2019
from bdl.data.images import same_pictures
from bdl.data.splits import three_way_split
from bdl.errors import InputError

GRADES = [0, 1, 2, 3, 4] * 12


@pytest.fixture
def folder(tmp_path, monkeypatch, kaggle_folder):
    monkeypatch.setenv("BDL_APTOS_DIR", str(tmp_path / "eyes"))
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path / "data"))
    return kaggle_folder(tmp_path / "eyes", GRADES)


def _images(folder: Path) -> list[Path]:
    return sorted((folder / "train_images").iterdir())


def _refused(match: str) -> None:
    with pytest.raises(InputError, match=match) as caught:
        Aptos2019(size=8)()
    assert "\n" not in str(caught.value)


def test_without_the_folder_it_says_where_to_get_it(folder):
    shutil.rmtree(folder)
    _refused(r"there is no folder .*eyes; download .*BDL_APTOS_DIR")


@pytest.mark.parametrize("missing", ["train.csv", "train_images"])
def test_another_layout_is_refused(folder, missing):
    (folder / missing).rename(folder / "elsewhere")
    _refused(r"has another layout; it should have train.csv \(id_code,diagnosis\) and train_images/")


def test_other_columns_are_refused(folder):
    (folder / "train.csv").write_text("image,level\na,1\n")
    _refused("has no rows of id_code,diagnosis")


def test_identifiers_without_an_image_are_counted(folder):
    for path in _images(folder)[3:5]:
        path.unlink()
    _refused("2 of 60 identifiers have no image in .*, the first is eye003;")


def test_images_without_an_identifier_are_counted(folder):
    shutil.copy(_images(folder)[0], folder / "train_images" / "stray.png")
    _refused("1 of 61 images are not in .*train.csv, the first is stray;")


def test_an_identifier_that_comes_twice_is_refused(folder):
    with (folder / "train.csv").open("a") as file:
        file.write("eye007,0\n")
    _refused("1 of 61 identifiers come twice .*, the first is eye007;")


@pytest.mark.parametrize("grade", ["5", "-1", "1.5", ""])
def test_grades_out_of_range_are_counted(folder, grade):
    text = (folder / "train.csv").read_text()
    (folder / "train.csv").write_text(text.replace("eye002,2", f"eye002,{grade}"))
    _refused(f"1 of 60 labels are not 0 to 4, the first is {grade} of eye002;")


@pytest.mark.parametrize("damage", [b"", b"no picture at all"])
def test_unreadable_images_are_counted_and_nothing_is_kept(folder, damage, tmp_path):
    for path in _images(folder)[1:3]:
        path.write_bytes(damage)
    _refused(r"2 of 60 images cannot be read, the first is .*eye001.png \(cannot identify image file\)")
    assert not list((tmp_path / "data" / "decoded").iterdir())


def test_a_truncated_image_is_refused(folder):
    path = _images(folder)[4]
    path.write_bytes(path.read_bytes()[:-200])
    _refused("1 of 60 images cannot be read, the first is .*eye004.png")


def test_the_pixels_are_those_of_pillow(folder):
    data = Aptos2019(size=8)()
    with Image.open(_images(folder)[7]) as picture:
        expected = np.asarray(picture.convert("RGB").resize((8, 8), Image.Resampling.BILINEAR))
    assert data.x.shape == (60, 3, 8, 8)
    assert np.array_equal(data.x[7], expected.transpose(2, 0, 1))
    assert np.array_equal(data.y, np.array(GRADES) >= 2)
    assert np.array_equal(Aptos2019(size=8, target="grade")().y, GRADES)


def test_images_are_decoded_once_until_one_changes(folder, tmp_path, monkeypatch):
    first = Aptos2019(size=8)()
    monkeypatch.setattr("bdl.data.images._decode_all", lambda *given: pytest.fail("decoded again"))
    assert Aptos2019(size=8)().checksum == first.checksum
    monkeypatch.undo()
    monkeypatch.setenv("BDL_APTOS_DIR", str(folder))
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path / "data"))
    shutil.copy(_images(folder)[4], _images(folder)[0])
    assert np.array_equal(Aptos2019(size=8)().x[0], first.x[4])


def test_splits_have_the_published_sizes_and_every_row_once():
    split = three_way_split(np.zeros(3662, dtype=np.int64), np.arange(3662), 0)
    assert [len(part) for part in split] == [1832, 1098, 732]
    assert np.array_equal(np.sort(np.concatenate(split)), np.arange(3662))
    other = three_way_split(np.zeros(3662, dtype=np.int64), np.arange(3662), 1)
    assert not np.array_equal(split.test, other.test)


def test_strata_have_their_shares_in_every_part():
    strata = np.repeat([0, 1], [80, 20])
    for part, (many, few) in zip(three_way_split(strata, np.arange(100), 3), [(40, 10), (24, 6), (16, 4)], strict=True):
        assert np.bincount(strata[part]).tolist() == [many, few]


def test_groups_stay_together():
    groups = np.repeat(np.arange(40), 3)
    for seed in range(5):
        parts = [set(groups[part]) for part in three_way_split(np.zeros(120, dtype=np.int64), groups, seed)]
        assert sum(map(len, parts)) == 40
        assert [len(part) for part in parts] == [20, 12, 8]


def test_the_same_picture_is_found_and_kept_together(folder):
    shutil.copy(_images(folder)[1], _images(folder)[50])
    numbers = same_pictures(Aptos2019(size=8)().x)
    assert numbers[50] == numbers[1] == 1
    assert len(set(numbers.tolist())) == 59
    for index in range(5):
        split = Aptos2019(size=8, split="grouped")().split(index)
        assert sum({1, 50} <= set(part.tolist()) for part in split) == 1


@pytest.mark.data
def test_the_download_has_123_pictures_more_than_once():
    data = Aptos2019(size=64, target="grade")()
    assert np.bincount(data.y.astype(int)).tolist() == [1805, 370, 999, 193, 295]
    numbers = same_pictures(data.x)
    groups = [np.flatnonzero(numbers == number) for number in np.flatnonzero(np.bincount(numbers) > 1)]
    assert len(groups) == 123
    assert sum(len(set(data.y[group])) > 1 for group in groups) == 30
