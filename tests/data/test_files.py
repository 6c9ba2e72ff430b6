"""Downloads: sources in order, verification, nothing half done, one-line errors."""

import gzip
import hashlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bdl.data import DATASETS
from bdl.errors import InputError

from .conftest import CONTENT, NOWHERE, everything_under, make_remote_file, write

SHORT = hashlib.sha256(CONTENT).hexdigest()[:12]
TRUNCATED = CONTENT[:-1]
FLIPPED = b"9" + CONTENT[1:]
ONE, OTHER = (gzip.compress(CONTENT, level, mtime=level) for level in (1, 9))


@pytest.mark.parametrize("over_http", [False, True])
def test_a_mirror_is_read_once_and_in_silence(
    over_http: bool, cache, mirror, serve, monkeypatch, capfd
) -> None:
    """All who can read a new file can read what was downloaded: a data directory may be shared."""
    original, file = mirror(), make_remote_file()
    if over_http:
        monkeypatch.setenv("BDL_DATA_MIRROR", serve(original.parents[1]) + "/")
    assert file.state() == "missing"
    assert file.read() == CONTENT.decode()
    assert file.target.stat().st_mode == original.stat().st_mode
    original.unlink()
    assert (file.read(), file.state()) == (CONTENT.decode(), "ok")
    assert everything_under(cache) == ["toy/data.txt"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "mirrored", [None, TRUNCATED], ids=["mirror lacks it", "mirror has it truncated"]
)
def test_public_address_follows_the_mirror(
    mirrored: bytes | None, cache, mirror, serve, tmp_path
) -> None:
    if mirrored is not None:
        mirror(mirrored)
    write(tmp_path / "public")
    make_remote_file(url=serve(tmp_path / "public") + "/toy/data.txt").download()
    assert (cache / "toy/data.txt").read_bytes() == CONTENT
    assert everything_under(cache) == ["toy/data.txt"]


def test_missing_without_network(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BDL_DATA_MIRROR", str(tmp_path))
    with pytest.raises(InputError) as caught:
        make_remote_file().read()
    assert str(caught.value) == (
        f"cannot get data file toy/data.txt ({tmp_path}/toy/data.txt: No such file or directory; "
        f"{NOWHERE}/toy/data.txt: ConnectionError); connect to the network or set BDL_DATA_MIRROR to a "
        "directory or http address that has it, then run 'bdl-bench data fetch toy'"
    )
    assert everything_under(cache) == []


def test_a_download_that_fails_leaves_what_was_there(
    cache: Path, tmp_path: Path, serve, breaking_server
) -> None:
    write(tmp_path / "public", FLIPPED)
    public = serve(tmp_path / "public")
    failures = {
        f"{public}/none.txt": r"/none.txt: HTTP 404\)",
        f"{public}/toy/data.txt": f"expected sha256 {SHORT}, found {hashlib.sha256(FLIPPED).hexdigest()[:12]}",
        f"{breaking_server}/toy/data.txt": "cannot get data file toy/data.txt",
    }
    for before in ([], ["toy/data.txt"]):
        for url, message in failures.items():
            with pytest.raises(InputError, match=message):
                make_remote_file(url).download()
            assert everything_under(cache) == before
        path = write(cache, TRUNCATED)
    assert path.read_bytes() == TRUNCATED


def test_interrupt_halfway(cache: Path, mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    def copy_half(source: Path, target: Path) -> None:
        target.write_bytes(TRUNCATED)
        assert len(everything_under(cache)) == 1, "the half file, of another name"
        assert not make_remote_file().target.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copyfile", copy_half)
    with pytest.raises(KeyboardInterrupt):
        make_remote_file().download()
    assert everything_under(cache) == []


def test_the_data_directory(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "occupied").write_text("a file, not a folder")
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path / "occupied"))
    with pytest.raises(InputError, match=r"cannot write to data directory .*set BDL_DATA_DIR"):
        make_remote_file().download()
    monkeypatch.setenv("BDL_DATA_DIR", "")
    monkeypatch.chdir(tmp_path)
    assert make_remote_file().target.absolute() == tmp_path / "data/toy/data.txt"


@pytest.mark.parametrize("copy", [ONE, OTHER, CONTENT], ids=["one wrapper", "another", "none"])
def test_gzip_files_are_known_by_their_content(copy: bytes, mirror: Callable[..., Path]) -> None:
    mirror(copy)
    file = make_remote_file()
    assert file.read_bytes() == CONTENT
    assert file.state() == "ok"
    assert file.target.read_bytes() == copy, "kept as it came"


@pytest.mark.parametrize(
    ("copy", "why"),
    [
        pytest.param(b"", f"expected sha256 {SHORT}, found e3b0c44298fc", id="empty"),
        pytest.param(
            FLIPPED, f"expected sha256 {SHORT}, found [0-9a-f]{{12}}", id="one byte changed"
        ),
        pytest.param(
            gzip.compress(FLIPPED),
            f"expected sha256 {SHORT}, found [0-9a-f]{{12}}",
            id="other content",
        ),
        pytest.param(OTHER[:-1], r"cannot be decompressed \(.*\)", id="one byte short"),
        pytest.param(
            OTHER[:30] + b"?" + OTHER[31:],
            r"cannot be decompressed \(.*\)",
            id="changed when compressed",
        ),
        pytest.param(OTHER + b"more", r"cannot be decompressed \(.*\)", id="something behind"),
    ],
)
def test_a_corrupt_file_is_refused_until_a_right_one_comes(
    copy: bytes, why: str, cache: Path, mirror
) -> None:
    path, file = write(cache, copy), make_remote_file()
    assert file.state() == "corrupt"
    with pytest.raises(InputError) as caught:
        file.read_bytes()
    cure = "run 'bdl-bench data fetch toy', or delete the file and run again"
    assert re.fullmatch(
        f"corrupt data file {re.escape(str(path))}: {why}; {cure}", str(caught.value)
    )
    mirror(copy)
    with pytest.raises(InputError, match=f"cannot get data file toy/data.txt .*{why}"):
        file.download()
    assert path.read_bytes() == copy, "neither a read nor a failed download changes it"
    mirror()
    file.download()
    assert path.read_bytes() == CONTENT


def test_yacht_needs_no_download(monkeypatch, tmp_path):
    """The table comes with the package, and the published splits from their recipe: bytes are those published."""
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("BDL_DATA_MIRROR", raising=False)
    monkeypatch.setattr("bdl.data.files._copy_file", None)
    yacht = DATASETS.get("yacht")
    data = yacht()
    assert data.x.shape == (308, 6)
    assert [len(rows) for rows in data.split(19)[:2]] == [277, 31]
    assert {file.state() for file in yacht.files if file.target.exists()} == {"ok"}
