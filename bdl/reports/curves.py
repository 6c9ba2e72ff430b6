"""What estimators of a stream have learned after so many observations, one figure a distance."""

import math
import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bdl.metrics import info
from bdl.reports.compare import summary
from bdl.reports.figures import MAX_COLUMNS, PAPER, QUIET, label_logs, save
from bdl.reports.inputs import Array, Benchmark
from bdl.reports.layout import heading
from bdl.reports.papers import Key, PaperValue, paper_values
from bdl.reports.statistics import Values

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#222222", "#56b4e9")
"""Palette of Okabe and Ito (2008) without its yellow, which is too pale for lines."""
ONLINE, BATCH = "-", (0, (4, 1.5))
DOTS: dict[str, Any] = {"marker": "o", "markersize": 2.4, "linewidth": 1.4}
PRINTED = PAPER | {"markersize": 4.5, "markeredgewidth": 1.2}
WIDTH, HEIGHT, MIN_WIDTH = 2.6, 1.9, 6.8
"""Of a panel, and the least of a figure, with room for its title; in inches."""
LINES = 3
"""Panels in a column, if there are too many for one line."""
BESIDE = 1.3
"""Factor from the last checkpoint to the first printed value, and from each of them to the next."""

Looks = Mapping[str, Mapping[str, Any]]


class Curve(NamedTuple):
    """Mean over splits of one metric at every checkpoint, for one entry on one dataset."""

    dataset: str
    entry: str
    metric: str
    observations: Array
    """Numbers of observations seen, ascending, (n,)."""
    mean: Array
    """In the metric's unit, (n,)."""
    se: Array
    """Standard error of the mean, (n,); NaN at checkpoints that fewer than two splits have."""


def curves(benchmark: Benchmark, rows: "pd.DataFrame") -> list[Curve]:
    """Average each metric over the successful splits, checkpoint by checkpoint.

    Parameters
    ----------
    benchmark
        Gives the names and the order of metrics, datasets and entries.
    rows
        One row a trial: `dataset`, `entry`, `status` (``"ok"`` or ``"failed"``) and columns such as
        ``rel_cov_dist_at_1000``, the metric after 1000 observations.

    Returns
    -------
    list of Curve
        In the order metric, dataset, entry, where there is any finite value; checkpoints without one are left out.
    """
    found = []
    for metric in benchmark.metrics:
        matches = (re.fullmatch(rf"{metric}_at_(\d+)", str(name)) for name in rows.columns)
        columns = sorted((int(match[1]), match[0]) for match in matches if match)
        for dataset, entry in benchmark.pairs if columns else ():
            good = rows[(rows["dataset"] == dataset) & (rows["entry"] == entry) & (rows["status"] == "ok")]
            points = [_point(seen, good[name].to_numpy(dtype=float)) for seen, name in columns]
            known = [point for point in points if point[1] is not None]
            if known:
                found.append(Curve(dataset, entry, metric, *np.array(known, dtype=np.float64).T))
    return found


def curve_figures(benchmark: Benchmark, rows: "pd.DataFrame", folder: Path) -> list[Path]:
    """Draw the curves on logarithmic axes: a panel a dataset, a line an entry, a figure a metric.

    Parameters
    ----------
    benchmark, rows
        As in `curves`. Lines are solid for entries whose method is called ``online-...``, and dashed for batch fits.
    folder
        Where the files go; created if need be.

    Returns
    -------
    list of Path
        ``<benchmark>-<metric>-curve.png`` (200 dpi) and ``.pdf`` for every metric that has a curve. Panels follow each
        other downwards, as in Figures 4.1 and B.1 of Brownlie (2022). The printed values, which are those at the end
        of a stream, stand beside the last checkpoint. The same rows give the same bytes under one version of
        matplotlib.
    """
    groups: dict[str, list[Curve]] = {}
    for curve in curves(benchmark, rows):
        groups.setdefault(curve.metric, []).append(curve)
    names = {metric: f"{benchmark.name}-{metric}-curve" for metric in groups}
    return save({names[metric]: partial(_figure, benchmark, own) for metric, own in groups.items()}, folder)


def _point(seen: int, values: Values) -> tuple[float | None, ...]:
    return seen, *summary("mean", values[np.isfinite(values)])


def _figure(benchmark: Benchmark, drawn: Sequence[Curve]) -> "Figure":
    from matplotlib.figure import Figure

    by_dataset: dict[str, list[Curve]] = {}
    for curve in drawn:
        by_dataset.setdefault(curve.dataset, []).append(curve)
    lines = 1 if len(by_dataset) <= MAX_COLUMNS else max(LINES, math.ceil(len(by_dataset) / MAX_COLUMNS))
    columns = math.ceil(len(by_dataset) / lines)
    size = max(WIDTH * columns + 0.4, MIN_WIDTH), HEIGHT * lines + 1.4
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    panels = figure.subplots(lines, columns, sharex=True, sharey="row", squeeze=False)
    looks, printed = _looks(benchmark), paper_values(benchmark.papers)
    for panel, (dataset, own) in zip(panels.T.ravel(), by_dataset.items(), strict=False):
        panel.set_title(dataset, fontsize=10, fontweight="bold", loc="left")
        _fill(panel, own, looks)
        _print(panel, own, looks, printed)
    _dress(panels, len(by_dataset))
    what = f"mean ± SE over {benchmark.splits} splits; solid: online, dashed: batch fits"
    figure.suptitle("\n".join((benchmark.title, heading(info(drawn[0].metric)), what)), fontsize=11, x=0.01, ha="left")
    _legend(figure, looks, drawn)
    return figure


def _dress(panels: "NDArray[Any]", used: int) -> None:
    """Scale and label the first panels, from the top downwards, and remove the others."""
    ordered = panels.T.ravel()
    for panel in ordered[used:]:
        panel.remove()
    for panel in ordered[:used]:
        panel.set(xscale="log", yscale="log")
        panel.grid()
        panel.tick_params(which="both", length=0)
        panel.spines[:].set_visible(False)
    for panel in (*panels[-1, :-1], ordered[used - 1]):  # the lowest of each column
        panel.set_xlabel("observations", color=QUIET)
        panel.tick_params(labelbottom=True)
    for panel in panels[:, 0]:
        low, high = panel.get_ylim()
        label_logs(panel.yaxis, high / low)


def _looks(benchmark: Benchmark) -> dict[str, dict[str, Any]]:
    """Give each entry a colour, and a line that tells online estimators from batch fits."""
    online = {name: entry.method.name.startswith("online-") for name, entry in benchmark.entries.items()}
    return {
        name: {"color": color, "linestyle": ONLINE if online[name] else BATCH}
        for name, color in zip(online, cycle(COLORS), strict=False)
    }


def _fill(panel: "Axes", own: Sequence[Curve], looks: Looks) -> None:
    for curve in own:
        look = looks[curve.entry]
        panel.plot(curve.observations, curve.mean, **DOTS, **look)
        ends = curve.mean - curve.se, curve.mean + curve.se
        panel.fill_between(curve.observations, *ends, color=look["color"], alpha=0.22, linewidth=0)


def _print(panel: "Axes", own: Sequence[Curve], looks: Looks, printed: Mapping[Key, PaperValue]) -> None:
    """Mark the printed values beside the last checkpoint, from left to right, as they may lie close together."""
    place = max(curve.observations[-1] for curve in own)
    for curve in own:
        value = printed.get((curve.dataset, curve.entry, curve.metric, "mean"))
        if value is not None:
            place *= BESIDE
            style = PRINTED | {"color": looks[curve.entry]["color"]}
            panel.errorbar([place], [value.value], yerr=value.stderr, linestyle="none", elinewidth=1, **style)


def _legend(figure: "Figure", looks: Looks, drawn: Sequence[Curve]) -> None:
    from matplotlib.lines import Line2D

    names = [name for name in looks if name in {curve.entry for curve in drawn}]
    handles = [Line2D([], [], label=name, **DOTS, **looks[name]) for name in names]
    if any(panel.containers for panel in figure.axes):
        handles.append(Line2D([], [], linestyle="none", label="paper, whole stream", **PRINTED | {"color": QUIET}))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, handlelength=2.6)
