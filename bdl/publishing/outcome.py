"""What follows a run: rows and provenance, the table in two formats, figures, and the MLflow mirror."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from bdl.errors import InputError
from bdl.plan.cell import Cell
from bdl.plan.planning import cells_of
from bdl.plan.reference import truth
from bdl.plan.truths import publish_info, sampled
from bdl.publishing.bands import bands
from bdl.publishing.frames import POINT_COLUMNS, final_frame, points_frame, write_frames
from bdl.publishing.overlap import overlaps
from bdl.publishing.provenance import provenance, write_provenance
from bdl.reports import (
    Band,
    Gaussians,
    band_figures,
    compare,
    cost_figures,
    curve_figures,
    figures,
    moment_figures,
    paired_figures,
    posterior_figures,
    render,
)
from bdl.reports import Cell as TableCell
from bdl.spec import Benchmark
from bdl.store import artefacts
from bdl.store.folder import existing, folder
from bdl.store.store import Store

Array = NDArray[np.float64]


class Pictures(NamedTuple):
    """What figures show of stored posteriors."""

    pairs: Sequence[Gaussians] = ()
    bands: Sequence[Band] = ()


def stored_cells(benchmark: Benchmark, store: Store) -> list[Cell]:
    """List the cells of a benchmark that have final rows in a store, with the splits that have them."""
    found = ((cell, tuple(row.split for row in store.rows("final", cell.key))) for cell in cells_of(benchmark))
    return [cell.with_splits(splits) for cell, splits in found if splits]


def final_rows(benchmark: Benchmark, results: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read the final rows of a benchmark and its scores at recorded clocks, from its store or else as published.

    Raises
    ------
    InputError
        If there is neither.
    """
    place = folder(results, benchmark)
    published, recorded = place / "trials.parquet", place / "points.parquet"
    if (place / "store.sqlite").exists() or not published.exists():
        with existing(results, benchmark) as store:
            cells = stored_cells(benchmark, store)
            return final_frame(cells, store), points_frame(cells, store)
    rows = pd.read_parquet(published)
    points = pd.read_parquet(recorded) if recorded.exists() else pd.DataFrame(columns=POINT_COLUMNS)
    return rows[rows.stage == "final"], points


def compared(benchmark: Benchmark, rows: pd.DataFrame) -> list[TableCell]:
    """Compare final rows with the printed values; data sets and entries without rows are left out."""
    return compare(narrowed(benchmark, rows), rows)


def narrowed(benchmark: Benchmark, rows: pd.DataFrame) -> Benchmark:
    """Narrow a benchmark to the data sets, the entries and the metrics that rows have; to all metrics if none has."""
    present = {name: set(rows[name]) for name in ("dataset", "entry")}
    selected = benchmark.select(
        [name for name in benchmark.datasets if name in present["dataset"]],
        [name for name in benchmark.entries if name in present["entry"]],
    )
    metrics = tuple(name for name in benchmark.metrics if name in rows and rows[name].notna().any())
    return selected.model_copy(update={"metrics": metrics or benchmark.metrics})


def publish(
    benchmark: Benchmark, store: Store, results: Path, wall_seconds: float
) -> tuple[list[TableCell], list[Path]]:
    """Write rows, provenance, table and figures beside the store.

    Returns
    -------
    tuple
        The comparison, and the files for people (table and figures).
    """
    place, cells = folder(results, benchmark), stored_cells(benchmark, store)
    write_frames(cells, store, place)
    write_provenance(provenance(benchmark, cells, store, wall_seconds), place)
    publish_info(sampled(cells), place)
    rows, points = final_frame(cells, store), points_frame(cells, store)
    comparison = compared(benchmark, rows)
    files = [place / "table.md", place / "table.json"]
    for path, format in zip(files, ("markdown", "json"), strict=True):
        path.write_text(str(render(comparison, format)), encoding="utf-8")
    return comparison, [*files, *draw(benchmark, rows, points, comparison, pictures(cells, store), place)]


def draw(
    benchmark: Benchmark,
    rows: pd.DataFrame,
    points: pd.DataFrame,
    comparison: Sequence[TableCell],
    shown: Pictures,
    place: Path,
) -> list[Path]:
    """Draw every figure of a benchmark into ``figures`` of its folder, of what has rows."""
    target, present = place / "figures", narrowed(benchmark, rows)
    return [
        *figures(present, comparison, target),
        *paired_figures(present, rows, overlaps(present), target),
        *curve_figures(present, points, target),
        *cost_figures(present, comparison, target),
        *moment_figures(benchmark.name, shown.pairs, target),
        *posterior_figures(benchmark.name, shown.pairs, target),
        *band_figures(benchmark.name, shown.bands, target),
    ]


def pictures(cells: Sequence[Cell], store: Store) -> Pictures:
    """Gather what figures show of the stored posteriors."""
    return Pictures(posteriors(cells, store), bands(cells, store))


def posteriors(cells: Sequence[Cell], store: Store) -> list[Gaussians]:
    """Pair the stored posterior of each cell's first successful split with its reference, where it has one."""
    found = []
    for cell in (cell for cell in cells if cell.benchmark.measures_distances):
        kept = [row for row in store.rows("final", cell.key) if row.artefact]
        reference = truth(cell, kept[0].split) if kept else None
        if reference is not None:
            posterior, _ = artefacts.read(store.posteriors, str(kept[0].artefact))
            moments = [part.double().numpy() for part in (posterior.mean(), posterior.covariance())]
            known = reference.mean.numpy(), reference.covariance.numpy()
            density = _on_arrays(reference.log_density)
            found.append(Gaussians(str(cell.dataset), cell.entry, moments[0], moments[1], known[0], known[1], density))
    return found


def _on_arrays(log_density: Callable[[Tensor], Tensor] | None) -> Callable[[Array], Array] | None:
    """Let a function of tensors take and give arrays."""
    return log_density and (lambda points: log_density(torch.from_numpy(points)).numpy())


def mirror_run(
    benchmark: Benchmark, cells: Sequence[Cell], store: Store, uri: str, results: Path, artifacts: Sequence[Path]
) -> int:
    """Mirror cells to MLflow; gives the number of runs written.

    Raises
    ------
    InputError
        If no cell has results, or as `bdl.publishing.mirror.mirror` says.
    """
    from bdl.publishing.mirror import mirror

    if not cells:
        raise InputError(f"no fit of {benchmark.name} is finished; go on with: bdl-bench run {benchmark.name}")

    origin = provenance(benchmark, cells, store, 0.0)
    tags: Mapping[str, str] = {
        "bdl.spec_hash": origin["spec_hash"],
        "bdl.profile": origin["profile"],
        "bdl.git_commit": str(origin["git_commit"]),
        "bdl.device": origin["machine"]["device"],
        "bdl.processor": origin["machine"]["processor"],
        **{f"version.{name}": found for name, found in origin["packages"].items()},
    }
    runs = mirror(
        benchmark,
        store,
        cells,
        tracking_uri=uri,
        artifact_root=results / "mlartifacts",
        tags=tags,
        artifacts=artifacts,
    )
    return len(runs)


def tracking_uri(given: str, results: Path) -> str | None:
    """Give the tracking URI: as given, None for ``none``, by default a database in the results folder."""
    if given == "none":
        return None
    return given or f"sqlite:///{(results / 'mlflow.db').resolve()}"
