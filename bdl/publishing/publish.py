"""What is kept of a run outside its store: raw rows as parquet, and where they came from."""

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from bdl.plan.cell import Cell
from bdl.store.store import Row, Store

_PACKAGES = ("bdl-bench", "torch", "numpy", "scipy", "scikit-learn", "pandas", "optuna", "pydantic", "mlflow")


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Lay rows out as a table: one column a metric, ``hyper_<name>`` and the details."""
    records = [
        {
            **{name: getattr(row, name) for name in ("dataset", "entry", "stage", "split", "trial", "fold")},
            **{name: getattr(row, name) for name in ("status", "reason", "seconds")},
            **{f"hyper_{name}": value for name, value in row.hyper.items()},
            **{name: float("nan") if value is None else value for name, value in row.metrics.items()},
            **{name: value for name, value in row.details.items() if name != "traceback"},
        }
        for row in rows
    ]
    columns = ["dataset", "entry", "stage", "split", "trial", "fold", "status", "reason", "seconds"]
    return pd.DataFrame(records) if records else pd.DataFrame(columns=columns)


def final_frame(cells: Sequence[Cell], store: Store) -> pd.DataFrame:
    """Lay out the final rows of the cells, with a column for each metric of the benchmark."""
    table = frame([row for cell in cells for row in store.rows("final", cell.dataset, cell.entry)])
    wanted = cells[0].benchmark.metrics if cells else ()
    return table.reindex(columns=[*table.columns, *(name for name in wanted if name not in table.columns)])


def write_rows(cells: Sequence[Cell], store: Store, folder: Path) -> Path:
    """Write every row of the cells, search folds too, to ``trials.parquet``."""
    rows = [
        row for cell in cells for stage in ("search", "final") for row in store.rows(stage, cell.dataset, cell.entry)
    ]
    path = folder / "trials.parquet"
    frame(rows).to_parquet(path, compression="zstd", index=False)
    return path


def provenance(cells: Sequence[Cell], store: Store, wall_seconds: float) -> dict[str, Any]:
    """Say where the rows came from: spec, versions, seeds, machine, wall time of the last command."""
    benchmark = cells[0].benchmark
    rows = [row for cell in cells for row in store.rows("final", cell.dataset, cell.entry)]
    return {
        "benchmark": benchmark.name,
        "profile": benchmark.profile,
        "spec_hash": benchmark.content_hash,
        "fingerprints": {f"{cell.dataset}/{cell.entry}": cell.fingerprint() for cell in cells},
        "seed": benchmark.seed,
        "splits": [int(split) for split in cells[0].splits],
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "command_wall_minutes": round(wall_seconds / 60, 3),
        "work_minutes": round(sum(row.metrics.get("runtime") or 0.0 for row in rows), 3),
        "git_commit": _git_commit(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
            "device": cells[0].device,
        },
    }


def write_provenance(content: dict[str, Any], folder: Path) -> Path:
    """Write ``provenance.json``."""
    path = folder / "provenance.json"
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return path


def _git_commit() -> str | None:
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
