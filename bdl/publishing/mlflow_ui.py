"""The web interface of MLflow, served on this machine for one database."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from bdl.errors import InputError
from bdl.publishing.mlflow_names import SCORES_VIEW, VIEW_TAG_PREFIX
from bdl.publishing.tracking import TELEMETRY_OFF, link_address, parse_database_path

_HOST = "127.0.0.1"
_WITHOUT_JOBS = {"MLFLOW_LOGGING_LEVEL": "WARNING", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
"""The interface alone: MLflow would start nine more processes for jobs that nobody submits."""


def open_ui(tracking_uri: str, port: int) -> None:
    """Serve MLflow's web interface of a database on 127.0.0.1 until interrupted with Ctrl-C.

    `InputError` if there is no such database, the port cannot be used, or the server stops by
    itself.
    """
    path = parse_database_path(tracking_uri)
    if path is None:
        raise InputError(f"{tracking_uri} is a server already; open this address in a browser")
    if not path.is_file():
        raise InputError(
            f"no MLflow database {path}; export a run to it first, with: bdl-bench run NAME"
        )
    try:
        socket.create_server((_HOST, port)).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot use port {port} ({reason}); choose another with --port"
        ) from None
    address = f"http://{_HOST}:{port}"
    print(
        f"MLflow UI at {address} (Ctrl-C ends it)",
        *list_view_addresses(path, address),
        sep="\n",
        flush=True,
    )
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "ui",
        "--host",
        _HOST,
        "--port",
        f"{port}",
        "--workers",
        "1",
    ]
    command += ["--uvicorn-opts", "--log-level warning", "--backend-store-uri"]
    with link_address(tracking_uri) as uri:
        if code := run_server([*command, uri], os.environ | TELEMETRY_OFF | _WITHOUT_JOBS):
            raise InputError(
                f"the MLflow UI stopped with exit code {code}; its message stands above"
            )


def run_server(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a server until it ends, or until this process is interrupted or terminated.

    Either of these ends the server as well. Return its exit code; 0 where it was ended from here.
    """
    with subprocess.Popen(command, env=environment) as server:
        previous_handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            return server.wait()
        except KeyboardInterrupt:
            # A terminal interrupts the server too; a signal to this process alone does not.
            server.terminate()
            return 0
        finally:
            signal.signal(signal.SIGTERM, previous_handler)


def list_view_addresses(database: Path, address: str) -> list[str]:
    """List the addresses of the score views of a database's experiments, each after its name."""
    query = (
        "SELECT name, experiment_id FROM experiments JOIN experiment_tags USING (experiment_id) "
        "WHERE key = ? AND lifecycle_stage = 'active' ORDER BY name"
    )
    with closing(sqlite3.connect(database)) as db:
        rows = db.execute(query, (f"{VIEW_TAG_PREFIX}{SCORES_VIEW}",)).fetchall()
    return [
        f"{name}: {address}/#/experiments/{number}/runs?viewStateShareKey={SCORES_VIEW}"
        for name, number in rows
    ]
