"""Run the papers' deep experiments on a GPU for some minutes; the same command goes on where they stood.

``python scripts/gpu_runs.py FOLDER --minutes 14`` makes one run of `bdl-bench` after the other, with
results in the folder: SLANG Table 3 by its protocol (400 epochs, Bayes by Backprop and rank 1
first, two more seeds of rank 1, then the ranks from 2 to 32), and the profile ``gpu`` of
`blindness-detection`, where BDL_APTOS_DIR says where the photographs are. When the time is up, the
run at work is interrupted as by Ctrl-C. Fits that had ended are stored, and the one at work goes on
from its checkpoint, which is saved every minute, so that many short calls add up. The folder is all
that a further call needs, on this machine or another one with a GPU of the same kind.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from peers.command import count

COMMAND: Sequence[str] = (sys.executable, "-m", "bdl", "run")
RANKS = 2, 4, 8, 16, 32


def list_runs() -> Iterator[list[str]]:
    """Yield the arguments of each run, the most telling first."""
    mnist = ["mnist-slang", "--method"]
    yield [*mnist, "bbb"]
    yield [*mnist, "slang-1"]
    for seed in (1, 2):
        yield [*mnist, "slang-1", "--set", f"seed={seed}"]
    for rank in RANKS:
        yield [*mnist, f"slang-{rank}"]
    if os.environ.get("BDL_APTOS_DIR"):
        yield ["blindness-detection", "--profile", "gpu", "--method", "vifa", "--method", "adam"]


def run_until(deadline: float, arguments: Sequence[str]) -> int | None:
    """Make a run, and interrupt it at the deadline; return its exit code, None if interrupted."""
    process = subprocess.Popen([*COMMAND, *arguments])
    try:
        return process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait()
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    summary, _, details = str(__doc__).partition("\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where results and checkpoints are")
    parser.add_argument("--minutes", type=count, default=14, help="time for all runs (14)")
    options = parser.parse_args(arguments)
    deadline = time.monotonic() + 60 * options.minutes
    common = ["--device", "cuda", "--results", str(options.folder), "--tracking", "none"]
    for run in list_runs():
        print("bdl-bench run", *run, flush=True)
        code = run_until(deadline, [*run, *common])
        if code is None:
            print("time is up; the same command goes on")
            return 0
        if code:
            return code
    print("all runs are done")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
