"""What follows a run: rows and provenance, the table in two formats, figures, and the MLflow mirror."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from rich.console import RenderableType
from torch import Tensor

from bdl.errors import InputError, unknown
from bdl.plan.cell import Cell
from bdl.plan.reference import truth
from bdl.plan.truths import publish_info, sampled
from bdl.publishing.bands import bands
from bdl.publishing.found import Found, find, is_part, presented, stored_cells, whereabouts
from bdl.publishing.frames import final_frame, points_frame, write_frames
from bdl.publishing.head import headed
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
    selective_figures,
)
from bdl.reports import Cell as TableCell
from bdl.reports.compare import refusals
from bdl.reports.figures import remarked
from bdl.spec import Benchmark, Variant
from bdl.store import artefacts
from bdl.store.folder import folder, looked_at
from bdl.store.store import Store

Array = NDArray[np.float64]

ARTIFACTS = "mlartifacts"
"""Folder of the files of MLflow's runs, in that of results."""


class Pictures(NamedTuple):
    """What figures show of stored posteriors."""

    pairs: Sequence[Gaussians] = ()
    bands: Sequence[Band] = ()


def compared(found: Found) -> list[TableCell]:
    """Compare final rows with the printed values; data sets and entries without rows are left out."""
    return compare(narrowed(found.benchmark, found.rows), found.rows, protocol=found.protocol)


def narrowed(benchmark: Benchmark, rows: pd.DataFrame) -> Benchmark:
    """Narrow a benchmark to the data sets, the entries and the metrics that rows have; to all metrics if none has.

    A metric is had, too, where the rows say why it could not be computed.
    """
    present = {name: set(rows[name]) for name in ("dataset", "entry")}
    selected = benchmark.select(
        [name for name in benchmark.datasets if name in present["dataset"]],
        [name for name in benchmark.entries if name in present["entry"]],
    )
    metrics = tuple(
        name for name in benchmark.metrics if name in rows and (rows[name].notna().any() or refusals(rows, name))
    )
    return selected.model_copy(update={"metrics": metrics or benchmark.metrics})


def publish(made: Variant, store: Store, results: Path, wall_seconds: float) -> tuple[Found, list[Path]]:
    """Write rows, provenance, table and figures beside the store.

    Figures that are no longer drawn are removed, unless the store has fits that were taken over as published: without
    their posteriors some figures cannot be drawn, and all that there are stay.

    Returns
    -------
    tuple
        What is published, and the files for people (table and figures).
    """
    place, benchmark = folder(results, made), made.benchmark
    cells = stored_cells(benchmark, store)
    write_frames(cells, store, place, json.dumps(made.dump()))
    write_provenance(provenance(made, cells, store, wall_seconds), place)
    publish_info(sampled(cells), place)
    rows, points = final_frame(cells, store), points_frame(cells, store)
    found = Found.of(made, benchmark, rows, points)
    files = [place / "table.md", place / "table.json"]
    for path, format in zip(files, ("markdown", "json"), strict=True):
        path.write_text(str(tables(found, format)), encoding="utf-8")
    drawn = draw(found, pictures(cells, store), place)
    if len(_kept(cells, store)) == len(cells):
        for path in (place / "figures").glob(f"{benchmark.name}-*.*"):
            if path not in drawn and path.suffix in (".png", ".pdf"):
                path.unlink()
    return found, [*files, *drawn]


def tables(found: Found, format: str, metrics: Sequence[str] = ()) -> RenderableType:
    """Render our numbers beside the printed ones, with what they are not at the head; all metrics if none is named.

    Raises
    ------
    InputError
        If there is no such metric, or as `render` says.
    """
    cells = compared(found)
    known = dict.fromkeys(str(cell.metric) for cell in cells)
    for name in metrics:
        if name not in known:
            raise unknown(f"metric of {found.benchmark.name}", name, known)
    return headed([cell for cell in cells if not metrics or cell.metric in metrics], format, found.head)


def redraw(asked: Variant, results: Path) -> list[Path]:
    """Draw the figures of an earlier run again; those of posteriors only where its store has them.

    Those of a part of the whole, to which no run was narrowed, are drawn into the folder that such a run would have.

    Raises
    ------
    InputError
        If no fit is finished, or as `find` says.
    """
    found = find(asked, results, within=True)
    if found.rows.empty:
        raise InputError(f"no fit of {found.benchmark.name} is finished; go on with: {asked.command('run', results)}")
    return draw(found, _shown(found, asked, results), folder(results, asked))


def _shown(found: Found, asked: Variant, results: Path) -> Pictures:
    """Gather what figures show of posteriors, if the store of the rows is there and is of them."""
    place = whereabouts(asked, results, within=True)
    path = place / "store.sqlite"
    if not path.exists():
        return Pictures()
    with looked_at(results, asked if place == folder(results, asked) else asked.whole) as store:
        # an interrupted run may have begun it for other rows than the published ones
        if store.made is not None and presented(store.made, asked, path).benchmark != found.benchmark:
            return Pictures()
        return pictures([cell for cell in stored_cells(found.benchmark, store) if is_part(cell, asked)], store)


def draw(found: Found, shown: Pictures, place: Path) -> list[Path]:
    """Draw every figure of a benchmark into ``figures`` of its folder, of what has rows."""
    benchmark, target = found.benchmark, place / "figures"
    present, comparison = narrowed(benchmark, found.rows), compared(found)
    shared = overlaps(present) if present.baseline else {}
    with remarked(found.remark):
        return [
            *figures(present, comparison, target),
            *paired_figures(present, found.rows, shared, target),
            *curve_figures(present, found.points, target),
            *cost_figures(present, comparison, target),
            *selective_figures(present, comparison, target),
            *moment_figures(benchmark.name, shown.pairs, target),
            *posterior_figures(benchmark.name, shown.pairs, target),
            *band_figures(benchmark.name, shown.bands, target),
        ]


def pictures(cells: Sequence[Cell], store: Store) -> Pictures:
    """Gather what figures show of the stored posteriors, of data sets all of whose posteriors are stored."""
    kept = _kept(cells, store)
    return Pictures(posteriors(kept, store), bands(kept, store))


def _kept(cells: Sequence[Cell], store: Store) -> list[Cell]:
    """Leave out data sets with fits that were taken over without their posteriors."""
    lacking = {
        cell.dataset
        for cell in cells
        if any(row.status == "ok" and not row.artefact for row in store.rows("final", cell.key))
    }
    return [cell for cell in cells if cell.dataset not in lacking]


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


def mirror_run(found: Found, store: Store, uri: str, results: Path, artifacts: Sequence[Path]) -> int:
    """Mirror what a run has left to MLflow; gives the number of runs written.

    Raises
    ------
    InputError
        If no cell has results, or as `bdl.publishing.mirror.mirror` says.
    """
    from bdl.publishing.mirror import mirror

    made, cells = found.made, stored_cells(found.benchmark, store)
    if not cells:
        raise InputError(f"no fit of {made.benchmark.name} is finished; go on with: {made.command('run', results)}")

    origin = provenance(made, cells, store, 0.0)
    tags: Mapping[str, str] = {
        "bdl.protocol": found.remark or "Yes.",
        "bdl.spec_hash": origin["spec_hash"],
        "bdl.profile": origin["profile"],
        "bdl.git_commit": str(origin["git_commit"]),
        "bdl.device": origin["machine"]["device"],
        "bdl.processor": origin["machine"]["processor"],
        **{f"version.{name}": found for name, found in origin["packages"].items()},
    }
    runs = mirror(
        made.benchmark,
        store,
        cells,
        variant=made.name,
        tracking_uri=uri,
        artifact_root=results / ARTIFACTS,
        tags=tags,
        artifacts=artifacts,
    )
    return len(runs)


def log_again(asked: Variant, uri: str, results: Path) -> int:
    """Mirror an earlier run to MLflow from its store, as what it was made with; errors as in `mirror_run`."""
    place = folder(results, asked)
    path = place / "store.sqlite"
    if not path.exists():
        find(asked, results)  # says so if there is nothing at all
        again = asked.command("run", results)
        raise InputError(f"{place} has published rows alone; a store to mirror comes with: {again}")
    with Store(path) as store:
        made = presented(store.made, asked, path)
        rows = final_frame(stored_cells(made.benchmark, store), store)
        found = Found.of(made, asked.benchmark, rows, rows)
        artifacts = sorted([*place.glob("table.*"), *place.glob("figures/*")])
        return mirror_run(found, store, uri, results, artifacts)


def tracking_uri(given: str, results: Path) -> str | None:
    """Return the tracking URI: as given, None for ``none``, by default a database in the results folder."""
    if given == "none":
        return None
    return given or f"sqlite:///{(results / 'mlflow.db').resolve()}"
