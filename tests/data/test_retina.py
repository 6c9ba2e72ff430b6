"""Archives of MedMNIST."""

import io

import numpy as np
import pytest

from bdl.data.fundus import RetinaMnist, parts_dataset
from bdl.errors import InputError


def _archive(**changes: np.ndarray) -> bytes:
    rng = np.random.default_rng(0)
    arrays = {}
    for part, n in (("train", 10), ("val", 4), ("test", 6)):
        arrays[f"{part}_images"] = rng.integers(0, 255, (n, 5, 5, 3), dtype=np.uint8)
        arrays[f"{part}_labels"] = (np.arange(n) % 5).reshape(-1, 1).astype(np.uint8)
    content = io.BytesIO()
    np.savez(content, **{name: value for name, value in (arrays | changes).items() if value is not None})
    return content.getvalue()


@pytest.mark.parametrize("content", [b"nothing", _archive(val_images=None), _archive(test_images=np.zeros((6, 5, 5)))])
def test_other_archives_are_refused_in_one_line(content):
    with pytest.raises(InputError, match="no MedMNIST archive") as caught:
        parts_dataset("retinamnist", content, "grade")
    assert "\n" not in str(caught.value)


def test_parts_are_the_split():
    data = parts_dataset("retinamnist", _archive(), "referable")
    split = data.split(0)
    assert (len(split.train), len(split.validation), len(split.test)) == (10, 4, 6)
    assert data.x.shape == (20, 3, 5, 5)
    with np.load(io.BytesIO(_archive())) as archive:
        assert np.array_equal(data.x[split.validation[1]], archive["val_images"][1].transpose(2, 0, 1))
    assert np.array_equal(data.y[split.test], np.arange(6) % 5 >= 2)


@pytest.mark.data
def test_the_download_has_its_published_sizes():
    data = RetinaMnist(target="grade")()
    assert (data.x.shape, data.classes) == ((1600, 3, 28, 28), 5)
    assert [len(part) for part in data.split(0)] == [1080, 400, 120]
