"""Fixtures: an empty data directory, a small file to download, a mirror and a server that have it, the real files."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from bdl.data import RemoteFile
from bdl.data.catalogue import DATASETS

CONTENT = b"0.5 1.5 2\n1 2 3\n" * 100
NOWHERE = "http://127.0.0.1:9"  # the discard port: connections are refused


def make_remote_file(url: str = f"{NOWHERE}/toy/data.txt") -> RemoteFile:
    return RemoteFile("toy", "toy/data.txt", url, hashlib.sha256(CONTENT).hexdigest())


def write(folder: Path, content: bytes = CONTENT) -> Path:
    """Put the toy file into a mirror or a cache."""
    path = folder / "toy/data.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def everything_under(folder: Path) -> list[str]:
    """Every entry, hidden and temporary ones too, but not the folder ``toy`` itself."""
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.name != "toy"
    )


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty data directory, and no mirror."""
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("BDL_DATA_MIRROR", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path / "cache"


@pytest.fixture
def mirror(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return a function that puts the toy file into a mirror."""
    monkeypatch.setenv("BDL_DATA_MIRROR", str(tmp_path / "mirror"))
    return partial(write, tmp_path / "mirror")


@contextmanager
def serving(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """Run an HTTP server on a free port of this machine; give its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


class BreakingHandler(QuietHandler):
    """Promises the whole content, sends half of it, and hangs up."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[: len(CONTENT) // 2])


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    """Return a function that serves a folder over HTTP until the test ends."""
    with ExitStack() as stack:
        yield lambda folder: stack.enter_context(
            serving(partial(QuietHandler, directory=str(folder)))
        )


@pytest.fixture
def breaking_server() -> Iterator[str]:
    with serving(BreakingHandler) as address:
        yield address


@pytest.fixture(scope="session")
def source() -> str:
    """Return a mirror that has every file, or skip."""
    sets = map(DATASETS.get, DATASETS.names())
    paths = [
        file.path
        for own in sets
        for files in ("files", "gap_files")
        for file in getattr(own, files, ())
    ]
    mirror, own = os.environ.get("BDL_DATA_MIRROR", ""), os.environ.get("BDL_DATA_DIR") or "data"
    if mirror.startswith(("http://", "https://")):
        return mirror
    for place in filter(None, (mirror, own)):
        if all((Path(place) / path).is_file() for path in paths):
            return str(Path(place).absolute())
    pytest.skip(
        "no data files: set BDL_DATA_MIRROR, or run 'bdl-bench data fetch' for every set (or set BDL_DATA_DIR)"
    )


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data directory that the tests of real files share, so that each file is copied once."""
    return tmp_path_factory.mktemp("shared_cache")


@pytest.fixture
def files(source: str, shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make every set loadable without its public address, leaving the user's data directory alone."""
    monkeypatch.setenv("BDL_DATA_MIRROR", source)
    monkeypatch.setenv("BDL_DATA_DIR", str(shared_cache))
    for address in (
        "uci.UCI_URL",
        "uci.GAPS_URL",
        "uci.LIBSVM_URL",
        "images.MNIST_URL",
        "images.USPS_URL",
    ):
        monkeypatch.setattr(f"bdl.data.{address}", NOWHERE)
    return source
