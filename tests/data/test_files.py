"""Downloads: sources in order, verification, nothing half done, one-line errors."""

import gzip
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bdl.errors import InputError

from .conftest import CONTENT, NOWHERE, everything_under, make_remote_file, write

SHORT = hashlib.sha256(CONTENT).hexdigest()[:12]
TRUNCATED = CONTENT[:-1]
FLIPPED = b"9" + CONTENT[1:]


def test_directory_mirror(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "mirror")
    monkeypatch.setenv("BDL_DATA_MIRROR", str(tmp_path / "mirror"))
    file = make_remote_file()
    assert file.state() == "missing"
    assert file.read() == CONTENT.decode()
    assert file.state() == "ok"
    assert everything_under(cache) == ["toy/data.txt"]


def test_http_mirror_is_silent(
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    serve: Callable[[Path], str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    write(tmp_path / "mirror")
    monkeypatch.setenv("BDL_DATA_MIRROR", serve(tmp_path / "mirror") + "/")
    assert make_remote_file().read() == CONTENT.decode()
    assert everything_under(cache) == ["toy/data.txt"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("mirrored", [None, TRUNCATED], ids=["mirror lacks it", "mirror has it truncated"])
def test_public_address_follows_the_mirror(
    mirrored: bytes | None,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    serve: Callable[[Path], str],
) -> None:
    if mirrored is not None:
        write(tmp_path / "mirror", mirrored)
    write(tmp_path / "public")
    monkeypatch.setenv("BDL_DATA_MIRROR", str(tmp_path / "mirror"))
    make_remote_file(url=serve(tmp_path / "public") + "/toy/data.txt").download()
    assert (cache / "toy/data.txt").read_bytes() == CONTENT
    assert everything_under(cache) == ["toy/data.txt"]


def test_cached_file_needs_no_source(cache: Path) -> None:
    write(cache)
    assert make_remote_file().read() == CONTENT.decode()


def test_missing_without_network(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BDL_DATA_MIRROR", str(tmp_path))
    with pytest.raises(InputError) as caught:
        make_remote_file().read()
    assert str(caught.value) == (
        f"cannot get data file toy/data.txt ({tmp_path}/toy/data.txt: No such file or directory; "
        f"{NOWHERE}/toy/data.txt: ConnectionError); connect to the network or set BDL_DATA_MIRROR to a "
        "directory or http address that has it, then run 'bdl-bench data fetch toy'"
    )
    assert everything_under(cache) == []


def test_absent_from_server(cache: Path, tmp_path: Path, serve: Callable[[Path], str]) -> None:
    with pytest.raises(InputError, match=r"/toy/data.txt: HTTP 404\)"):
        make_remote_file(url=serve(tmp_path) + "/toy/data.txt").download()
    assert everything_under(cache) == []


@pytest.mark.parametrize("content", [TRUNCATED, FLIPPED, b""], ids=["truncated", "one byte changed", "empty"])
def test_corrupt_cached_file(content: bytes, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "mirror")
    monkeypatch.setenv("BDL_DATA_MIRROR", str(tmp_path / "mirror"))
    path = write(cache, content)
    file = make_remote_file()
    assert file.state() == "corrupt"
    with pytest.raises(InputError) as caught:
        file.read()
    found = hashlib.sha256(content).hexdigest()[:12]
    assert str(caught.value) == (
        f"corrupt data file {path}: expected sha256 {SHORT}, found {found}; "
        "run 'bdl-bench data fetch toy', or delete the file and run again"
    )
    assert path.read_bytes() == content, "a read never repairs in silence"
    file.download()
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("content", [TRUNCATED, FLIPPED], ids=["truncated", "one byte changed"])
def test_wrong_download_never_lands(
    content: bytes, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "mirror", content)
    monkeypatch.setenv("BDL_DATA_MIRROR", str(tmp_path / "mirror"))
    found = hashlib.sha256(content).hexdigest()[:12]
    with pytest.raises(InputError, match=f"expected sha256 {SHORT}, found {found}"):
        make_remote_file().download()
    assert everything_under(cache) == []


def test_connection_lost_halfway(cache: Path, breaking_server: str) -> None:
    with pytest.raises(InputError, match="cannot get data file toy/data"):
        make_remote_file(url=f"{breaking_server}/toy/data.txt").download()
    assert everything_under(cache) == []


def test_failed_repair_keeps_the_old_file(cache: Path, breaking_server: str) -> None:
    path = write(cache, FLIPPED)
    with pytest.raises(InputError):
        make_remote_file(url=f"{breaking_server}/toy/data.txt").download()
    assert path.read_bytes() == FLIPPED
    assert everything_under(cache) == ["toy/data.txt"]


def test_interrupt_halfway(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def copy_half(source: Path, target: Path) -> None:
        target.write_bytes(TRUNCATED)
        assert len(everything_under(cache)) == 2, "a temporary folder and the half file in it"
        raise KeyboardInterrupt

    monkeypatch.setenv("BDL_DATA_MIRROR", str(tmp_path / "mirror"))
    monkeypatch.setattr(shutil, "copyfile", copy_half)
    with pytest.raises(KeyboardInterrupt):
        make_remote_file().download()
    assert everything_under(cache) == []


def test_data_directory_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "occupied").write_text("a file, not a folder")
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path / "occupied"))
    with pytest.raises(InputError, match=r"cannot write to data directory .*set BDL_DATA_DIR"):
        make_remote_file().download()


def test_default_data_directory(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BDL_DATA_DIR", "")
    monkeypatch.chdir(tmp_path)
    assert make_remote_file().target.absolute() == tmp_path / "data/toy/data.txt"


def test_downloaded_file_is_readable_as_any_new_file(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shared data directory must not hold files that only the one who downloaded them can read."""
    original = write(tmp_path / "mirror")
    monkeypatch.setenv("BDL_DATA_MIRROR", str(tmp_path / "mirror"))
    file = make_remote_file()
    file.download()
    assert file.target.stat().st_mode == original.stat().st_mode


def wrapped(level: int) -> bytes:
    return gzip.compress(CONTENT, level, mtime=level)


@pytest.mark.parametrize("copy", [wrapped(1), wrapped(9), CONTENT], ids=["one wrapper", "another", "none"])
def test_gzip_files_are_known_by_their_content(
    copy: bytes, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "mirror", copy)
    monkeypatch.setenv("BDL_DATA_MIRROR", str(tmp_path / "mirror"))
    file = make_remote_file()
    assert file.read_bytes() == CONTENT
    assert file.read() == CONTENT.decode()
    assert file.state() == "ok"
    assert file.target.read_bytes() == copy, "kept as it came"


@pytest.mark.parametrize(
    ("copy", "message"),
    [
        (wrapped(9)[:-1], "cannot be decompressed"),
        (wrapped(9)[:40], "cannot be decompressed"),
        (wrapped(9)[:30] + b"?" + wrapped(9)[31:], "cannot be decompressed"),
        (wrapped(9) + b"more", "cannot be decompressed"),
        (gzip.compress(FLIPPED), f"expected sha256 {SHORT}"),
    ],
    ids=["one byte short", "half", "one byte changed", "something behind", "other content"],
)
def test_corrupt_gzip_file(
    copy: bytes, message: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(cache, copy)
    file = make_remote_file()
    assert file.state() == "corrupt"
    with pytest.raises(
        InputError, match=f"corrupt data file .*: {message}.*; run 'bdl-bench data fetch toy'"
    ) as caught:
        file.read_bytes()
    assert "\n" not in str(caught.value)
    write(tmp_path / "mirror", copy)
    monkeypatch.setenv("BDL_DATA_MIRROR", str(tmp_path / "mirror"))
    with pytest.raises(InputError, match=f"cannot get data file toy/data.txt .*{message}"):
        file.download()
    assert file.target.read_bytes() == copy, "what was there stays"
