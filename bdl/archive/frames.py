"""The files of a run: their folder, and its rows as tables and as published parquet files.

``<results>/<benchmark>`` has the protocol, with a folder below for profiles other than paper, and
one ``seed-<number>`` for each replicate, which has another seed and is otherwise the same. A
variant, which is a run that is narrowed or changed by overrides, has a folder of its own in
``variants`` below that.
"""

import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from itertools import product
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from filelock import FileLock, Timeout
from pyarrow import compute, types
from pyarrow.parquet import ParquetFile, read_schema, read_table

from bdl.errors import InputError, parse_json
from bdl.files import write_atomically
from bdl.plan import Task
from bdl.records import STAGES, CellKey, Stage
from bdl.records.posterior_files import with_rerun_hint
from bdl.records.run_folder import RunFolder
from bdl.spec import Request, SweepPoint

STORE = "store.sqlite"
_VARIANTS = "variants"


def locate_folder(results: Path, request: Request) -> Path:
    """Return the folder of a request: the protocol, a replicate or a variant under its profile."""
    base = results / request.benchmark.name
    base = base if request.benchmark.profile == "paper" else base / request.benchmark.profile
    if request.replicate_seed is not None:
        base = base / f"seed-{request.replicate_seed}"
        if not request.is_narrowed:
            return base
    return base / _VARIANTS / request.folder_name if request.folder_name else base


def list_sibling_folders(folder: Path) -> list[Path]:
    """List the other folders of the benchmark and profile: the protocol and its variants."""
    base = folder.parent.parent if folder.parent.name == _VARIANTS else folder
    return [path for path in (base, *sorted((base / _VARIANTS).glob("*/"))) if path != folder]


def list_replicate_folders(folder: Path) -> list[Path]:
    """List the folders of the replicates of a protocol, from its folder or that of a part."""
    base = folder.parent.parent if folder.parent.name == _VARIANTS else folder
    return sorted(path.parent for path in base.glob(f"seed-*/{TRIALS}"))


@contextmanager
def open_for_writing(results: Path, request: Request) -> Iterator[RunFolder]:
    """Open the store of a request for writing, and lock out other runs.

    `InputError` if the folder is not writable, or another run is under way.
    """
    path = locate_folder(results, request) / STORE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # beside the store's own transactions: two runs would make the same fits twice; the
        # system releases the lock of a process that is killed
        lock = FileLock(path.with_suffix(".lock"))
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError(
            f"another run of {request.benchmark.name} writes to {path.parent}; "
            "wait for it or choose another --results"
        ) from None
    except OSError as error:
        raise InputError(
            f"cannot write to {path.parent}: {error.strerror}; choose another --results"
        ) from None
    try:
        with with_rerun_hint(request, results), RunFolder(path) as store:
            yield store
    finally:
        lock.release()


@contextmanager
def open_readonly(results: Path, request: Request) -> Iterator[RunFolder]:
    """Open the store of a request for reading; an empty one in memory if there is none."""
    path = locate_folder(results, request) / STORE
    with (
        with_rerun_hint(request, results),
        RunFolder(path) if path.exists() else make_empty_store() as store,
    ):
        yield store


def make_empty_store() -> RunFolder:
    """Make a store in memory, which leaves no file."""
    return RunFolder(Path(":memory:"))


def back_up_and_clear(store: RunFolder, cell_keys: Sequence[CellKey]) -> Path | None:
    """Copy the store, then remove the rows of cells from it; return the path of the copy.

    None if the cells have no rows.
    """
    if not any(store.find_fit_hash(cell_key) for cell_key in cell_keys):
        return None
    copy = store.path.with_name(f"{STORE}.{time.strftime('%Y%m%dT%H%M%S')}")
    try:
        # before anything is removed: a full disk costs no rows
        shutil.copy2(store.path, copy)
    except OSError as error:
        raise InputError(
            f"cannot copy {store.path}: {error.strerror}; nothing was changed"
        ) from None
    store.forget(cell_keys)
    return copy


TRIALS, POINTS = "trials.parquet", "points.parquet"

COLUMNS = ["dataset", "entry", "stage", "split", "trial", "fold", "status", "reason", "seconds"]
REQUEST_ATTRIBUTE = "made"
_UNPUBLISHED_DETAILS = {"traceback", "origin", "files"}
"""Details of a row that are not columns: they are with failures, and in the provenance."""
_MAX_LIST_ROWS = 100_000
"""Rows that are gathered as lists before they become arrays, which take less memory."""
_MAX_VALUES = 40_000_000
"""Values of a table of published rows; a few hundred MB in memory."""
_MAX_TEXT_BYTES = 200 * 10**6
"""Size of the texts of a table of published rows, written out for each row."""
POINT_COLUMNS = ["dataset", "entry", "split", "axis", "at", "metric", "value"]
COMPRESSION_LEVEL = 15
"""Level of zstd: half a second for 100,000 rows."""


class PublishedRows(NamedTuple):
    """Published rows."""

    rows: pd.DataFrame
    """One row a fit, folds of the search as well."""
    points: pd.DataFrame
    """Scores at recorded counts."""
    recorded_request: str | None
    """JSON of what the rows were made with; None for rows of earlier versions, which do not say
    so.
    """


def tabulate_rows(
    tasks: Sequence[Task],
    store: RunFolder,
    stages: Sequence[Stage],
    details: Collection[str] = (),
    *,
    problems: bool = False,
) -> pd.DataFrame:
    """Tabulate the rows of tasks, in their order, then that of the stages.

    There is a column for each axis of the sweep, each metric, each ``hyper_<name>`` and each
    detail that is published. `details` names further ones, such as ``traceback``. With `problems`,
    only rows with a reason are read.
    """
    separate_columns = _UNPUBLISHED_DETAILS.difference(details)

    def iterate_tables() -> Iterator[dict[str, list[Any]]]:
        for task, stage in product(tasks, stages):
            keys = {**_list_key_columns(task), "stage": stage}
            for columns in store.iterate_columns(stage, task.key, problems=problems):
                table: dict[str, list[Any]] = {}
                for name, text in keys.items():
                    table[name] = [text] * len(columns["split"])
                yield table | {
                    name: values
                    for name, values in columns.items()
                    if name not in separate_columns
                }

    return _join_columns(iterate_tables(), [*COLUMNS[:2], *_list_task_axes(tasks), *COLUMNS[2:]])


def _list_key_columns(task: Task) -> dict[str, str]:
    return {**dict(zip(COLUMNS[:2], task.key, strict=False)), **task.point.texts}


def _join_columns(
    column_sets: Iterable[Mapping[str, list[Any]]], columns: Sequence[str]
) -> pd.DataFrame:
    """Join sets of columns below each other, with NaN for a column that one lacks.

    Without any set, the table has no rows, and `columns`.
    """
    blocks: list[pd.DataFrame] = []
    lists: dict[str, list[Any]] = {}
    count = 0
    for table in column_sets:
        size = len(table[COLUMNS[0]])
        # a column that appears for the first time, such as a hyper-parameter of one method alone
        for name in table:
            if name not in lists:
                lists[name] = [nan] * count
        for name, values in lists.items():
            values += table.get(name) or [nan] * size
        count += size
        if count >= _MAX_LIST_ROWS:
            blocks.append(pd.DataFrame(lists))
            lists, count = {}, 0
    if count or not blocks:
        blocks.append(pd.DataFrame(lists) if count else pd.DataFrame(columns=list(columns)))
    return blocks[0] if len(blocks) == 1 else pd.concat(blocks, ignore_index=True).infer_objects()


def tabulate_final_rows(tasks: Sequence[Task], store: RunFolder) -> pd.DataFrame:
    """Tabulate final rows, with a column for each metric of the benchmark."""
    table = tabulate_rows(tasks, store, ["final"])
    metrics = tasks[0].benchmark.metrics if tasks else ()
    return table.reindex(
        columns=[*table.columns, *(str(name) for name in metrics if name not in table.columns)]
    )


def tabulate_curve_points(tasks: Sequence[Task], store: RunFolder) -> pd.DataFrame:
    """Tabulate the scores at recorded counts, one row a score."""
    records: list[dict[str, Any]] = []
    for task in tasks:
        keys = _list_key_columns(task)
        for split, point in store.load_curve_points(task.key):
            records.append({**keys, "split": split, **point._asdict()})
    columns = [*POINT_COLUMNS[:2], *_list_task_axes(tasks), *POINT_COLUMNS[2:]]
    return pd.DataFrame(records, columns=columns)


def write_rows(
    tasks: Sequence[Task], store: RunFolder, folder: Path, request_text: str | None = None
) -> list[Path]:
    """Write all rows to ``trials.parquet``, and scores at recorded counts to ``points.parquet``.

    Folds of the search are among the rows. The JSON of their request is in the metadata of
    ``trials.parquet``, so that one is never without the other. Return the paths.
    """
    tables = {
        TRIALS: tabulate_rows(tasks, store, STAGES),
        POINTS: tabulate_curve_points(tasks, store),
    }
    if request_text is not None:
        tables[TRIALS].attrs[REQUEST_ATTRIBUTE] = request_text
    paths = []
    for name, table in tables.items():
        path = folder / name
        if len(table) or name == TRIALS:
            write_table(table, path)
            paths.append(path)
        else:
            path.unlink(missing_ok=True)  # an earlier run may have recorded what this one has not
    return paths


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a table as parquet with a checksum of each page, all of it or nothing."""
    # Scores seldom repeat, but their signs and exponents do: bytes of equal rank side by side
    # compress better than a dictionary of the numbers.
    scores = [name for name, dtype in table.dtypes.items() if dtype.kind == "f"]
    with write_atomically(path) as new_path:
        table.to_parquet(
            new_path,
            compression="zstd",
            compression_level=COMPRESSION_LEVEL,
            index=False,
            write_page_checksum=True,
            use_dictionary=[name for name in table if name not in scores],
            column_encoding=dict.fromkeys(scores, "BYTE_STREAM_SPLIT"),
        )


def compute_row_checksums(folder: Path) -> dict[str, str]:
    """Compute the SHA-256 (hex) of each file of published rows in a folder, by its name."""
    paths = [folder / name for name in (TRIALS, POINTS)]
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in paths if path.exists()}


def read_rows(folder: Path, checksums: Mapping[str, str] | None = None) -> PublishedRows:
    """Read published rows; `InputError` if a file is damaged.

    `checksums` are those of `compute_row_checksums` when the files were published. Pages of a file
    have checksums of their own, which do not cover the metadata that describes the pages.
    """
    for name, recorded in (checksums or {}).items():
        if compute_row_checksums(folder).get(name) != recorded:
            raise InputError(
                f"{folder / name} is damaged or of another run: its SHA-256 is not the one in "
                "provenance.json; fetch the folder again, or remove it and run again"
            )
    rows = _read_table(folder / TRIALS, COLUMNS)
    points = pd.DataFrame(columns=POINT_COLUMNS)
    if (folder / POINTS).exists():
        points = _read_table(folder / POINTS, POINT_COLUMNS)
    return PublishedRows(rows, points, rows.attrs.pop(REQUEST_ATTRIBUTE, None))


def list_axes(rows: pd.DataFrame) -> list[str]:
    """List the paths of the axes of a sweep: the columns between the entry and the stage."""
    return [str(name) for name in rows.columns[2 : rows.columns.get_loc("stage")]]


def list_cell_keys(rows: pd.DataFrame) -> list[CellKey]:
    """List the key of the cell of each row."""
    axes = list_axes(rows)

    # cached: a sweep has a few points, and its rows may be a million
    @cache
    def format_point(*texts: str) -> str:
        return SweepPoint(
            {path: parse_json(text) for path, text in zip(axes, texts, strict=True)}
        ).text

    keys = rows[["dataset", "entry", *axes]].itertuples(index=False, name=None)
    try:
        return [(dataset, entry, format_point(*texts)) for dataset, entry, *texts in keys]
    except (ValueError, TypeError) as error:
        raise InputError(
            f"the rows have points of {', '.join(axes)} that are no JSON ({error}); "
            "remove them and run again"
        ) from None


def _read_table(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    try:
        with ParquetFile(path) as file:
            size = file.metadata.num_rows * file.metadata.num_columns
            names = file.schema_arrow.names
        if size > _MAX_VALUES:  # a few bytes of a stranger's file may stand for billions of rows
            raise InputError(
                f"{path} has {size:,} values, more than the {_MAX_VALUES:,} of any run"
            )
        if missing_columns := [name for name in columns if name not in names]:
            raise InputError(
                f"{path} has no column '{missing_columns[0]}': it holds no published rows; "
                "remove it and run again"
            )
        _check_text_size(path)
        table = pd.read_parquet(path, page_checksum_verification=True)
    except (OSError, ValueError) as error:  # those of pyarrow among them
        raise InputError(
            f"cannot read {path} ({str(error).splitlines()[0]}); remove it and run again"
        ) from None
    return table


def _check_text_size(path: Path) -> None:
    """Refuse a table whose texts would fill the memory.

    A text that many rows share is in the file once, however long it is. It is read so here, and
    its size in memory is counted before pandas writes it out for each row.
    """
    schema = read_schema(path)
    texts = [field.name for field in schema if types.is_string(field.type)]
    texts += [field.name for field in schema if types.is_large_string(field.type)]
    table = read_table(path, columns=texts, read_dictionary=texts)
    size = 0
    for column in table.columns:
        for chunk in column.chunks:
            if types.is_dictionary(chunk.type):
                lengths = compute.binary_length(chunk.dictionary).take(chunk.indices)
            else:
                lengths = compute.binary_length(chunk)
            size += compute.sum(lengths).as_py() or 0
    if size > _MAX_TEXT_BYTES:
        raise InputError(
            f"{path} has {size / 1e6:,.0f} MB of text, more than the "
            f"{_MAX_TEXT_BYTES / 1e6:,.0f} of any run"
        )


def _list_task_axes(tasks: Sequence[Task]) -> list[str]:
    return list(tasks[0].point.texts) if tasks else []
