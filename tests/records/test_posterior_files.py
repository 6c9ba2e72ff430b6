"""Posteriors on disk: what is read is what was written, or an error."""

import hashlib
import os

import pytest
import torch
from safetensors import safe_open

from bdl.errors import InputError
from bdl.posteriors import (
    DiagonalGaussian,
    Dropout,
    Empirical,
    FactorAnalysis,
    FullGaussian,
    LowRankPrecision,
)
from bdl.records.posterior_files import PosteriorFiles, encode_posterior

LOC = torch.tensor([0.1, -2.0, 1e-30], dtype=torch.float64)
FACTORS = torch.arange(6, dtype=torch.float64).view(3, 2) / 7
POSTERIORS = [
    DiagonalGaussian(LOC.float(), LOC.float().abs()),
    FactorAnalysis(LOC, FACTORS, LOC.abs()),
    FullGaussian(LOC, torch.eye(3, dtype=torch.float64)),
    LowRankPrecision(LOC, FACTORS, LOC.abs()),
    Dropout(LOC.float(), torch.tensor([0, 2, 1]), torch.tensor([0.5, 0.25])),
    Empirical(torch.stack([LOC, LOC + 1])),
]
BUFFERS = {"norm.running_mean": torch.tensor([0.25]), "count": torch.tensor(3)}


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)


@pytest.mark.parametrize("posterior", POSTERIORS, ids=lambda posterior: type(posterior).__name__)
def test_every_bit_and_every_type_comes_back(tmp_path, posterior):
    """Under the digest of the file, which other programs can read."""
    content = encode_posterior(posterior, BUFFERS)
    sha = PosteriorFiles(tmp_path / "new/folder").write(content)
    (file,) = (tmp_path / "new/folder").iterdir()
    assert file.name == f"{sha}.safetensors"
    assert sha == hashlib.sha256(file.read_bytes()).hexdigest()
    again, kept = PosteriorFiles(file.parent).read(sha)
    assert type(again) is type(posterior)
    assert all(map(same, again, posterior))
    assert kept.keys() == BUFFERS.keys()
    assert all(same(kept[name], BUFFERS[name]) for name in BUFFERS)
    assert encode_posterior(posterior, dict(reversed(BUFFERS.items()))) == content, (
        "whatever order buffers come in"
    )
    with safe_open(file, framework="np") as opened:
        fields = {
            *(f"posterior.{name}" for name in posterior._fields),
            *(f"buffers.{name}" for name in BUFFERS),
        }
        assert set(opened.keys()) == fields
        assert opened.metadata().keys() == {"family"}


def test_views_and_shared_memory_are_stored_as_what_they_show(tmp_path):
    whole = torch.arange(12.0).view(3, 4)
    posterior = FactorAnalysis(whole[:, 0], whole[:, 1:3], whole[:, 0])
    again, _ = PosteriorFiles(tmp_path).read(
        PosteriorFiles(tmp_path).write(encode_posterior(posterior, {}))
    )
    assert all(map(same, again, posterior))


def test_a_file_is_whole_at_the_length_of_its_header(tmp_path):
    sha = PosteriorFiles(tmp_path).write(encode_posterior(POSTERIORS[1], BUFFERS))
    assert PosteriorFiles(tmp_path).is_whole(sha)
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    for other in (content[:-1], content + b"x", content[:20], b""):
        file.write_bytes(other)
        assert not PosteriorFiles(tmp_path).is_whole(sha)
    file.unlink()
    assert not PosteriorFiles(tmp_path).is_whole(sha)


def test_identical_content_is_written_once(tmp_path):
    content = encode_posterior(POSTERIORS[0], {})
    sha = PosteriorFiles(tmp_path).write(content)
    (file,) = tmp_path.iterdir()
    before = file.stat()
    assert PosteriorFiles(tmp_path).write(content) == sha
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    "damage", [lambda content: content[:-1], lambda content: content[:-1] + b"?", lambda _: b""]
)
def test_a_damaged_file_is_refused_and_mended_by_writing_again(tmp_path, damage):
    content = encode_posterior(POSTERIORS[0], {})
    sha = PosteriorFiles(tmp_path).write(content)
    file = tmp_path / f"{sha}.safetensors"
    file.write_bytes(damage(content))
    with pytest.raises(InputError, match=f"{sha}.safetensors is damaged; run again, which makes"):
        PosteriorFiles(tmp_path).read(sha)
    PosteriorFiles(tmp_path).write(content)
    assert type(PosteriorFiles(tmp_path).read(sha)[0]) is DiagonalGaussian


def test_a_missing_file_and_another_under_its_own_digest_are_told(tmp_path):
    with pytest.raises(
        InputError, match="No such file or directory; run again, which makes this fit"
    ):
        PosteriorFiles(tmp_path).read("0" * 64)
    with pytest.raises(InputError, match="is no posterior"):
        PosteriorFiles(tmp_path).read(PosteriorFiles(tmp_path).write(b"nothing of the kind"))


def test_nothing_is_left_of_a_write_that_fails(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"No space left on device.*the same command goes on"):
        PosteriorFiles(tmp_path).write(encode_posterior(POSTERIORS[0], {}))
    assert list(tmp_path.iterdir()) == []
