"""Where published rows came from."""

import json
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from bdl.plan.cell import Cell
from bdl.plan.fingerprint import joint_hash
from bdl.spec import Variant
from bdl.store.rows import Stage
from bdl.store.store import Store

_PACKAGES = ("bdl-bench", "torch", "numpy", "scipy", "scikit-learn", "pandas", "optuna", "pydantic", "mlflow")


def provenance(made: Variant, cells: Sequence[Cell], store: Store, wall_seconds: float) -> dict[str, Any]:
    """Say where the rows came from: spec, overrides, versions, seeds, machine, wall time of the last command."""
    benchmark = made.benchmark
    rows = [row for cell in cells for row in store.rows("final", cell.key)]
    return {
        "benchmark": benchmark.name,
        "profile": benchmark.profile,
        "spec_hash": benchmark.content_hash,
        "fit_hashes": {cell.label: store.fit_hash(cell.key) for cell in cells},
        "score_hashes": {cell.label: _score_hash(cell, store) for cell in cells},
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
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "linear_algebra": _linear_algebra(),
            "threads": torch.get_num_threads(),
        },
        "compiled": {cell.label: _compiled(cell, store) for cell in cells},
        **made.dump(),
    }


def write_provenance(content: dict[str, Any], folder: Path) -> Path:
    """Write ``provenance.json``."""
    path = folder / "provenance.json"
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return path


def _score_hash(cell: Cell, store: Store) -> str | None:
    """Give the hash of all scores of a cell's fits, None if they were not computed alike or none succeeded."""
    rows = [row for row in store.rows("final", cell.key) if row.status == "ok"]
    found = {joint_hash(filter(None, row.codes.values())) for row in rows}
    return found.pop() if len(found) == 1 else None


def _compiled(cell: Cell, store: Store) -> list[Stage]:
    """Name the stages of a cell whose programs were compiled."""
    stages: tuple[Stage, ...] = ("search", "final")
    return [stage for stage in stages if any(row.details.get("compiled") for row in store.rows(stage, cell.key))]


def _linear_algebra() -> str:
    """Name the library that multiplies PyTorch's matrices on the CPU."""
    lines = torch.__config__.show().splitlines()
    mkl = next((line.strip(" -") for line in lines if "Math Kernel Library" in line), None)
    found = re.search(r"\bBLAS_INFO=(\w+)", " ".join(lines))
    return mkl or (found[1] if found else "unknown")


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
