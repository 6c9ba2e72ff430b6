"""Kill a small run again and again, at random moments, and compare what is left with a run that was left alone.

Every round starts the same command on the same folder, and sends SIGKILL to the parent, to one of its workers, or to
all of them; some rounds start a second parent, which must be refused. The last run is left to its end. No finished row
may be lost, none there twice, and all rows but the times those of the undisturbed run.

    python scripts/faults.py --kills 100 --output results/faults/tally.json
"""

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pandas as pd

CHANGES = [
    "splits=20",
    *(f"entries.vifa-{own}.{change}" for own in ("lr", "nn") for change in ("search.trials=6", "training.epochs=4")),
    "entries.vifa-nn.search.sampler=bayesian",
    "entries.vifa-nn.search.startup=2",
    "entries.vifa-nn.model.hidden=[5]",
]
COMMAND = ["run", "uci-regression", "--profile", "quick", "--method", "vifa-lr", "--method", "vifa-nn", "--no-compile"]
TIMES = ["seconds", "runtime"]


def start(results: Path, jobs: int) -> subprocess.Popen[str]:
    """Start the run in a process group of its own."""
    words = [*COMMAND, "--tracking", "none", "--jobs", str(jobs), "--results", str(results)]
    words += [word for change in CHANGES for word in ("--set", change)]
    return subprocess.Popen(
        [sys.executable, "-m", "bdl", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def finish(results: Path, jobs: int) -> None:
    """Let the run come to its end."""
    process = start(results, jobs)
    _, error = process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"the run failed: {error}")


def keys(results: Path) -> list[tuple[object, ...]]:
    """List the keys of the rows that are safe, once each time that they are there."""
    stores = list(results.glob("uci-regression/quick/variants/*/store.sqlite"))
    if not stores:
        return []
    with sqlite3.connect(stores[0], timeout=30) as db:  # which rolls back what a kill left half written
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'fits'").fetchone():
            return []
        return db.execute("SELECT dataset, entry, point, stage, split, trial, fold FROM fits").fetchall()


def workers(parent: int) -> list[int]:
    """List the processes that a parent has started and that are Python programs of the pool."""
    found = subprocess.run(["pgrep", "-P", str(parent), "-f", "spawn_main"], capture_output=True, text=True)
    return [int(pid) for pid in found.stdout.split()]


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
        os.killpg(process.pid, signal.SIGKILL)
    elif whom == "parent":
        process.kill()
        time.sleep(0.2)
        for pid in others:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return whom


def beside(first: subprocess.Popen[str], results: Path, jobs: int) -> str:
    """Start a second parent, and tell how that ended; what may not be is that both are at work."""
    second = start(results, jobs)
    _, error = second.communicate()
    if second.returncode == 2 and "another run of" in error:
        return "second parent refused"
    return "second parent NOT refused" if first.poll() is None else "second parent came when the first had ended"


def rows(results: Path) -> pd.DataFrame:
    """Read the published rows, without what differs from run to run."""
    (path,) = results.glob("uci-regression/quick/variants/*/trials.parquet")
    return pd.read_parquet(path).drop(columns=TIMES)


def campaign(folder: Path, kills: int, jobs: int, seed: int) -> dict[str, object]:
    """Disturb so many runs; give the tally."""
    dice, calm, rough = random.Random(seed), folder / "calm", folder / "rough"
    finish(calm, 1)
    tally, lost, twice, begun = Counter[str](), 0, 0, time.monotonic()
    safe: set[tuple[object, ...]] = set()
    rounds = 0
    while sum(count for whom, count in tally.items() if whom in ("parent", "worker", "all")) < kills:
        process = start(rough, jobs)
        if rounds % 10 == 5:
            time.sleep(6)  # the first has the lock by then
            tally[beside(process, rough, jobs)] += 1
        tally[disturb(process, dice)] += 1
        found = keys(rough)
        lost += len(safe - set(found))
        twice += len(found) - len(set(found))
        safe |= set(found)
        rounds += 1
        if process.returncode == 0:
            safe = set()
            subprocess.run(["rm", "-rf", str(rough)], check=True)  # complete: begin anew
    finish(rough, jobs)
    return {
        "kills": kills,
        "who": dict(sorted(tally.items())),
        "finished rows lost": lost,
        "rows twice": twice,
        "rows of the run": len(rows(calm)),
        "identical to the undisturbed run": bool(rows(rough).equals(rows(calm))),
        "minutes": round((time.monotonic() - begun) / 60, 1),
        "jobs": jobs,
        "seed": seed,
    }


def main() -> None:
    """Run a campaign and print its tally."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="where to write the tally, as JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tally = campaign(Path(folder), given.kills, given.jobs, given.seed)
    text = json.dumps(tally, indent=2)
    print(text)
    if given.output:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
