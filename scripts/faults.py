"""Kill a small run again and again, at random moments, and compare what is left with a run that was left alone.

Every round starts the same commands on the same folder of results, those of two benchmarks side by
side, and sends SIGKILL to a parent, to one of its workers, or to all of them. In every other round
the workers of the first benchmark are those of a Dask cluster, whose scheduler and workers are
killed in turn. In all rounds the clock jumps by up to two days, forwards or back. In some another
process locks the store for a while, a second parent comes, which must be refused, or the disk is
full, which must end the run in one line, as the loss of a scheduler must. The last runs are left
to their end. No finished row may be lost, none there twice, and all rows but the times those of
the undisturbed runs. A disk is filled only where a small one is given:

    mkdir /tmp/small && mount -t tmpfs -o size=32m none /tmp/small
    python scripts/faults.py --kills 200 --small /tmp/small --output results/faults/tally.json
"""

import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pandas as pd
from filelock import FileLock

from bdl.records.run_folder import RunFolder

CHANGES = [
    "splits=20",
    *(
        f"entries.vifa-{own}.{change}"
        for own in ("lr", "nn")
        for change in ("search.trials=6", "training.epochs=4")
    ),
    "entries.vifa-nn.search.sampler=bayesian",
    "entries.vifa-nn.search.startup=2",
    "entries.vifa-nn.model.hidden=[5]",
]
FIRST, SECOND = "uci-regression", "beside"
COMMAND = ["--profile", "check", "--method", "vifa-lr", "--method", "vifa-nn"]
COMMAND += [word for change in CHANGES for word in ("--set", change)]
BESIDE = """
name: beside
title: Another benchmark in the same folder of results
datasets: [diabetes]
splits: 20
entries:
  searched:
    model: {name: linear}
    likelihood: {name: gaussian}
    method: {name: bbb}
    training: {epochs: 2, batch_size: 20}
    hyper: {learning_rate: 0.01, noise_precision: 0.001}
    search:
      {sampler: bayesian, trials: 4, startup: 2, folds: 2, metric: nmll, space: {prior_precision: {low: 0.1, high: 1}}}
metrics: [nmll, rmse, runtime]
"""
KILLS = ("parent", "worker", "all", "dask worker", "dask scheduler", "dask parent")
TIMES = ["seconds", "runtime"]
KEY = ["dataset", "entry", "point", "stage", "split", "trial", "fold"]
JUMPING = """
import random, time
_real, _moment, _shift = time.time, time.monotonic() + random.uniform(1, 8), random.uniform(-2, 2) * 86400
time.time = lambda: _real() + (_shift if time.monotonic() > _moment else 0)
"""
"""A `sitecustomize` for the program and all its workers."""


def start(
    results: Path, jobs: int, clock: Path | None = None, *, name: str = FIRST, address: str = ""
) -> subprocess.Popen[str]:
    """Start a run in a process group of its own.

    Its clock jumps if there is a folder with such a clock.
    """
    asked = [FIRST, *COMMAND] if name == FIRST else [str(results.parent / f"{SECOND}.yaml")]
    words = [
        *asked,
        "--no-compile",
        "--tracking",
        "none",
        "--jobs",
        str(jobs),
        "--results",
        str(results),
    ]
    words += ["--executor", f"dask:{address}"] if address else []
    if name == SECOND:
        results.parent.mkdir(parents=True, exist_ok=True)
        (results.parent / f"{SECOND}.yaml").write_text(BESIDE, "utf-8")
    return subprocess.Popen(
        [sys.executable, "-m", "bdl", "run", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ
        | {"OMP_NUM_THREADS": "1"}
        | ({"PYTHONPATH": _paths(clock)} if clock else {}),
    )


def _paths(first: Path) -> str:
    return os.pathsep.join(
        [str(first), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    ).rstrip(os.pathsep)


class Cluster:
    """A scheduler and workers of one thread each.

    Whatever of them is dead is started again by `mend`.
    """

    def __init__(self, count: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.scheduler = self._scheduler()
        self.workers = [self._worker() for _ in range(count)]

    def _scheduler(self) -> "subprocess.Popen[bytes]":
        words = ["--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard"]
        return self._start("distributed.cli.dask_scheduler", *words)

    def _worker(self) -> "subprocess.Popen[bytes]":
        words = [self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
        return self._start("distributed.cli.dask_worker", *words)

    def _start(self, module: str, *words: str) -> "subprocess.Popen[bytes]":
        quiet, environment = subprocess.DEVNULL, os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            [sys.executable, "-m", module, *words], stdout=quiet, stderr=quiet, env=environment
        )

    def mend(self) -> None:
        """Start again what is dead, and wait until all workers are known."""
        from distributed import Client

        if self.scheduler.poll() is not None:
            # workers that look for the one that is gone may end by themselves, sooner or later
            self.end()
            self.scheduler = self._scheduler()
        self.workers = [self._worker() if own.poll() is not None else own for own in self.workers]
        with Client(self.address, timeout=120, set_as_default=False) as client:
            client.wait_for_workers(len(self.workers), timeout=120)

    def end(self) -> None:
        """Kill all of it."""
        for own in [*self.workers, self.scheduler]:
            own.kill()
            own.wait()


def finish(results: Path, jobs: int, name: str = FIRST) -> None:
    """Let a run come to its end."""
    process = start(results, jobs, name=name)
    _, error = process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"the run failed: {error}")


def store(results: Path, name: str = FIRST) -> Path | None:
    """Find a run's store."""
    return next(results.glob(f"{name}/**/store"), None)


def keys(results: Path, name: str = FIRST) -> list[tuple[object, ...]]:
    """List the keys of the rows that are safe, once each time that they are there."""
    if (path := store(results, name)) is None:
        return []
    table = RunFolder(path).select().select(KEY).to_pylist()
    return [(name, *values.values()) for values in table]


def workers(parent: int) -> list[int]:
    """List the processes that a parent has started and that are Python programs of the pool."""
    found = subprocess.run(
        ["pgrep", "-P", str(parent), "-f", "spawn_main"], capture_output=True, text=True
    )
    return [int(pid) for pid in found.stdout.split()]


def end(process: subprocess.Popen[str]) -> None:
    """Kill a parent with all that it has started, unless they have ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def disturb(process: subprocess.Popen[str], dice: random.Random) -> str:
    """Send SIGKILL after a random while; give who got it."""
    deadline = time.monotonic() + dice.uniform(0.5, 14)
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    if process.poll() is not None:
        return "nobody: it had ended"
    whom = dice.choice(["parent", "worker", "all"])
    others = workers(process.pid)
    if whom == "worker" and not others:
        whom = "parent"
    if whom == "worker":
        os.kill(dice.choice(others), signal.SIGKILL)
        time.sleep(dice.uniform(0, 3))  # the run goes on for a while, and is then ended as well
        end(process)
    elif whom == "parent":
        process.kill()
        time.sleep(0.2)
        for pid in others:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    else:
        end(process)
    process.communicate()
    return whom


def disturb_cluster(
    process: subprocess.Popen[str], cluster: Cluster, turn: int, dice: random.Random
) -> str:
    """Kill the scheduler, a worker or the parent, in turn, and see how the run ends.

    Give who was killed.
    """
    until(lambda: process.poll() is not None, dice.uniform(4, 20))
    if process.poll() is not None:
        return "nobody: it had ended"
    whom = KILLS[3 + turn % 3]
    victim = {"dask worker": cluster.workers[0], "dask scheduler": cluster.scheduler}.get(
        whom, process
    )
    victim.kill()
    if whom == "dask worker":
        until(lambda: process.poll() is not None, dice.uniform(2, 10))  # the other worker goes on
        end(process)
    try:
        _, error = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        end(process)
        process.communicate()
        return f"{whom}: the run HUNG"
    told = process.returncode == 2 and error.count("\n") == 1
    if whom == "dask scheduler" and process.returncode != 0 and not told:
        return f"{whom}: NOT told in one line: {error.strip()[-300:]}"
    return whom


def until(event: Callable[[], object], seconds: float) -> bool:
    """Wait for an event."""
    deadline = time.monotonic() + seconds
    while not event() and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(event())


def beside(first: subprocess.Popen[str], results: Path, jobs: int) -> str:
    """Start a second parent when the first holds the lock.

    What may not be is that both are at work.
    """
    until(lambda: first.poll() is not None or _held(results), 60)
    second = start(results, jobs)
    _, error = second.communicate()
    if second.returncode == 2 and "another run of" in error:
        return "second parent refused"
    return (
        "second parent NOT refused"
        if first.poll() is None
        else "second parent came when the first had ended"
    )


def _held(results: Path) -> bool:
    """Return whether a run has the lock of its store, without touching it (Linux)."""
    held = Path("/proc/locks").read_text()
    return any(
        f":{path.stat().st_ino} " in held for path in results.glob(f"{FIRST}/**/store.lock")
    )


def lock(process: subprocess.Popen[str], results: Path, dice: random.Random) -> str:
    """Lock the store for some seconds in which the run would write."""
    until(lambda: process.poll() is not None or store(results), 60)
    if (path := store(results)) is None:
        return "nothing to lock: the run had ended"
    with FileLock(path / "rows.lock"):
        time.sleep(dice.uniform(1, 8))
    return "store locked for a while"


def fill(process: subprocess.Popen[str], small: Path, dice: random.Random) -> str:
    """Fill the disk and see how the run ends; make package again."""
    time.sleep(dice.uniform(0, 5))
    ballast = small / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    try:
        _, error = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        end(process)
        return "full disk: the run HUNG"
    finally:
        ballast.unlink()
    if process.returncode == 0:
        return "full disk: the run had ended"
    told = process.returncode == 2 and "Traceback" not in error
    return (
        "full disk: told in one line" if told else f"full disk: NOT told: {error.strip()[-300:]}"
    )


def rows(results: Path, name: str = FIRST) -> pd.DataFrame:
    """Read the published rows, without what differs from run to run."""
    (path,) = results.glob(f"{name}/**/run.json")
    return RunFolder(path.parent).tabulate().drop(columns=TIMES)


def disturbance(
    rounds: int, process: subprocess.Popen[str], folder: Path, jobs: int, dice: random.Random
) -> str | None:
    """Do what this round has beside its kill, if anything."""
    rough = folder / "rough"
    if rounds % 10 == 5:
        return beside(process, rough, jobs)
    if rounds % 10 == 2:
        return lock(process, rough, dice)
    if rounds % 10 == 8 and folder.is_mount():
        return fill(process, folder, dice)
    return None


def campaign(
    folder: Path, kills: int, jobs: int, seed: int, small: Path | None
) -> dict[str, object]:
    """Disturb so many runs; give the tally."""
    dice, calm, clock, rough = (
        random.Random(seed),
        folder / "calm",
        folder / "clock",
        (small or folder) / "rough",
    )
    clock.mkdir()
    (clock / "sitecustomize.py").write_text(JUMPING)
    for name in (FIRST, SECOND):
        finish(calm, 1, name)
    tally, lost, twice, begun = Counter[str](), 0, 0, time.monotonic()
    safe: set[tuple[object, ...]] = set()
    rounds, cluster = 0, Cluster(2)
    try:
        while sum(count for whom, count in tally.items() if whom in KILLS) < kills:
            dask = rounds % 2 == 1
            if dask:
                cluster.mend()
            other = start(rough, 1, clock, name=SECOND)
            process = start(rough, jobs, clock, address=cluster.address if dask else "")
            if beyond := disturbance(rounds, process, rough.parent, jobs, dice):
                tally[beyond] += 1
            own = (
                disturb_cluster(process, cluster, rounds // 2, dice)
                if dask
                else disturb(process, dice)
            )
            tally[own] += 1
            ended = other.poll() == 0
            if other.poll() is None:
                end(other)
                tally["parent of the other benchmark"] += 1
            other.communicate()
            found = [*keys(rough), *keys(rough, SECOND)]
            lost += len(safe - set(found))
            twice += len(found) - len(set(found))
            safe |= set(found)
            rounds += 1
            if process.returncode == 0 and ended:
                safe = set()
                shutil.rmtree(rough)  # complete: begin anew
    finally:
        cluster.end()
    for name in (FIRST, SECOND):
        finish(rough, jobs, name)
    return {
        "kills": kills,
        "rounds, each with a clock that jumps and two benchmarks in one folder": rounds,
        "what was done": dict(sorted(tally.items())),
        "finished rows lost": lost,
        "rows twice": twice,
        "rows of the runs": {name: len(rows(calm, name)) for name in (FIRST, SECOND)},
        "identical to the undisturbed runs": all(
            rows(rough, name).equals(rows(calm, name)) for name in (FIRST, SECOND)
        ),
        "minutes": round((time.monotonic() - begun) / 60, 1),
        "jobs": jobs,
        "seed": seed,
    }


def main() -> None:
    """Run a campaign and print its tally."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--small", type=Path, help="an empty folder on a small disk of its own, to be filled"
    )
    parser.add_argument("--output", type=Path, help="where to write the tally, as JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tally = campaign(Path(folder), given.kills, given.jobs, given.seed, given.small)
    text = json.dumps(tally, indent=2)
    print(text)
    if given.output:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
