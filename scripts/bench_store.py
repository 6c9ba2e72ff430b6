"""How long commands take that read a large store, and how much memory.

    python scripts/bench_store.py --rows 1000000

A store of so many final rows is written to a folder of its own: 100 cells, each with as many splits as that takes.
Each command is a process of its own; printed are the seconds of CPU that it takes, and its peak of memory.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from bdl.execution.queue import claim
from bdl.plan.planning import cells_of
from bdl.spec import load_variant
from bdl.store.rows import Outcome, Row
from bdl.store.store import Store

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


def write(place: Path, rows: int) -> Path:
    """Write the benchmark and its store; return the file of the benchmark."""
    file, draw = place / "many.yaml", random.Random(1)
    file.write_text(yaml.safe_dump(CONTENT | {"splits": max(1, rows // 100)}))
    asked = load_variant(str(file))
    cells = cells_of(asked.benchmark)
    with Store(place / "results/many/store.sqlite") as store:
        store.remember(json.dumps(asked.dump()))
        claim(cells, store)
        for cell in cells:
            details = {"width": 10, "device": "cpu", "compiled": False, "updates": 8}
            store.append(
                [
                    Outcome(
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
            )
    return file


def measured(place: Path, words: list[str]) -> tuple[float, float]:
    """Run a command; return its seconds of CPU and its peak of memory in MB."""
    process = subprocess.Popen(
        [Path(sys.executable).with_name("bdl-bench"), *words], cwd=place, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"bdl-bench {' '.join(words)} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def main() -> None:
    """Print a line for each command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = write(Path(folder), asked.rows)
        for command in COMMANDS:
            name, *options = command.split()
            seconds, memory = measured(Path(folder), [name, str(file), *options])
            print(f"{command}: {seconds:.1f} s of CPU, {memory:,.0f} MB", flush=True)


if __name__ == "__main__":
    main()
