"""The leaderboard of the documentation site: published rows as pages that sort, filter and compare in the browser.

Every page is a frame that `docs/leaderboard.js` fills from a file of data beside it, so that it
works without a server.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from leaderboard_runs import Run, published_run, rows_by_split
from scipy.special import stdtrit

from bdl.metrics import get_metric_info
from bdl.publishing.run_tables import compute_run_standings
from bdl.records.row import CERTIFICATE_DETAIL
from bdl.references.certificate import CERTIFIED
from bdl.reports.comparison import TableEntry
from bdl.reports.elsewhere import as_printed
from bdl.reports.figures import FigureData, draw_figures
from bdl.reports.intervals import LEVEL, MIN_SPLITS
from bdl.reports.layout import metric_heading
from bdl.reports.paired import scores_by_split
from bdl.reports.papers import OTHER_PAPERS, load_paper
from bdl.reports.standing_tables import Standing
from bdl.spec import Benchmark, list_benchmarks
from bdl.stored_results.loading import LoadedResults

ROOT = Path(__file__).parents[1]
PRINTED = [row for paper in OTHER_PAPERS for row in load_paper(paper)]
"""What other papers print for the UCI regressions."""
UCI = {row["dataset"] for row in PRINTED}
IMAGES = {"mnist", "mnist_validated", "aptos2019"}
RANKED = ("nmll", "rmse")
"""Scores whose ranks over data sets are drawn."""
RANKABLE = ("lower", "higher")
"""Directions of scores by which methods are ranked."""
DIGITS = 9
"""Significant ones of numbers on a page."""

FAMILIES = {
    "variational": "vifa vifa-two-stage natural-gradient slang slang-online-eig bbb ivon noisy-adam hierarchical-vadam "
    "noisy-kfac vadam vprop vprop-root vogn fa-elbo fa-optimum exact-gaussian cholesky-vi Vbll DiagonalVi AutoLowRank",
    "Laplace": "laplace last-layer-laplace LaplaceTorch",
    "SWAG, iterates": "sgd-iterates swag multi-swag iterates-fa online-sga online-em online-px-em batch-fa",
    "ensemble, dropout": "deep-ensemble mc-dropout NgBoost deep_ensembles dropout_grid",
    "MCMC, sampling": "sgld sghmc csgmcmc importance-sampling Sghmc Mclmc Nuts NetworkNuts",
    "moment matching": "moment-matching pbp",
    "exact, truth": "conjugate teacher GaussianProcess BayesianRidge",
    "point estimate": "adam rmsprop sgd",
}
"""Family to its methods: names of the registry, classes of guests, and what other papers print."""


class Board(NamedTuple):
    """A page of the leaderboard."""

    title: str
    about: str
    belongs: Callable[[Benchmark], bool]
    pooled: bool = False
    """Whether benchmarks on the same splits of a data set are ranked together."""


BOARDS = {
    "uci": Board(
        "UCI regression",
        "Benchmarks on the published splits and on gap splits. What other papers print is grey, and has no rank.",
        lambda benchmark: UCI.issuperset(benchmark.datasets) and not benchmark.preparation.repeats,
        pooled=True,
    ),
    "posteriors": Board(
        "Posteriors against truth",
        "Benchmarks that measure the distance to an exact, optimal or sampled posterior.",
        lambda benchmark: any(
            get_metric_info(name).kind == "distance" for name in benchmark.metrics
        ),
    ),
    "images": Board(
        "Images", "Benchmarks on images.", lambda benchmark: IMAGES.issuperset(benchmark.datasets)
    ),
}
"""File name to page."""


def family(method: str) -> str:
    """Return the family of a method, by its name or a guest's ``module:Class``.

    ``"other"`` if it has none.
    """
    name = method.rpartition(":")[2]
    return next((kind for kind, names in FAMILIES.items() if name in names.split()), "other")


def leaderboard(published: Sequence[str]) -> Iterator[tuple[str, str | bytes]]:
    """Return the pages with their data, figures and downloads, by their place in the site.

    Parameters
    ----------
    published
        Folders of results: ``name`` or ``name/profile``.
    """
    runs = [published_run(folder) for folder in published]
    for name, board in BOARDS.items():
        own = [
            run
            for run in runs
            if board.belongs(run.found.benchmark) and not run.found.benchmark.axes
        ]
        drawn: list[tuple[str, str]] = []
        for run in own:
            yield from run.files.items()
            yield from ((path, content) for _, path, content in rows_by_split(run))
            for text, file, picture in (
                _diagrams(run) if name == "uci" and run.folder in published else ()
            ):
                drawn.append((text, file))
                yield f"leaderboard/{file}", picture
        yield f"leaderboard/{name}.md", _page(name, board, drawn)
        content = json.dumps(data(board, own), separators=(",", ":"), ensure_ascii=False)
        yield f"leaderboard/{name}.js", f"const BOARD = {content};\n"


def data(board: Board, runs: Sequence[Run]) -> dict[str, Any]:
    """Return what a page shows: scores, sources, cells, and quantiles of Student's t for each degree of freedom."""
    cells = [cell for run in runs for cell in _cells(board, run)]
    name_groups(cells)
    for group in {cell["group"] for cell in cells}:
        _rank([cell for cell in cells if cell["group"] == group])
    if board.pooled:
        known = {cell["dataset"] for cell in cells}
        cells += [cell for cell in _printed() if cell["dataset"] in known]
    counts = Counter(metric for cell in cells for metric in cell["scores"])
    shown = sorted(
        counts, key=lambda name: (get_metric_info(name).direction not in RANKABLE, -counts[name])
    )
    most = max(len(cell["at"]) for cell in cells)
    return {
        "scores": {
            name: [metric_heading(name), get_metric_info(name).direction] for name in shown
        },
        "sources": {run.folder: _source(run) for run in runs},
        "cells": cells,
        "fewest": MIN_SPLITS,
        "quantiles": [_short(float(stdtrit(df, 1 - LEVEL / 2))) for df in range(1, most)],
    }


def name_groups(cells: Sequence[dict[str, Any]]) -> None:
    """Name the benchmark with a data set that several groups have: a name and a score have one ranking."""
    groups: dict[str, set[str]] = {}
    for cell in cells:
        groups.setdefault(cell["dataset"], set()).add(cell["group"])
    for cell in cells:
        if len(groups[cell["dataset"]]) > 1:
            cell["dataset"] += f" ({cell['benchmark']})"


def marks(found: LoadedResults, rows: pd.DataFrame) -> list[list[str]]:
    """Return what distinguishes the rows of a cell, each mark with its explanation."""
    texts = []
    if found.remark:
        texts.append(
            ["part of the protocol" if found.protocol else "other protocol", found.remark]
        )
    if CERTIFICATE_DETAIL in rows:
        certificates = rows[CERTIFICATE_DETAIL].dropna()
        missing = int((certificates != CERTIFIED).sum())
        if missing:
            why = f"The draws of {missing} of {len(certificates)} splits do not pass the checks of ground truth."
            texts.append(["uncertified", why])
    return texts


def _source(run: Run) -> dict[str, Any]:
    splits = {kind: path for kind, path, _ in rows_by_split(run)}
    return {"command": run.command, "links": {**run.links, **splits}}


def _cells(board: Board, run: Run) -> Iterator[dict[str, Any]]:
    """Yield a cell a data set and method, with the median time of a fit, the fits of its search, and its scores.

    A score is mean, standard error, median, n, failed, rank, values.
    """
    benchmark, found = run.found.benchmark, run.found
    split = benchmark.preparation.split
    tabled: dict[tuple[str, str], dict[str, dict[str, TableEntry]]] = {}
    for cell in run.table:
        if cell.n_trials:
            own = tabled.setdefault((cell.dataset, cell.method), {})
            own.setdefault(cell.metric, {})[cell.statistic] = cell
    for (dataset, entry), metrics in tabled.items():
        label, search = f"{dataset}/{entry}", benchmark.entries[entry].on(dataset).search
        rows = found.rows[
            (found.rows["dataset"] == dataset) & (found.rows["entry"] == entry)
        ].set_index("split")
        rows = rows.sort_index()
        where = f"{dataset} ({split})" if board.pooled and split != "published" else dataset
        yield {
            "benchmark": run.folder,
            "dataset": where,
            "group": where if board.pooled else f"{benchmark.name}/{benchmark.profile}/{dataset}",
            "method": entry,
            "family": family(run.methods[entry]),
            "origin": run.origins[label],
            "marks": marks(found, rows),
            "commit": run.commits[label],
            "search": [search.trials, search.folds] if search else [0, 0],
            "seconds": _short(rows.seconds[rows.status == "ok"].median()),
            "overlap": None if run.overlap is None else run.overlap.get(dataset, 0.0),
            "at": [int(each) for each in rows.index],
            "scores": {
                metric: [
                    *_numbers(own),
                    None,
                    [_short(value) for value in scores_by_split(rows, metric)],
                ]
                for metric, own in metrics.items()
            },
        }


def _numbers(own: Mapping[str, TableEntry]) -> list[float | int | None]:
    mean, median = own["mean"], own.get("median")
    n = mean.n_trials - mean.n_failed
    return [
        _short(mean.ours),
        _short(mean.ours_se),
        _short(median.ours) if median else None,
        n,
        mean.n_failed,
    ]


def _rank(cells: Sequence[dict[str, Any]]) -> None:
    """Rank cells by their means, those with failed fits left out: their means are of the others alone."""
    for metric in {metric for cell in cells for metric in cell["scores"]}:
        if get_metric_info(metric).direction in RANKABLE:
            own = [cell["scores"][metric] for cell in cells if metric in cell["scores"]]
            whole = [each for each in own if each[0] is not None and not each[4]]
            places = pd.Series([each[0] for each in whole], dtype=float).rank(
                method="min", ascending=get_metric_info(metric).direction == "lower"
            )
            for each, place in zip(whole, places, strict=True):
                each[5] = int(place)


def _printed() -> Iterator[dict[str, Any]]:
    """Yield the cells of other papers, with each number as it is printed."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in PRINTED:
        text, spread, splits = as_printed(row)
        remark = f"± is the {spread}; splits: {splits}"
        new: dict[str, Any] = {
            "benchmark": f"{row['paper']} {row['table']}",
            "dataset": row["dataset"],
            "group": row["dataset"],
            "method": row["method"],
            "family": family(row["method"]),
            "origin": "printed elsewhere",
            "marks": [],
            "search": None,
            "seconds": None,
            "overlap": None,
            "at": [],
            "remark": remark,
            "scores": {},
            "shown": {},
        }
        cell = found.setdefault(
            (row["paper"], row["table"], row["dataset"], row["method"], remark), new
        )
        cell["scores"][row["metric"]] = [float(row["value"]), None, None, None, None, None, []]
        cell["shown"][row["metric"]] = text
    yield from found.values()


def _diagrams(run: Run) -> Iterator[tuple[str, str, bytes]]:
    """Return text, file and bytes of each figure of an overall standing."""
    benchmark = run.found.benchmark
    standings = [each for each in compute_run_standings(run.found) if each.metric in RANKED]
    drawn = {each.metric: each for each in standings}
    with tempfile.TemporaryDirectory() as folder:
        for path in draw_figures(
            FigureData(benchmark, standings=standings), Path(folder), pdf=False
        ):
            metric = path.stem.removeprefix(f"{benchmark.name}-").removesuffix("-standing")
            yield _told(benchmark.name, drawn[metric]), f"figures/{path.name}", path.read_bytes()


def _told(name: str, found: Standing) -> str:
    means = ", ".join(f"{entry} {rank.value:.2f}" for entry, rank in found.ranks.items())
    count = len(found.datasets)
    return (
        f"{name}, average ranks by {metric_heading(found.metric)} over {count} data sets: {means}"
    )


def _page(name: str, board: Board, drawn: Sequence[tuple[str, str]]) -> str:
    frame = (ROOT / "scripts/leaderboard.html").read_text("utf-8").replace("NAME", name)
    parts = [
        "---\nhide: [navigation, toc]\n---",
        f"# Leaderboard: {board.title}",
        " · ".join(f"[{other.title}]({own}.md)" for own, other in BOARDS.items() if own != name),
        f"{board.about} [What the columns say](../results.md#leaderboard).",
        frame,
    ]
    if drawn:
        parts += [
            "## Overall standing",
            "[Average ranks](../standing.md) over data sets, as `bdl-bench compare NAME --figures FOLDER` draws them.",
            *(
                f"`{text.partition(',')[0]}`\n\n![{text}]({file}){{ loading=lazy width=640 }}"
                for text, file in drawn
            ),
        ]
    return "\n\n".join(parts) + "\n"


def _short(value: float | None) -> float | None:
    """Round to the digits of a page; None for NaN, too."""
    return None if value is None or value != value else float(f"{value:.{DIGITS}g}")


def yaml_sections() -> str:
    """Return the YAML of each benchmark below its name and its title."""
    found = [
        f"## {name}\n\n{title}\n\n```text\n{(ROOT / f'benchmarks/{name}.yaml').read_text('utf-8').strip()}\n```"
        for name, title in list_benchmarks()
    ]
    return "\n\n".join(found)
