"""The MLflow database or server: connecting to it, quietly, and showing it in a browser."""

import logging
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPException
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, NoReturn
from urllib.error import HTTPError
from urllib.request import urlopen

from bdl.errors import InputError

if TYPE_CHECKING:
    from mlflow import MlflowClient

_HOST = "127.0.0.1"
_PRIVATE = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
"""MLflow sends usage data unless told not to before it is imported."""
_CALM = {"MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}
"""With MLflow's own 7 retries, a server that is not there is noticed after four minutes."""
_PATIENCE = 10
"""Seconds that a server has to answer before a run."""
_LEAN = {"MLFLOW_LOGGING_LEVEL": "WARNING", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
"""The interface alone: MLflow would start nine more processes for jobs that nobody submits."""


@contextmanager
def connection(tracking_uri: str) -> Iterator["MlflowClient"]:
    """Connect to MLflow; until the block ends, logging below warnings is off in this process.

    Parameters
    ----------
    tracking_uri
        ``sqlite:///path``, made if its folder exists (which takes some seconds), or the ``http(s)://``
        address of a server.

    Raises
    ------
    InputError
        If the database or server cannot be used.
    """
    path = database(tracking_uri)
    if path is not None:
        _check_writable(path)
    os.environ.update(_PRIVATE)
    for name, value in _CALM.items():
        os.environ.setdefault(name, value)
    before = logging.root.manager.disable
    logging.disable(max(before, logging.INFO))
    try:
        yield _connect(tracking_uri)
    finally:
        logging.disable(before)


def _connect(tracking_uri: str) -> "MlflowClient":
    path = database(tracking_uri)
    if path is not None and not (path.exists() and path.stat().st_size):
        _create(path)
    with explained(tracking_uri):
        return _client(tracking_uri)


def _create(path: Path) -> None:
    """Make a database beside its place and move it there: a disk that is full half-way leaves none that is broken."""
    with tempfile.TemporaryDirectory(prefix=".mlflow-", dir=path.parent) as folder:
        new = Path(folder) / path.name
        with explained(str(path)):
            _client(f"sqlite:///{new.resolve()}")
        new.replace(path)


def _client(tracking_uri: str) -> "MlflowClient":
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri)
    client.search_experiments(max_results=1)
    return client


@contextmanager
def explained(tracking_uri: str) -> Iterator[None]:
    """Describe in one line what MLflow, or what it keeps its database with, cannot do."""
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, CommandError, sqlite3.Error) as error:
        reason = shorten(str(error), 200, placeholder=" ...")
        raise InputError(
            f"MLflow cannot use {tracking_uri} ({reason}); mend or remove it, or choose another tracking URI, and "
            "mirror again with: bdl-bench log NAME"
        ) from None


def database(tracking_uri: str) -> Path | None:
    """Return the file of an SQLite tracking URI, None for a server.

    Raises
    ------
    InputError
        If the URI is neither.
    """
    if tracking_uri.startswith(("http://", "https://")):
        return None
    path = tracking_uri.removeprefix("sqlite:///")
    if path in ("", tracking_uri):
        raise InputError(
            f"no tracking URI: '{tracking_uri}'; give sqlite:///path/to/mlflow.db or the http:// address of a server"
        )
    if "?" in path:
        raise InputError(f"MLflow cannot keep a database under {path}: '?' ends a path in its addresses; rename it")
    return Path(path)


def check_uri(tracking_uri: str, results: Path) -> None:
    """Refuse what cannot be mirrored to before anything is run.

    Parameters
    ----------
    tracking_uri
        As `connection` takes it.
    results
        Folder of results, which the run makes.

    Raises
    ------
    InputError
        If it is no tracking URI, no server answers there, or the database cannot be written.
    """
    path = database(tracking_uri)
    if path is None:
        _check_answers(tracking_uri)
    elif path.exists():
        _check_writable(path)
    elif path.parent.resolve() != results.resolve() and not os.access(path.parent, os.W_OK):
        raise InputError(f"cannot write a database to {path.parent}; make that folder or choose another tracking URI")


def _check_answers(address: str) -> None:
    """Declare any page: a server that refuses it is there."""
    try:
        urlopen(f"{address.rstrip('/')}/health", timeout=_PATIENCE).close()
    except HTTPError as refusal:
        refusal.close()
    except (OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise InputError(
            f"no server answers at {address} ({reason}); start it, or choose another tracking URI, or --tracking none"
        ) from None


def _check_writable(path: Path) -> None:
    """Take SQLite's write lock for a moment: MLflow makes missing folders and retries all else for a minute."""
    if not path.parent.is_dir():
        raise InputError(f"no folder {path.parent} for the MLflow database; make it or choose another tracking URI")
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute("ROLLBACK")
    except sqlite3.Error as error:
        raise InputError(
            f"cannot write the MLflow database {path} ({error}); mend it or choose another tracking URI"
        ) from None


def open_ui(tracking_uri: str, port: int) -> None:
    """Serve MLflow's web interface on this machine until interrupted with Ctrl-C.

    Parameters
    ----------
    tracking_uri
        ``sqlite:///path`` of an existing database.
    port
        Port on 127.0.0.1.

    Raises
    ------
    InputError
        If there is no such database, the port cannot be used, or the server stops by itself.
    """
    path = database(tracking_uri)
    if path is None:
        raise InputError(f"{tracking_uri} is a server already; open this address in a browser")
    if not path.is_file():
        raise InputError(f"no MLflow database {path}; mirror a run to it first, with: bdl-bench log NAME")
    try:
        socket.create_server((_HOST, port)).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot use port {port} ({reason}); choose another with --port") from None
    print(f"MLflow UI at http://{_HOST}:{port} (Ctrl-C ends it)", flush=True)
    _serve(tracking_uri, port)


def _serve(tracking_uri: str, port: int) -> None:
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", tracking_uri]
    command += ["--host", _HOST, "--port", str(port), "--workers", "1", "--uvicorn-opts", "--log-level warning"]
    if code := attended(command, os.environ | _PRIVATE | _LEAN):
        raise InputError(f"the MLflow UI stopped with exit code {code}; its message stands above")


def attended(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a server until it ends or this process is interrupted or terminated, either of which ends it as well.

    Returns
    -------
    int
        Its exit code; 0 where it was ended from here.
    """
    with subprocess.Popen(command, env=environment) as server:
        before = signal.signal(signal.SIGTERM, _interrupt)
        try:
            return server.wait()
        except KeyboardInterrupt:
            # A terminal interrupts the server too; a signal to this process alone does not.
            server.terminate()
            return 0
        finally:
            signal.signal(signal.SIGTERM, before)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt
