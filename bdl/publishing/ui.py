"""MLflow's web interface on this machine."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from bdl.errors import InputError
from bdl.publishing.logged import views
from bdl.publishing.tracking import PRIVATE, address_of, database

_HOST = "127.0.0.1"
_LEAN = {"MLFLOW_LOGGING_LEVEL": "WARNING", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
"""The interface alone: MLflow would start nine more processes for jobs that nobody submits."""


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
    address = f"http://{_HOST}:{port}"
    print(f"MLflow UI at {address} (Ctrl-C ends it)", *views(path, address), sep="\n", flush=True)
    with address_of(tracking_uri) as uri:
        _serve(uri, port)


def _serve(tracking_uri: str, port: int) -> None:
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", tracking_uri]
    command += ["--host", _HOST, "--port", str(port), "--workers", "1", "--uvicorn-opts", "--log-level warning"]
    if code := attended(command, os.environ | PRIVATE | _LEAN):
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
