"""Our means against the printed ones, one figure a metric."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from re import sub
from textwrap import fill
from typing import TYPE_CHECKING, Any

from bdl.metrics import info
from bdl.reports.compare import Cell
from bdl.reports.cutting import Range, arrow, factor, limit
from bdl.reports.inputs import Benchmark
from bdl.reports.layout import heading
from bdl.reports.scales import label_logs, scale, span
from bdl.reports.swept import swept_figure

# Matplotlib is imported on use: it is slow to load, and most commands draw nothing.
if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, QUIET, GRID = "#222222", "#666666", "#e3e3e3"
OURS: dict[str, Any] = {"color": "#0072b2", "marker": "o", "markersize": 6.5}
PAPER: dict[str, Any] = {
    "color": "#d55e00",
    "marker": "D",
    "markersize": 6,
    "markerfacecolor": "white",
    "markeredgewidth": 1.4,
}
"""Blue and vermilion of Okabe and Ito (2008), told apart under every common colour blindness."""

STYLE: dict[str, Any] = {
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.axisbelow": True,
    "axes.formatter.limits": (-3, 4),
    "axes.formatter.use_mathtext": True,
    "xtick.color": QUIET,
    "ytick.color": INK,
    "grid.color": GRID,
    "pdf.fonttype": 42,
}
# No dates and no versions: the same cells give the same bytes.
METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
}
PANEL_WIDTH, ROW_HEIGHT, MAX_COLUMNS = 2.5, 0.46, 4
MIN_WIDTH = 5.5  # inches, package for the title
OFFSET = 0.14
LETTERS, LINE = 12.5, 0.185  # of a title: letters an inch, inches a line
REMARK_LINES = 3
"""Of a remark, below a title; tables have all of it."""
_remark = ContextVar("_remark", default="")


def figures(benchmark: Benchmark, cells: Sequence[Cell], folder: Path) -> list[Path]:
    """Draw our mean against the paper's, with standard errors: a panel a dataset, a figure a metric.

    The means of a sweep are drawn along its first axis instead (`bdl.reports.swept`).

    Parameters
    ----------
    benchmark
        Gives the names and the order of datasets, entries and metrics.
    cells
        As `bdl.reports.compare` returns them.
    folder
        Where the files go; created if need be.

    Returns
    -------
    list of Path
        ``<benchmark>-<metric>.png`` (200 dpi) and ``.pdf`` for every metric, in that order. The same cells
        give the same bytes under one version of matplotlib, whatever the user's own settings.
    """
    chosen = {name: [c for c in cells if c.metric == name and c.statistic == "mean"] for name in benchmark.metrics}
    draw = swept_figure if benchmark.axes else _figure
    return save(
        {f"{benchmark.name}-{name}": partial(draw, benchmark, name, own) for name, own in chosen.items()}, folder
    )


@contextmanager
def remarked(text: str) -> Iterator[None]:
    """Put a text below the title of every figure that is drawn within the block."""
    before = _remark.set(text)
    try:
        yield
    finally:
        _remark.reset(before)


def save(drawings: "Mapping[str, Callable[[], Figure]]", folder: Path) -> list[Path]:
    """Draw figures in the house style and write each as PNG (200 dpi) and PDF under its name, made fit for a file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.style import context

    folder.mkdir(parents=True, exist_ok=True)
    paths = list[Path]()
    for name, draw in drawings.items():
        with context(["default", STYLE]):
            figure = draw()
            _entitle(figure)
            FigureCanvasAgg(figure)
            own = {suffix: folder / f"{file_name(name)}.{suffix}" for suffix in METADATA}
            for suffix, path in own.items():
                figure.savefig(path, dpi=200, metadata=METADATA[suffix])
            _reduce(own["png"])
            paths += own.values()
    return paths


def _reduce(png: Path) -> None:
    """Keep 256 colours of a picture, which halves its file or better; the PDF beside it has all of them."""
    from PIL import Image

    with Image.open(png) as picture:
        dpi, small = picture.info["dpi"], picture.convert("RGB").quantize(256)
    small.save(png, optimize=True, dpi=dpi)


def file_name(name: str) -> str:
    """Make a name fit for a file: a data set may be called by its path."""
    return sub(r"[^\w.=,+-]+", "_", name)


def _entitle(figure: "Figure") -> None:
    """Break the lines of the title that are longer than the figure is wide; below it comes the remark, cut if long.

    The figure grows by the lines that this adds, so that panels keep their size.
    """
    given, width = figure.get_suptitle().splitlines(), int(LETTERS * figure.get_figwidth())
    parts = [fill(line, width) for line in given if line]
    parts += [fill(_remark.get(), width, max_lines=REMARK_LINES, placeholder=" ...")] if _remark.get() else []
    if parts:
        title = "\n".join(parts)
        added = title.count("\n") + 1 - len(given)
        figure.set_figheight(figure.get_figheight() + LINE * max(added, 0))
        figure.suptitle(title, fontsize=11, x=0.01, ha="left")


def panels(rows: Mapping[str, Sequence[str]]) -> "tuple[Figure, dict[str, Axes]]":
    """Lay out a figure without marks, within `save`: a panel a dataset, which gives its entries, the rows."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    columns = min(len(rows), MAX_COLUMNS)
    lines = math.ceil(len(rows) / columns)
    height = lines * (ROW_HEIGHT * max(map(len, rows.values())) + 0.75) + 0.8
    layout = ConstrainedLayoutEngine(wspace=0.08, hspace=0.08)
    figure = Figure(figsize=(max(PANEL_WIDTH * columns + 0.8, MIN_WIDTH), height), layout=layout, facecolor="white")
    alike = len({tuple(entries) for entries in rows.values()}) == 1  # then only the first panel names them
    axes = figure.subplots(lines, columns, sharey=alike, squeeze=False).ravel()
    for panel in axes[len(rows) :]:
        panel.remove()
    named = dict(zip(rows, axes, strict=False))
    for dataset, panel in named.items():
        _dress(panel, dataset, rows[dataset])
    return figure, named


def _dress(panel: "Axes", dataset: str, entries: Sequence[str]) -> None:
    from matplotlib.ticker import MaxNLocator

    panel.set_title(dataset, fontsize=10, fontweight="bold", loc="left")
    panel.set_yticks(range(len(entries)), entries)
    panel.set_ylim(len(entries) - 0.5, -0.5)
    panel.grid(axis="x")
    panel.tick_params(which="both", length=0)
    panel.spines[["left", "right", "top"]].set_visible(False)
    panel.xaxis.set_major_locator(MaxNLocator(nbins=4, min_n_ticks=3))
    panel.margins(x=0.12)


def mark(panel: "Axes", row: float, value: float | None, error: float | None, style: Mapping[str, Any]) -> None:
    """Mark a value in a row with its error to either side, what is known of the two."""
    if value is not None:
        panel.errorbar([value], [row], xerr=error, linestyle="none", elinewidth=1.4, capsize=2.5, capthick=1.4, **style)


def _figure(benchmark: Benchmark, metric: str, cells: list[Cell]) -> "Figure":
    own = {dataset: [e for d, e in benchmark.pairs if d == dataset] for dataset in benchmark.datasets}
    figure, axes = panels(own)
    for dataset, panel in axes.items():
        _fill(panel, own[dataset], [cell for cell in cells if cell.dataset == dataset], factor(info(metric)))
    figure.suptitle(f"{benchmark.title}\n{heading(metric)}", fontsize=11, x=0.01, ha="left")
    _legend(figure, any(cell.paper is not None for cell in cells))
    return figure


def _fill(panel: "Axes", entries: list[str], cells: list[Cell], far: float) -> None:
    both = [(cell.ours, cell.ours_se) for cell in cells] + [(cell.paper, cell.paper_se) for cell in cells]
    known = [(value, error or 0.0) for value, error in both if value is not None]
    kept = Range.of([value for value, _ in known], far)
    _scale(panel, [value for value, _ in known if not kept.beyond(value)])
    for cell in cells:
        row = entries.index(cell.method)
        offset = 0.0 if cell.paper is None else OFFSET
        for place, value, error, look in (
            (row - offset, cell.ours, cell.ours_se, OURS),
            (row + offset, cell.paper, cell.paper_se, PAPER),
        ):
            if value is not None and kept.beyond(value):
                arrow(panel, place, value, kept, look)
            else:
                mark(panel, place, value, error, look)
        if cell.ours is None:
            across = panel.get_yaxis_transform()
            panel.text(0.5, row - offset, cell.verdict, transform=across, ha="center", va="center", color=QUIET)
    if known:
        near = [(value, error) for value, error in known if not kept.beyond(value)]
        limit(panel, kept, [end for value, error in near for end in (value - error, value + error)])


def _scale(panel: "Axes", values: list[float]) -> None:
    if scale(values) == "log":
        panel.set_xscale("log")
        label_logs(panel.xaxis, span(values))


def _legend(figure: "Figure", printed: bool) -> None:
    """Describe what the marks are; those of the paper only where it prints something."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], linestyle="none", label="ours, mean ± SE", **OURS)]
    if printed:
        handles.append(Line2D([], [], linestyle="none", label="paper, mean ± SE as printed", **PAPER))
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
