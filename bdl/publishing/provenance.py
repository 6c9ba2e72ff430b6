"""Provenance of published rows."""

import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from bdl.files import write_atomically
from bdl.plan.task import Task, joint_hash
from bdl.records.row import STAGES, Row, Stage
from bdl.records.run_folder import RunFolder
from bdl.records.segments import PROVENANCE, ROWS
from bdl.spec import Request

_PACKAGES = (
    "bdl-bench",
    "torch",
    "numpy",
    "scipy",
    "scikit-learn",
    "pandas",
    "optuna",
    "pydantic",
    "mlflow",
)


def describe_provenance(
    request: Request, tasks: Sequence[Task], run_folder: RunFolder, wall_seconds: float
) -> dict[str, Any]:
    """Describe the provenance of rows: spec, overrides, versions, seeds, machine and wall time.

    The wall time is that of the last command. Fits that were imported from published rows are
    listed under ``taken_from``; machine, device, packages, commit and minutes of work are those of
    the others.
    """
    benchmark = request.benchmark
    rows: list[Row] = []
    for task in tasks:
        rows += [row for row in run_folder.load_rows("final", task.key) if not row.imported]
    return {
        "benchmark": benchmark.name,
        "profile": benchmark.profile,
        "spec_hash": benchmark.content_hash,
        "fit_hashes": {task.label: run_folder.find_fit_hash(task.key) for task in tasks},
        "score_hashes": {task.label: _compute_score_hash(task, run_folder) for task in tasks},
        "seed": benchmark.seed,
        "splits": sorted({int(split) for task in tasks for split in task.splits}),
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "command_wall_minutes": round(wall_seconds / 60, 3),
        "work_minutes": _sum_minutes(rows),
        "git_commit": _find_git_commit() or _parse_installed_commit(version("bdl-bench")),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
        "machine": {
            "processor": _name_processor(),
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
            "device": _name_devices(rows),
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "linear_algebra": _name_linear_algebra(),
            "threads": torch.get_num_threads(),
        },
        "compiled": {task.label: _list_compiled_stages(task, run_folder) for task in tasks},
        "taken_from": _list_origins(tasks, run_folder),
        **request.dump(),
    }


def write_provenance(content: dict[str, Any], folder: Path) -> Path:
    """Write the provenance with the digests of the files beside it, all of it or nothing."""
    path = folder / PROVENANCE
    content = content | {"files": compute_checksums(folder)}
    with write_atomically(path) as new_path:
        new_path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return path


def compute_checksums(folder: Path) -> dict[str, str]:
    """Compute the SHA-256 (hex) of the files of rows and posteriors in a folder, by name."""
    paths = [folder / ROWS, RunFolder(folder).posteriors.pack]
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in paths if path.exists()}


def _list_origins(tasks: Sequence[Task], run_folder: RunFolder) -> list[dict[str, Any]]:
    """List the origins of imported fits, each with its fits and the minutes that they took."""
    rows_by_origin: dict[str, list[Row]] = {}
    cells_by_origin: dict[str, dict[str, list[int]]] = {}
    for task in tasks:
        for row in run_folder.load_rows("final", task.key):
            if row.imported:
                origin = json.dumps(row.details["origin"])
                rows_by_origin.setdefault(origin, []).append(row)
                cells = cells_by_origin.setdefault(origin, {})
                cells.setdefault(task.label, []).append(row.split)
    origins: list[dict[str, Any]] = []
    for origin, rows in rows_by_origin.items():
        minutes = _sum_minutes(rows)
        cells = cells_by_origin[origin]
        origins.append({**json.loads(origin), "work_minutes": minutes, "cells": cells})
    return origins


def _name_devices(rows: Iterable[Row]) -> str:
    """Name the devices of fits, "none" without any; a fit that failed early has none."""
    devices = {row.details["device"] for row in rows if "device" in row.details}
    return ", ".join(sorted(devices)) or "none"


def _list_compiled_stages(task: Task, run_folder: RunFolder) -> list[Stage]:
    stages: list[Stage] = []
    for stage in STAGES:
        if any(row.details.get("compiled") for row in run_folder.load_rows(stage, task.key)):
            stages.append(stage)
    return stages


def _sum_minutes(rows: Iterable[Row]) -> float:
    """Sum the minutes of fits with their searches; of one that failed its own alone are known."""
    minutes = [row.metrics.get("runtime") or row.seconds / 60 for row in rows]
    return round(sum(minutes), 3)


def _compute_score_hash(task: Task, run_folder: RunFolder) -> str | None:
    """Compute the hash of the scores of a cell's fits.

    None if there are none, or if their hashes differ.
    """
    metrics = task.fit_metrics
    distinct: set[tuple[str, ...]] = set()
    for row in run_folder.load_rows("final", task.key):
        if row.status == "ok":
            distinct.add(tuple(row.score_hashes.get(str(metric), "") for metric in metrics))
    codes = distinct.pop() if len(distinct) == 1 else ()
    return joint_hash(codes) if codes and all(codes) else None


def _name_linear_algebra() -> str:
    """Name the library that multiplies PyTorch's matrices on the CPU."""
    lines = torch.__config__.show().splitlines()
    mkl = next((line.strip(" -") for line in lines if "Math Kernel Library" in line), None)
    match = re.search(r"\bBLAS_INFO=(\w+)", " ".join(lines))
    return mkl or (match[1] if match else "unknown")


def _find_git_commit(package: Path = Path(__file__).parents[1]) -> str | None:
    """Name the commit of the package, marked if its files have changed since.

    None where git does not track it.
    """
    try:
        # the package may be installed below another repository
        run_git(package, "ls-files", "--error-unmatch", "__init__.py")
        changes = run_git(package, "status", "--porcelain", "--untracked-files=no", "--", ".")
        return run_git(package, "rev-parse", "HEAD") + ("+changes" if changes else "")
    except (OSError, subprocess.SubprocessError):
        return None


def run_git(folder: Path, *words: str) -> str:
    """Run git in the repository of a folder, and return its output.

    Raise `OSError` or `subprocess.SubprocessError` if it fails.
    """
    # without it `status` writes to the index, of a repository that another command may be using
    call = ["git", "--no-optional-locks", "-C", str(folder), *words]
    process = subprocess.run(
        call, capture_output=True, encoding="utf-8", errors="replace", timeout=60, check=True
    )
    return process.stdout.strip()


def _parse_installed_commit(version: str) -> str | None:
    """Read the commit from the version that an installation has.

    None for a release, which the version names.
    """
    match = re.search(r"\+g([0-9a-f]+)(\.d\d+)?$", version)
    return match and match[1] + ("+changes" if match[2] else "")


def _name_processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    for line in lines:
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.machine()
