"""Folders of before run folders: a store in SQLite, and published rows with a column a metric.

Commands read such a folder, and a run that writes to it converts it first. This file goes with the
next release.
"""

import json
import shutil
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import pandas as pd
import pyarrow as pa
from pyarrow.parquet import ParquetFile

from bdl.errors import InputError, parse_json
from bdl.files import write_atomically
from bdl.plan.planning import list_tasks
from bdl.plan.task import Task, joint_hash
from bdl.records.posterior_files import PosteriorFiles
from bdl.records.row import HYPER_PREFIX, CellKey, CurvePoint, FitResult, Row, split_refusals
from bdl.records.row_files import CELL_COLUMNS, COMPACT_LEVEL, KEY_COLUMNS, to_table, write_rows
from bdl.records.run_folder import ORIGIN_FIELDS, RunFolder
from bdl.records.segments import PROVENANCE, ROWS
from bdl.records.tables import COLUMNS, POINT_COLUMNS, list_axes
from bdl.spec import Request, SweepPoint, load_request

_DATABASE, _TRIALS, _POINTS = "store.sqlite", "trials.parquet", "points.parquet"
_OLD_PROVENANCE, _ARCHIVE, _STORE = "provenance.json", "posteriors.zip", "store"
_DETAILS = ("width", "device", "compiled", "updates", "packages", "kept", "certificate")
_KEY = (*CELL_COLUMNS, *KEY_COLUMNS)
_MAX_VALUES = 40_000_000
_DATABASE_VERSION = 2


def has_store(folder: Path) -> bool:
    """Return whether a folder has such a store, and none of today."""
    return (folder / _DATABASE).exists() and not (folder / _STORE).exists()


def has_published_rows(folder: Path) -> bool:
    """Return whether a folder has such published rows, and none of today."""
    # those of today have a flat table of the same name, which nothing reads
    is_of_today = (folder / ROWS).exists() or (folder / PROVENANCE).exists()
    return (folder / _TRIALS).exists() and not is_of_today


def convert_folder(folder: Path) -> None:
    """Rewrite such a folder as one of today; leave others alone.

    Errors as in `read_store` and `read_published`, and `InputError` if the disk is full.
    """
    try:
        if has_store(folder):
            run_folder = read_store(folder)
            new_store, checkpoints = folder / f"{_STORE}.new", folder / "checkpoints"
            shutil.rmtree(new_store, ignore_errors=True)  # of a conversion that was stopped
            if checkpoints.is_dir():
                shutil.copytree(checkpoints, new_store / "checkpoints")
            write_rows(new_store / ROWS, run_folder.select(), run_folder.request_text)
            # at once: while there is a store of today, the old one is not looked for
            new_store.rename(folder / _STORE)
            shutil.rmtree(checkpoints, ignore_errors=True)
            (folder / _DATABASE).unlink()
        if has_published_rows(folder):
            _convert_published(folder)
    except OSError as error:
        raise InputError(f"cannot convert {folder}: {error.strerror or error}") from None


def _convert_published(folder: Path) -> None:
    published, provenance = read_published(folder), read_provenance(folder)
    table, request = published.select(), published.request_text
    content = {name: value for name, value in provenance.items() if name != "checksums"}
    if content.pop("posteriors", None) and (folder / _ARCHIVE).is_file():
        digests = {digest.hex() for digest in table["artefact"].to_pylist() if digest}
        posteriors = PosteriorFiles(folder / "posteriors")
        posteriors.write_pack({sha: posteriors.read_bytes(sha) for sha in sorted(digests)})
    write_rows(folder / ROWS, table, request, level=COMPACT_LEVEL)
    names = [name for name in (ROWS, _ARCHIVE) if (folder / name).is_file()]
    files = {name: sha256((folder / name).read_bytes()).hexdigest() for name in names}
    if provenance:
        with write_atomically(folder / PROVENANCE) as path:
            path.write_text(json.dumps(content | {"files": files}, indent=2) + "\n", "utf-8")
    for name in (_TRIALS, _POINTS, _OLD_PROVENANCE):
        (folder / name).unlink(missing_ok=True)


def read_store(folder: Path) -> RunFolder:
    """Read a store; `InputError` if it is damaged or of another version."""
    path = folder / _DATABASE
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            if db.execute("PRAGMA user_version").fetchone() != (_DATABASE_VERSION,):
                raise InputError(
                    f"{path} was written by another version of bdl-bench; "
                    "move it away and run again"
                )
            results = list(_read_fits(db))
            hashes = db.execute("SELECT * FROM cells").fetchall()
            requests = db.execute("SELECT variant FROM made").fetchall()
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise InputError(f"cannot read {path} ({error}); move it away and run again") from None
    fit_hashes = {(dataset, entry, point): fit for dataset, entry, point, fit in hashes}
    table = to_table(results, fit_hashes)
    run_folder = RunFolder.of_table(folder / _STORE, table, requests[0][0] if requests else None)
    run_folder.posteriors = PosteriorFiles(folder / "posteriors")
    return run_folder


def _read_fits(db: sqlite3.Connection) -> Iterable[FitResult]:
    metrics: dict[Any, dict[str, float | None]] = {}
    hashes: dict[Any, dict[str, str]] = {}
    refusals: dict[Any, dict[str, str]] = {}
    curves: dict[Any, list[CurvePoint]] = {}
    for *key, metric, value, code in db.execute("SELECT * FROM scores ORDER BY rowid"):
        metrics.setdefault(tuple(key), {})[metric] = value
        hashes.setdefault(tuple(key), {})[metric] = code
    for *key, metric, reason in db.execute("SELECT * FROM refusals ORDER BY rowid"):
        refusals.setdefault(tuple(key), {})[metric] = reason
    for *key, axis, at, metric, value in db.execute("SELECT * FROM points ORDER BY rowid"):
        point = CurvePoint(axis, at, metric, float("nan") if value is None else value)
        curves.setdefault(tuple(key), []).append(point)
    for *values, status, body, artefact in db.execute("SELECT * FROM fits ORDER BY rowid"):
        key = tuple(values)
        fields = json.loads(body) | {"metrics": metrics.get(key, {})}
        row = Row(
            **dict(zip(_KEY, key, strict=True)),
            status=status,
            **fields,
            score_hashes=hashes.get(key, {}),
            artefact=artefact,
            refusals=refusals.get(key, {}),
        )
        yield FitResult(row, tuple(curves.get(key, ())))


def read_provenance(folder: Path) -> dict[str, Any]:
    """Read the provenance of published rows; empty if nothing says so."""
    path = folder / _OLD_PROVENANCE
    if not path.exists():
        return {}
    try:
        content = parse_json(path.read_text("utf-8"))
        if not isinstance(content, dict):
            raise ValueError("it does not say what rows were made with")
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path} ({error}); remove it and run again") from None
    # earlier versions called the hashes of fits fingerprints
    hashes = content.pop("fingerprints", None)
    return content if hashes is None else {"fit_hashes": hashes} | content


def read_published(folder: Path) -> RunFolder:
    """Read published rows; `InputError` if they are damaged."""
    provenance = read_provenance(folder)
    for name, recorded in provenance.get("checksums", {}).items():
        path = folder / name
        if not path.exists() or sha256(path.read_bytes()).hexdigest() != recorded:
            raise InputError(
                f"{path} is damaged or of another run: its SHA-256 is not the one in "
                f"{_OLD_PROVENANCE}; fetch the folder again, or remove it and run again"
            )
    rows = _read_table(folder / _TRIALS, COLUMNS)
    request = rows.attrs.get("made")
    tasks = _list_recorded_tasks(folder, request)
    artefacts = _read_index(folder)
    curves: dict[tuple[CellKey, int], list[CurvePoint]] = {}
    if (folder / _POINTS).exists():
        points = _read_table(folder / _POINTS, POINT_COLUMNS)
        axes = [str(name) for name in points if name not in POINT_COLUMNS]
        for values in points.to_dict("records"):
            point = CurvePoint(*(values[name] for name in CurvePoint._fields))
            curves.setdefault((_cell_of(values, axes), values["split"]), []).append(point)
    axes = list_axes(rows)
    hashes: dict[CellKey, str | None] = {}
    results: list[FitResult] = []
    converter = _RowConverter(rows, tasks, provenance)
    for values in rows.to_dict("records"):
        cell = _cell_of(values, axes)
        label = f"{cell[0]}/{cell[1]}" + ("" if cell[2] == "{}" else f" {cell[2]}")
        hashes[cell] = provenance.get("fit_hashes", {}).get(label)
        is_final = values["stage"] == "final"
        artefact = artefacts.get(label, {}).get(str(values["split"])) if is_final else None
        row = converter.convert(cell, label, values, artefact)
        curve_points = curves.get((cell, values["split"]), ()) if is_final else ()
        results.append(FitResult(row, tuple(curve_points)))
    return RunFolder.of_table(folder, to_table(results, hashes), request)


class _RowConverter:
    """Makes rows of published ones."""

    def __init__(
        self, rows: pd.DataFrame, tasks: Mapping[CellKey, Task], provenance: Mapping[str, Any]
    ) -> None:
        self._tasks, self._provenance = tasks, provenance
        names = [str(name) for name in rows if name not in (*COLUMNS, *list_axes(rows), *_DETAILS)]
        self._hyper = [name for name in names if name.startswith(HYPER_PREFIX)]
        self._scores = [name for name in names if name not in self._hyper]
        self._hashes: dict[CellKey, dict[str, str]] = {}

    def convert(
        self, cell: CellKey, label: str, values: Mapping[Any, Any], artefact: str | None
    ) -> Row:
        present = {name: value for name, value in values.items() if not pd.isna(value)}
        details = {name: _to_plain(present[name]) for name in _DETAILS if name in present}
        is_ok, problem = present["status"] == "ok", present.get("reason")
        task = self._tasks.get(cell)
        names = [name for name in self._scores if name in present]
        refusals: dict[str, str] = {}
        hashes: dict[str, str] = {}
        is_final = present["stage"] == "final"
        if is_final and (origin := self._find_origin(label, values["split"])):
            details["origin"] = origin
        if not is_final:
            if task is not None and task.settings.search is not None:
                names = [str(task.settings.search.metric)]
        elif is_ok:
            if task is not None:
                fitted = set(map(str, task.fit_metrics))
                names = [name for name in self._scores if name in present or name in fitted]
            if problem:
                refusals = split_refusals(problem, self._scores)
            else:
                hashes = self._current_hashes(cell, label, names)
        key: dict[str, Any] = dict(zip(CELL_COLUMNS, cell, strict=True))
        key |= {name: values[name] for name in (*KEY_COLUMNS, "status")}
        hyper: dict[str, float] = {}
        for name in self._hyper:
            if name in present:
                hyper[name.removeprefix(HYPER_PREFIX)] = present[name]
        return Row(
            **key,
            reason=None if is_ok and refusals else problem,
            hyper=hyper,
            metrics={name: present.get(name) for name in names},
            seconds=present["seconds"],
            details=details,
            score_hashes={name: hashes[name] for name in names if name in hashes},
            artefact=artefact,
            refusals=refusals,
        )

    def _find_origin(self, label: str, split: int) -> dict[str, Any]:
        # those of a sweep that was put together of parts are named without its point
        for run in self._provenance.get("taken_from", ()):
            cells = run["cells"]
            if split in cells.get(label, cells.get(label.split(" ")[0], ())):
                return {name: run[name] for name in ORIGIN_FIELDS if name in run}
        return {}

    def _current_hashes(self, cell: CellKey, label: str, names: Sequence[str]) -> dict[str, str]:
        """Return the hash of each score, if the joint hash of the cell is that of today."""
        if cell not in self._hashes:
            self._hashes[cell] = {}
            task = self._tasks.get(cell)
            # a package or a file may be missing
            with suppress(InputError):
                if task is not None:
                    metrics = [name for name in task.fit_metrics if str(name) in self._scores]
                    joint = joint_hash([task.score_hash(metric) for metric in metrics])
                    if metrics and joint == self._provenance.get("score_hashes", {}).get(label):
                        self._hashes[cell] = task.score_hashes(self._scores)
        return self._hashes[cell]


def _list_recorded_tasks(folder: Path, request: str | None) -> dict[CellKey, Task]:
    recorded = (
        Request.parse(request, str(folder / _TRIALS)) if request else load_request(folder.name)
    )
    return {task.key: task for task in list_tasks(recorded.benchmark)}


def _read_table(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    try:
        with ParquetFile(path, page_checksum_verification=True) as file:
            schema = file.schema_arrow
            if file.metadata.num_rows * file.metadata.num_columns > _MAX_VALUES:
                raise InputError(f"{path} has more than {_MAX_VALUES:,} values: remove it")
            missing = [name for name in columns if name not in schema.names]
            if missing:
                raise InputError(f"{path} has no column '{missing[0]}': remove it and run again")
            texts = [field.name for field in schema if pa.types.is_large_string(field.type)]
            texts += [field.name for field in schema if pa.types.is_string(field.type)]
        # a text that many rows share is in the file once, however long it is, and stays so
        with ParquetFile(path, read_dictionary=texts, page_checksum_verification=True) as file:
            return file.read().to_pandas()
    except (OSError, ValueError) as error:  # those of pyarrow among them
        reason = str(error).splitlines()[0]
        raise InputError(f"cannot read {path} ({reason}); remove it and run again") from None


def _read_index(folder: Path) -> dict[str, dict[str, str]]:
    """Return the artefacts of the archive by label and split."""
    path = folder / _ARCHIVE
    if not path.is_file():
        return {}
    try:
        with ZipFile(path) as file:
            index = parse_json(file.read("index.json"))
            digests: dict[str, dict[str, str]] = {}
            for label, by_split in index.items():
                digests[label] = {
                    split: name.removesuffix(".safetensors") for split, name in by_split.items()
                }
        return digests
    except (BadZipFile, OSError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged ({error!r}): remove it") from None


def _cell_of(values: Mapping[Any, Any], axes: Sequence[str]) -> CellKey:
    point = SweepPoint({axis: parse_json(values[axis]) for axis in axes})
    return values["dataset"], values["entry"], point.text


def _to_plain(value: Any) -> Any:
    """Return a number as JSON has it: pandas makes whole ones with a gap floats."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value.item() if hasattr(value, "item") else value
