"""The MLflow database or server: connecting to it, quietly, wherever its folder is."""

import logging
import os
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPException
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

from filelock import FileLock

from bdl.errors import InputError

if TYPE_CHECKING:
    from mlflow import MlflowClient

TELEMETRY_OFF = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
"""Variables without which MLflow sends usage data, set before it is imported."""
_CLIENT_SETTINGS = {
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
}
"""With MLflow's own 7 retries, a server that is not there is noticed after four minutes."""
ARTIFACT_FOLDER = "mlartifacts"
"""Folder of the files of MLflow's runs, in that of results."""
CONTENT_TAG = "bdl.content"
"""Tag of a complete run with the digest of its content."""
_ARTIFACT_ROOT_VARIABLE = "_MLFLOW_SERVER_ARTIFACT_ROOT"
_SERVER_TIMEOUT = 10
"""Seconds that a server has to answer before a run."""


@contextmanager
def connect(tracking_uri: str) -> Iterator["MlflowClient"]:
    """Connect to MLflow; until the block ends, logging below warnings is off in this process.

    A database is made if its folder exists, which takes some seconds. `InputError` if it, or the
    server, cannot be used.
    """
    path = parse_database_path(tracking_uri)
    if path is not None:
        _check_writable(path)
    os.environ.update(TELEMETRY_OFF)
    for name, value in _CLIENT_SETTINGS.items():
        # a setting of the user's stays
        os.environ.setdefault(name, value)
    previous_level = logging.root.manager.disable
    # MLflow and Alembic report each step of the set-up of a database
    logging.disable(max(previous_level, logging.INFO))
    try:
        with link_address(tracking_uri) as address:
            with with_tracking_hint(tracking_uri), _lock_database(path):
                client = _make_client(address)
            yield client
    finally:
        logging.disable(previous_level)


@contextmanager
def _lock_database(path: Path | None) -> Iterator[None]:
    """Make a missing database, and begin its use, in one process at a time."""
    if path is None:
        yield
        return
    try:
        lock = FileLock(path.with_suffix(".lock")).acquire()
    except OSError as error:
        raise InputError(
            f"cannot write to {path.parent}: {error.strerror}; choose another tracking URI"
        ) from None
    with lock:
        if not (path.exists() and path.stat().st_size):
            _create_database(path)
        yield


def _create_database(path: Path) -> None:
    """Make a database in a temporary folder and move it: a full disk leaves no broken one."""
    with tempfile.TemporaryDirectory(prefix=".mlflow-", dir=path.parent) as folder:
        new = Path(folder) / path.name
        with with_tracking_hint(str(path)), link_address(f"sqlite:///{new}") as address:
            _make_client(address)
        # within one folder, hence one file system, where a move is atomic
        new.replace(path)


@contextmanager
def link_address(tracking_uri: str) -> Iterator[str]:
    """Yield an address of the URI that MLflow takes, until the block ends.

    Versions of SQLAlchemy differ on whether ``%`` quotes in the path of a database, and MLflow
    makes the folder that the quoted path names. A path with characters that a URI would quote is
    therefore given by a link to it.
    """
    path = parse_database_path(tracking_uri)
    # the name of a folder need not be text
    if path is None or quote(os.fsencode(path)) == str(path):
        yield tracking_uri
        return
    with tempfile.TemporaryDirectory(prefix="bdl-bench-") as folder:
        link = Path(folder) / "mlflow.db"
        link.symlink_to(path.absolute())
        yield f"sqlite:///{link}"


def relocate_artifacts(tracking_uri: str, artifact_root: Path) -> None:
    """Let the experiments of a database have their files in `artifact_root` beside it.

    This is for a database and files that were moved or copied. Nothing is done for a server, nor
    for a database that is elsewhere or missing; `InputError` if it cannot be used.
    """
    path = parse_database_path(tracking_uri)
    if (
        path is None
        or not path.is_file()
        or path.parent.resolve() != artifact_root.parent.resolve()
    ):
        return
    with _open_transaction(path) as db:
        has_tables = db.execute(
            "SELECT 1 FROM sqlite_master WHERE name = 'experiments'"
        ).fetchone()
        if not has_tables:
            return
        query = "SELECT experiment_id, name, artifact_location FROM experiments"
        for identifier, name, recorded_location in db.execute(query).fetchall():
            location = (artifact_root / name).resolve().as_uri()
            ending = f"/{quote(artifact_root.name)}/{quote(name)}"
            if recorded_location == location or not recorded_location.endswith(ending):
                continue
            db.execute(
                "UPDATE experiments SET artifact_location = ? WHERE experiment_id = ?",
                (location, identifier),
            )
            length = len(recorded_location) + 1
            db.execute(
                "UPDATE runs SET artifact_uri = ? || substr(artifact_uri, ?) "
                "WHERE experiment_id = ? AND substr(artifact_uri, 1, ?) = ?",
                (location, length, identifier, length, f"{recorded_location}/"),
            )


def find_completed_runs(
    tracking_uri: str, experiment: str, contents: Sequence[tuple[str, str]]
) -> list[str] | None:
    """Find runs of an experiment that a database has already, without MLflow, which takes seconds.

    `contents` has the value of `CONTENT_TAG` and the status of each run. Return their identifiers;
    None if one is missing, or if the database cannot be read.
    """
    path = parse_database_path(tracking_uri)
    if path is None or not path.is_file():
        return None
    query = (
        "SELECT tags.value, runs.status, runs.run_uuid FROM tags JOIN runs USING (run_uuid) "
        "JOIN experiments USING (experiment_id) WHERE tags.key = ? AND experiments.name = ? "
        "AND runs.lifecycle_stage = 'active' AND experiments.lifecycle_stage = 'active'"
    )
    try:
        with closing(sqlite3.connect(path)) as db:
            runs = {
                (value, status): run
                for value, status, run in db.execute(query, (CONTENT_TAG, experiment))
            }
    except sqlite3.Error:
        return None
    return [runs[content] for content in contents] if runs.keys() >= {*contents} else None


def _make_client(tracking_uri: str) -> "MlflowClient":
    """Connect, and let MLflow set up a database with the quoted URI of the folder of its files.

    MLflow would write the working directory into a statement of SQL, where an apostrophe or a
    colon ends it.
    """
    from mlflow import MlflowClient

    path = parse_database_path(tracking_uri)
    if path is not None:
        os.environ[_ARTIFACT_ROOT_VARIABLE] = (path.resolve().parent / ARTIFACT_FOLDER).as_uri()
    try:
        client = MlflowClient(tracking_uri)
        client.search_experiments(max_results=1)
    finally:
        # not left for what this process starts later, such as a server
        os.environ.pop(_ARTIFACT_ROOT_VARIABLE, None)
    return client


@contextmanager
def with_tracking_hint(tracking_uri: str) -> Iterator[None]:
    """Describe in one line what MLflow, or what it keeps its database with, cannot do."""
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, CommandError, sqlite3.Error) as error:
        reason = shorten(str(error), 200, placeholder=" ...")
        if (
            getattr(error, "error_code", "") == "INVALID_PARAMETER_VALUE"
        ):  # nothing is wrong with the database
            raise InputError(
                f"MLflow refuses what is to be written to {tracking_uri}: {reason}"
            ) from None
        raise InputError(
            f"MLflow cannot use {tracking_uri} ({reason}); mend or remove it, "
            "or choose another tracking URI, and export again with: bdl-bench run NAME"
        ) from None


def parse_database_path(tracking_uri: str) -> Path | None:
    """Return the file of an SQLite tracking URI, unquoted; None for a server.

    `InputError` if the URI is neither.
    """
    if tracking_uri.startswith(("http://", "https://")):
        return None
    path = tracking_uri.removeprefix("sqlite:///")
    if path in ("", tracking_uri):
        raise InputError(
            f"no tracking URI: '{tracking_uri}'; "
            "give sqlite:///path/to/mlflow.db or the http:// address of a server"
        )
    return Path(path)


def check_uri(tracking_uri: str, results: Path) -> None:
    """Refuse a tracking URI that cannot be used, before anything is run.

    `InputError` if it is not a tracking URI, no server answers, or the database cannot be written.
    The folder of results is made by the run.
    """
    path = parse_database_path(tracking_uri)
    if path is None:
        _check_server(tracking_uri)
    elif path.exists():
        _check_writable(path)
    elif path.parent.resolve() != results.resolve() and not os.access(path.parent, os.W_OK):
        raise InputError(
            f"cannot write a database to {path.parent}; "
            "make that folder or choose another tracking URI"
        )


def _check_server(address: str) -> None:
    """Check that a server answers; a refusal is an answer."""
    try:
        urlopen(f"{address.rstrip('/')}/health", timeout=_SERVER_TIMEOUT).close()
    except HTTPError as refusal:
        refusal.close()
    except (OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise InputError(
            f"no server answers at {address} ({reason}); "
            "start it, or choose another tracking URI, or --tracking none"
        ) from None


def _check_writable(path: Path) -> None:
    """Take SQLite's write lock for a moment.

    MLflow would make a missing folder, and retry all else for a minute.
    """
    if not path.parent.is_dir():
        raise InputError(
            f"no folder {path.parent} for the MLflow database; "
            "make it or choose another tracking URI"
        )
    with _open_transaction(path) as db:
        db.execute("ROLLBACK")  # committed, it would leave a database without tables


@contextmanager
def _open_transaction(path: Path) -> Iterator[sqlite3.Connection]:
    """Write to a database file in one transaction, at once or not at all.

    Errors are of one line.
    """
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as db, db:
            db.execute("BEGIN IMMEDIATE")
            yield db
    except sqlite3.Error as error:
        raise InputError(
            f"cannot write the MLflow database {path} ({error}); "
            "mend it or choose another tracking URI"
        ) from None
