"""Does what the README and the tour say, in their order, as somebody does who has just found them.

A virtual environment and a clone of the last commit are made in a temporary folder. The commands
are taken from the README: its blocks of code, and what its text prints as ``pip install ...`` or
``bdl-bench ...``. A README that is wrong makes this fail. Only ``pip`` reaches the network.

What takes hours is done in part: the tests, and the paper's protocol, which is only estimated.
``--all`` does all of it. What serves pages is stopped as soon as it answers. Every command is
printed with its duration.

Then come the journeys of three new users (`journeys.py`). ``--here`` walks these alone, or those
that are named, in the environment that is active.

Exit code 1, and the name of the first command that failed, if one does.
"""

import argparse
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from journeys import JOURNEYS, Shell, WrongTurnError

ROOT = Path(__file__).parents[1]
IN_PART = {
    "bdl-bench run uci-regression": "--dry-run",
    "pytest -n logical --dist loadfile": "tests/test_readme.py tests/api",
}
"""Commands that take hours, and what is added to them so that they do not."""

SERVING = {"bdl-bench ui": "--port {port}", "mkdocs serve": "--dev-addr 127.0.0.1:{port}"}
"""Commands that serve pages until they are stopped, and how they are told a port that is free."""

TOUR = "jupyter execute --output=executed.ipynb docs/tour.ipynb"
WAIT = 120.0
"""Seconds that a server has to answer, and to end."""


@dataclass(frozen=True)
class Place:
    """Where the commands run.

    Parameters
    ----------
    folder
        Working directory: a checkout.
    env
        Variables of the environment.
    log
        File that keeps what the commands print.
    whole
        Whether to do what takes hours.
    """

    folder: Path
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    log: Path = Path(os.devnull)
    whole: bool = False

    def run(self, command: str) -> bool:
        """Run a command of the README; False if it fails."""
        if not self.whole:
            command = f"{command} {IN_PART.get(command, '')}".strip()
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"$ {command}\n")
            log.flush()
            env = dict(self.env) if command.startswith("pip ") else {**self.env, **_cut_off()}
            if command in SERVING:
                return self._serve(command, env, log.fileno())
            return (
                subprocess.run(
                    command, shell=True, cwd=self.folder, env=env, stdout=log, stderr=log
                ).returncode
                == 0
            )

    def _serve(self, command: str, env: Mapping[str, str], log: int) -> bool:
        """Start a server, wait for its first page, and stop it as Ctrl-C does."""
        port = _free_port()
        words = shlex.split(f"{command} {SERVING[command].format(port=port)}")
        started = subprocess.Popen(
            words, cwd=self.folder, env=env, stdout=log, stderr=log, start_new_session=True
        )
        try:
            answered = _answers(f"http://127.0.0.1:{port}/", started)
        finally:
            os.killpg(started.pid, signal.SIGINT) if started.poll() is None else None
        started.wait(WAIT)
        return answered


def found(readme: str) -> list[str]:
    """Find the commands of a README, in order.

    A block of Python becomes a file that is run, and a line of a benchmark file a field that is
    set in a short run.
    """
    pattern = (
        r"```(?P<kind>\w+)\n(?P<block>.*?)\n```|`(?P<inline>(?:pip install|bdl-bench) [^`]+)`"
    )
    commands = list[str]()
    for match in re.finditer(pattern, readme, re.DOTALL):
        commands += _commands(match["kind"] or "sh", match["block"] or match["inline"])
    return commands


def _commands(kind: str, block: str) -> Iterator[str]:
    if kind == "sh":
        for line in block.splitlines():
            yield from line.split(" && ")
    elif kind == "python":
        yield f"python -c {shlex.quote(block)}"
    elif kind == "yaml":
        changed = shlex.quote(block.replace(": ", "=", 1))
        yield f"bdl-bench run uci-regression --profile quick --method vifa-lr --splits 1 --set {changed}"
    elif kind != "text":  # which is what a command prints
        raise ValueError(f"the README has a block of {kind}: say here what is done with it")


def walk(commands: Sequence[str], place: Place) -> str | None:
    """Run commands one by one, telling how long each takes; gives the first that fails."""
    for command in commands:
        started = monotonic()
        done = place.run(command)
        told = command if "\n" not in command else f"{command.splitlines()[0]} ..."
        print(f"{monotonic() - started:7.1f} s  {told}{'' if done else '  FAILED'}", flush=True)
        if not done:
            return command
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--all", action="store_true", dest="whole", help="do what takes hours, too"
    )
    parser.add_argument(
        "--here", action="store_true", help="the journeys alone, in this environment"
    )
    parser.add_argument("journeys", nargs="*", help=f"of {', '.join(JOURNEYS)}; all by default")
    options = parser.parse_args(arguments)
    if unknown := {*options.journeys} - {*JOURNEYS}:
        parser.error(f"no journey {', '.join(sorted(unknown))}; there are {', '.join(JOURNEYS)}")
    # A shell starts what runs in its background with Ctrl-C ignored, which servers would inherit,
    # and never end.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder:
        if options.here:
            return travel(
                options.journeys, Path(folder), path_first(Path(sys.executable).parent, os.environ)
            )
        place = prepare(Path(folder), options.whole)
        failed = walk([*found((ROOT / "README.md").read_text("utf-8")), TOUR], place)
        if failed is None:
            return travel(options.journeys, Path(folder), place.env)
        print("\n".join(place.log.read_text("utf-8", errors="replace").splitlines()[-30:]))
        print(f"failed: {failed}")
        return 1


def travel(names: Sequence[str], folder: Path, env: Mapping[str, str]) -> int:
    """Walk journeys, each in a folder of its own.

    Gives 1 if one goes wrong, after what was printed last.
    """
    for name in names or JOURNEYS:
        print(f"{name}: {(JOURNEYS[name].__doc__ or '').strip()}")
        (folder / name).mkdir()
        try:
            JOURNEYS[name](Shell(folder / name, {**env, **_cut_off()}))
        except WrongTurnError as error:
            print(f"failed: {error}")
            return 1
    return 0


def path_first(folder: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which the commands of a folder come first."""
    return {**env, "PATH": os.pathsep.join([str(folder), env["PATH"]])}


def prepare(folder: Path, whole: bool) -> Place:
    """Make an environment and a clone, and the file of one's own that the README speaks of."""
    checkout = folder / "bdl-bench"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True)
    venv.create(folder / "venv", with_pip=True)
    houses = [f"{size},{size % 7},{3 * size + size % 5}" for size in range(40, 160)]
    (checkout / "houses.csv").write_text("\n".join(["size,packages,price", *houses]) + "\n")
    ours = ("PYTHONPATH", "VIRTUAL_ENV", "BDL_DATA_DIR", "BDL_DATA_MIRROR", "BDL_APTOS_DIR")
    env = {name: value for name, value in os.environ.items() if name not in ours}
    return Place(checkout, path_first(folder / "venv/bin", env), folder / "output.log", whole)


def _cut_off() -> dict[str, str]:
    """Return the variables that lead requests to addresses other than this machine's nowhere."""
    nowhere = dict.fromkeys(
        ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"
    )
    return nowhere | dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(url: str, server: subprocess.Popen[bytes]) -> bool:
    """Wait until a server gives a page; False if it ends, or takes too long."""
    opener, limit = build_opener(ProxyHandler({})), monotonic() + WAIT
    while server.poll() is None and monotonic() < limit:
        try:
            with opener.open(url, timeout=10) as page:
                return bool(page.status == 200)
        except (URLError, TimeoutError, ConnectionError):
            sleep(0.5)
    return False


if __name__ == "__main__":
    sys.exit(main())
