"""How long commands take that read a large store, and how much memory.

    python scripts/bench_store.py --rows 100000 1000000 --json results/bench_store.json

A store of so many final rows is written to a folder of its own: 100 cells, each with as many
splits as that takes. Each command is a process of its own; printed are the seconds of CPU that it
takes, and its peak of memory, and before them the microseconds of CPU that appending takes a row,
in the first and in the last tenth of the cells.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import yaml
from peers import machine

from bdl.plan.planning import list_tasks
from bdl.records.row import FitResult, Row
from bdl.records.run_folder import RunFolder
from bdl.spec import load_request

ENTRY = {
    "model": {"name": "linear"},
    "likelihood": {"name": "gaussian"},
    "method": {"name": "vifa"},
    "training": {"epochs": 1, "batch_size": 50},
    "hyper": {"learning_rate": 0.01, "prior_precision": 1, "noise_precision": 0.001},
}
CONTENT = {
    "name": "many",
    "title": "Many rows",
    "datasets": ["diabetes"],
    "sweep": {"hyper.prior_precision": [10.0**power for power in range(-5, 5)]},
    "entries": {f"entry-{number}": ENTRY for number in range(10)},
    "metrics": ["nmll", "rmse", "runtime"],
}
COMMANDS = ("table", "table --format csv", "report")


def write(place: Path, rows: int) -> tuple[Path, list[float]]:
    """Write the benchmark and its store.

    Return the file of the benchmark, and the seconds of appending each cell.
    """
    file, draw, seconds = place / "many.yaml", random.Random(1), []
    file.write_text(yaml.safe_dump(CONTENT | {"splits": max(1, rows // 100)}))
    asked = load_request(str(file))
    cells = list_tasks(asked.benchmark)
    with RunFolder(place / "results/many/store") as store:
        store.record_request(json.dumps(asked.dump()))
        for cell in cells:
            store.claim(cell.key, cell.fit_hash)
            details = {"width": 10, "device": "cpu", "compiled": False, "updates": 8}
            outcomes = [
                FitResult(
                    Row(
                        *(*cell.key, "final", split, 0, 0, "ok", None, dict(cell.settings.hyper)),
                        {name: draw.gauss(1, 0.1) for name in CONTENT["metrics"]},
                        draw.random(),
                        details,
                        dict.fromkeys(CONTENT["metrics"], "0" * 64),
                    )
                )
                for split in cell.splits
            ]
            begun = time.process_time()
            store.append(outcomes)
            seconds.append(time.process_time() - begun)
    return file, seconds


def measured(place: Path, words: list[str]) -> tuple[float, float]:
    """Run a command; return its seconds of CPU and its peak of memory in MB."""
    process = subprocess.Popen(
        [Path(sys.executable).with_name("bdl-bench"), *words], cwd=place, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"bdl-bench {' '.join(words)} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def measure(rows: int) -> dict[str, Any]:
    """Measure appends and every command on a store of so many rows."""
    with tempfile.TemporaryDirectory() as folder:
        # in a process of its own: a command would inherit its peak of memory
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            file, appends = pool.submit(write, Path(folder), rows).result()
        ends = [
            1e6 * sum(some) / rows * 10 for some in (appends[:10], appends[-10:])
        ]  # of 100 cells
        print(
            f"{rows:,} rows: appended in {ends[0]:.0f} us each at first, {ends[1]:.0f} at last",
            flush=True,
        )
        found: dict[str, Any] = {
            "rows": rows,
            "append_us_first_tenth": ends[0],
            "append_us_last_tenth": ends[1],
        }
        for command in COMMANDS:
            name, *options = command.split()
            seconds, memory = measured(Path(folder), [name, str(file), *options])
            print(f"{command}: {seconds:.1f} s of CPU, {memory:,.0f} MB", flush=True)
            found[command] = {"cpu_seconds": round(seconds, 1), "peak_mb": round(memory)}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure for each number of rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(arguments)
    found = [measure(rows) for rows in asked.rows]
    if asked.json:
        report = {"system": machine.system(torch.get_num_threads()), "stores": found}
        asked.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
