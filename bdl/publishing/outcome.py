"""What follows a run: rows and provenance, the table in two formats, figures, and the MLflow mirror."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from rich.console import RenderableType

from bdl.archive import ResultsFolder, stored_cells
from bdl.archive.frames import final_frame, folder, points_frame, write_frames
from bdl.archive.loading import LoadedResults, load, load_results, open_results
from bdl.archive.posteriors import is_published, stored_posteriors, write_posteriors
from bdl.errors import InputError, unknown
from bdl.plan import Cell
from bdl.plan.truths import publish_info, published_info, sampled
from bdl.publishing.pictures import of_whole_sets, pictures
from bdl.publishing.provenance import overlaps, provenance, recorded_overlaps, write_provenance
from bdl.reports import Cell as TableCell
from bdl.reports import compare, refusals
from bdl.reports.claims import Judged, claim_sections, judged_claims
from bdl.reports.curves import curves
from bdl.reports.distributions import boxes, truth_ranks
from bdl.reports.figures import Shown, draw_figures
from bdl.reports.layout import Section
from bdl.reports.more_tables import (
    bound_notes,
    elsewhere_sections,
    ensemble_sections,
    reference_sections,
)
from bdl.reports.paired import paired_differences
from bdl.reports.render import SECTIONS, render
from bdl.spec import Benchmark, Variant, differences
from bdl.store.artefacts import mended
from bdl.store.store import Store

ARTIFACTS = "mlartifacts"
"""Folder of the files of MLflow's runs, in that of results."""


def compared(found: LoadedResults) -> list[TableCell]:
    """Compare final rows with the printed values; data sets and entries without rows are left out.

    Entries whose searches ended on a bound have a note that says so.
    """
    present = narrowed(found.benchmark, found.rows)
    noted = present.model_copy(
        update={"notes": (*present.notes, *bound_notes(present, found.rows))}
    )
    return compare(noted, found.rows, protocol=found.protocol)


def narrowed(benchmark: Benchmark, rows: pd.DataFrame) -> Benchmark:
    """Narrow a benchmark to the data sets, the entries and the metrics that rows have.

    To all metrics if none has.

    A metric is had, too, where the rows say why it could not be computed.
    """
    present = {name: set(rows[name].unique()) for name in ("dataset", "entry")}
    selected = benchmark.select(
        [name for name in benchmark.datasets if name in present["dataset"]],
        [name for name in benchmark.entries if name in present["entry"]],
    )
    metrics = tuple(
        name
        for name in benchmark.metrics
        if name in rows and (rows[name].notna().any() or refusals(rows, name))
    )
    return selected.model_copy(update={"metrics": metrics or benchmark.metrics})


class Published(NamedTuple):
    """What a run has published."""

    found: LoadedResults
    cells: Sequence[TableCell]
    """The rows beside the printed values."""
    files: Sequence[Path]
    """Those for people: table and figures."""


def publish(made: Variant, store: Store, results: Path, wall_seconds: float) -> Published:
    """Write rows, posteriors, provenance, table and figures.

    But for the rows, only if one of them has changed.

    Figures that are no longer drawn are removed, unless the store has fits that were imported from
    published rows: without their posteriors some figures cannot be drawn, and all that there are
    stay.
    """
    place, benchmark = folder(results, made), made.benchmark
    cells = stored_cells(benchmark, store)
    written = write_frames(cells, store, place, json.dumps(made.dump()))
    origin = provenance(made, cells, store, wall_seconds)
    if benchmark.baseline or benchmark.claims:
        origin["overlap"] = overlaps(benchmark)
    found = LoadedResults.of(
        place, made, benchmark, final_frame(cells, store), points_frame(cells, store)
    )
    shown = compared(found)
    publish_info(sampled(cells), place)  # the table shows it
    texts = {
        place / f"table.{end}": str(tables(found, format, cells=shown))
        for end, format in (("md", "markdown"), ("json", "json"))
    }
    digest = _digest(origin, written, texts, cells, store)
    if _as_before(digest, place):
        return Published(found, shown, _for_people(place))
    travelling = stored_posteriors(cells, store)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    drawn = draw_figures(
        gathered(found, pictures(cells, store), shown), place / "figures", pdf=False
    )
    if len(of_whole_sets(cells, store)) == len(cells):
        for path in (place / "figures").glob(f"{benchmark.name}-*.*"):
            if path not in drawn and path.suffix in (".png", ".pdf"):
                path.unlink()
    files = _for_people(place)
    origin["posteriors"] = write_posteriors(travelling, place)
    write_provenance(
        origin | {"published": {"digest": digest, "files": [path.name for path in files]}}, place
    )
    return Published(found, shown, files)


def _digest(
    origin: Mapping[str, Any],
    rows: Sequence[Path],
    texts: Mapping[Path, str],
    cells: Sequence[Cell],
    store: Store,
) -> str:
    """Digest (SHA-256, hex) what tables and figures are made of, and by which code."""
    lasting = {
        name: value
        for name, value in origin.items()
        if name not in ("written", "command_wall_minutes")
    }
    kept = [artefact for cell in cells for *_, artefact in store.artefacts(cell.key)]
    content = [
        lasting,
        [sha256(path.read_bytes()).hexdigest() for path in rows],
        [*texts.values()],
        kept,
    ]
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _as_before(digest: str, place: Path) -> bool:
    files = [path.name for path in _for_people(place)]
    try:
        with ResultsFolder(place) as here:
            known = here.provenance
            return known.get("published") == {"digest": digest, "files": files} and is_published(
                place, known
            )
    except InputError:  # a damaged file, which is written anew
        return False


def _for_people(place: Path) -> list[Path]:
    return [*sorted(place.glob("table.*")), *sorted((place / "figures").glob("*.p[nd][gf]"))]


def tables(
    found: LoadedResults,
    format: str,
    metrics: Sequence[str] = (),
    cells: Sequence[TableCell] | None = None,
) -> RenderableType:
    """Render our numbers beside the printed ones (`cells`, as `compared` gives them), with what they are not as head.

    Without a choice of metrics there are all, and below them sampled references, claims, members
    of an ensemble that are as good, and what other papers print. `InputError` if there is no such
    metric, or as `render` says.
    """
    cells = compared(found) if cells is None else cells
    known = dict.fromkeys(str(cell.metric) for cell in cells)
    for name in metrics:
        if name not in known:
            raise unknown(f"metric of {found.benchmark.name}", name, known)
    if metrics:
        return render([cell for cell in cells if cell.metric in metrics], format, found.banner)
    more = list[Section]()
    if format in SECTIONS:
        more += reference_sections(found.benchmark.name, published_info(found.place))
        more += claim_sections(found.benchmark, claimed(found))
        more += ensemble_sections(found.benchmark, found.rows)
        more += elsewhere_sections(found.benchmark, cells)
    return render(cells, format, found.banner, more)


def claimed(found: LoadedResults) -> list[Judged]:
    """Judge claims by what has rows.

    None if that is not the protocol, or data are needed and not here.
    """
    present = narrowed(found.benchmark, found.rows)
    if not (present.claims and found.protocol):
        return []
    try:
        return judged_claims(present, found.rows, recorded_overlaps(found.place, found.benchmark))
    except InputError:  # rows of an earlier version, without data
        return []


def redraw(asked: Variant, results: Path) -> list[Path]:
    """Draw the figures of an earlier run again, as PNG and PDF.

    Those of posteriors only where its store has them.

    They are drawn into the folder of the run, or of one that would be narrowed to such a part.
    `InputError` if no fit is finished, or as `load_results` says.
    """
    shown = shown_again(load_results(asked, results), asked, results)
    return draw_figures(shown, folder(results, asked) / "figures")


def shown_again(found: LoadedResults, asked: Variant, results: Path) -> Shown:
    """Gather what the figures of an earlier run show, once it is loaded; errors as in `redraw`."""
    if found.rows.empty:
        raise InputError(
            f"no fit of {found.benchmark.name} is finished; go on with: {asked.command('run', results)}"
        )
    with mended(asked if found.place == folder(results, asked) else asked.whole, results):
        kept = stored_pictures(found, asked)
    return gathered(found, kept)


def stored_pictures(found: LoadedResults, asked: Variant) -> Mapping[str, Any]:
    """Gather what figures show of posteriors, if the store of the rows is there and is of them."""
    with ResultsFolder(found.place, asked, latest=True) as here:
        # an interrupted run may have begun it for other rows than the published ones
        if here.store is None or differences(here.made.benchmark, found.benchmark):
            return {}
        return pictures(here.cells, here.store)


def gathered(
    found: LoadedResults, kept: Mapping[str, Any], cells: Sequence[TableCell] | None = None
) -> Shown:
    """Gather what figures show of what has rows.

    `kept` and `cells` are as `pictures` and `compared` give them.
    """
    present = narrowed(found.benchmark, found.rows)
    pairs = paired_differences(
        present, found.rows, recorded_overlaps(found.place, present) if present.baseline else {}
    )
    own = (
        curves(present, found.points),
        boxes(present, found.rows),
        truth_ranks(present, found.rows),
    )
    return Shown(
        present,
        compared(found) if cells is None else cells,
        pairs,
        *own,
        **kept,
        remark=found.remark,
    )


def mirror_run(
    found: LoadedResults, store: Store, uri: str, results: Path, artifacts: Sequence[Path]
) -> int:
    """Mirror what a run has left to MLflow; return the number of runs written.

    `InputError` if no cell has results, or as `bdl.publishing.mirror.mirror` says.
    """
    from bdl.publishing.mirror import mirror

    made, cells = found.made, stored_cells(found.benchmark, store)
    if not cells:
        raise InputError(
            f"no fit of {made.benchmark.name} is finished; go on with: {made.command('run', results)}"
        )

    origin = provenance(made, cells, store, 0.0)
    tags: Mapping[str, str] = {
        "bdl.protocol": found.remark or "Yes.",
        "bdl.spec_hash": origin["spec_hash"],
        "bdl.profile": origin["profile"],
        **({"bdl.git_commit": origin["git_commit"]} if origin["git_commit"] else {}),
        "bdl.device": origin["machine"]["device"],
        "bdl.processor": origin["machine"]["processor"],
        **{f"version.{name}": found for name, found in origin["packages"].items()},
    }
    own, root = made.benchmark, results / ARTIFACTS
    runs = mirror(
        own,
        store,
        cells,
        variant=made.name,
        tracking_uri=uri,
        artifact_root=root,
        tags=tags,
        artifacts=artifacts,
    )
    return len(runs)


def log_again(asked: Variant, uri: str, results: Path) -> int:
    """Mirror an earlier run to MLflow from its store, as what it was made with.

    Errors as in `mirror_run`.
    """
    place = folder(results, asked)
    with ResultsFolder(place, asked, latest=True) as here:
        if here.store is None:
            open_results(asked, results).close()  # says so if there is nothing at all
            raise InputError(
                f"{place} has no store to export; one comes with: {asked.command('run', results)}"
            )
        return mirror_run(load(here), here.store, uri, results, _for_people(place))


def tracking_uri(given: str, results: Path) -> str | None:
    """Return the tracking URI: as given, None for ``none``, by default a database in the results folder."""
    if given == "none":
        return None
    return given or f"sqlite:///{(results / 'mlflow.db').resolve()}"
