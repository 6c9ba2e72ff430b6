"""Each entry held against the baseline split by split, one figure a predictive metric."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bdl.metrics import MetricInfo, info
from bdl.reports.axes import at
from bdl.reports.figures import GRID, OURS, PAPER, QUIET, mark, panels, save
from bdl.reports.inputs import Benchmark
from bdl.reports.layout import heading
from bdl.reports.statistics import Values, mean_se
from bdl.reports.swept import Mark, along
from bdl.reports.verdicts import FEWEST, reach
from bdl.reports.widening import SHADE, widen

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS: dict[str, dict[str, Any]] = {
    "better": OURS,
    "worse": PAPER | {"markerfacecolor": PAPER["color"]},
    "undecided": {**PAPER, "color": "#8c8c8c", "marker": "o"},
}
"""How a verdict is drawn; told apart by shape as well as by colour."""
WIDE = 9.0
"""Inches from which on the legend has package in one line."""


class PairedDifference(NamedTuple):
    """Mean over splits of entry minus baseline, for one metric on one dataset at one point of a sweep."""

    dataset: str
    entry: str
    metric: str
    n: int
    """Pairs: splits on which both have a finite value."""
    mean: float | None = None
    """In the metric's unit; None without a pair."""
    low: float | None = None
    """Lower end of the 95 % interval; None with fewer than two pairs."""
    high: float | None = None
    """Upper end."""
    failed: int = 0
    """Splits on which the entry failed and the baseline did not."""
    baseline_failed: int = 0
    """Splits on which the baseline failed and the entry did not."""
    point: Mapping[str, str] = {}
    """Path of each axis of a sweep to the JSON of its value; empty without a sweep."""

    @property
    def half(self) -> float | None:
        """Half the length of the interval."""
        return None if self.mean is None or self.high is None else self.high - self.mean

    @property
    def reach(self) -> float:
        """Largest distance from 0, of the interval or else of the mean."""
        return max((abs(end) for end in (self.mean, self.low, self.high) if end is not None), default=0.0)

    @property
    def verdict(self) -> str:
        """``"better"`` or ``"worse"`` than the baseline if the interval excludes 0, else ``"undecided"``.

        Also undecided are fewer than three pairs, and what speaks for the one of the two that failed where the other
        did not.
        """
        if self.low is None or self.high is None or self.n < FEWEST or self.low <= 0 <= self.high:
            return "undecided"
        if (self.high < 0) == (info(self.metric).direction == "lower"):
            return "undecided" if self.failed else "better"
        return "undecided" if self.baseline_failed else "worse"


def paired_differences(
    benchmark: Benchmark, rows: "pd.DataFrame", overlap: Mapping[str, float]
) -> list[PairedDifference]:
    """Hold every entry against the baseline, on the splits that both finished.

    Parameters
    ----------
    benchmark
        Gives the baseline, and the names and the order of metrics, datasets and entries.
    rows
        One row a trial: `dataset`, `entry`, `split`, `status` (``"ok"`` or ``"failed"``), a column a metric, and one an
        axis of the sweep.
    overlap
        Data set to its test rows per training row, if its splits share training rows; data sets that are not listed
        have independent ones.

    Returns
    -------
    list of PairedDifference
        In the order metric, then cell of the benchmark, for predictive metrics with a better and a worse and for the
        datasets on which the baseline runs; empty without a baseline. In a sweep the baseline is the one of the same
        point.

    Notes
    -----
    The interval is mean ± t s sqrt(1/n + r), with s the standard deviation of the n differences, t the quantile of
    Student's t with n - 1 degrees of freedom, and r = n_test / n_train the overlap. Splits that share training rows
    give differences that are not independent; s^2 / n would be too small a variance of their mean, and r s^2 is what
    Nadeau and Bengio add ("Inference for the generalization error", Machine Learning 52, 2003).
    """
    metrics = [name for name in benchmark.metrics if _judged(info(name))]
    against = {dataset for dataset, entry, _ in benchmark.cells if entry == benchmark.baseline}
    cells = [cell for cell in benchmark.cells if cell[0] in against and cell[1] != benchmark.baseline]
    rows = rows.reindex(columns=["dataset", "entry", *benchmark.axes, "split", "status", *metrics])
    found = []
    for metric, (dataset, entry, point) in product(metrics, cells):
        here = at(rows[rows["dataset"] == dataset], point.texts).set_index("split")
        ours, theirs = (scores(here[here["entry"] == name], metric) for name in (entry, benchmark.baseline))
        place = PairedDifference(dataset, entry, metric, 0, point=dict(point.texts))
        found.append(paired(place, ours, theirs, overlap.get(dataset, 0.0)))
    return found


def scores(rows: "pd.DataFrame", metric: str) -> "pd.Series[float]":
    """Return a metric of rows whose index is the split; NaN where a fit failed or has no finite value."""
    values = rows[metric].astype(float)
    return values.where(np.isfinite(values) & (rows["status"] == "ok"))


def paired(
    place: PairedDifference, ours: "pd.Series[float]", theirs: "pd.Series[float]", overlap: float
) -> PairedDifference:
    """Hold scores by split against others: `place` with what `paired_differences` says of them."""
    values = np.asarray(ours - theirs, dtype=np.float64)  # a split that only one of them has gives NaN
    values = values[np.isfinite(values)]
    mean, low, high = _interval(values, overlap)
    failed, other = _lost(ours, theirs), _lost(theirs, ours)
    return place._replace(n=values.size, mean=mean, low=low, high=high, failed=failed, baseline_failed=other)


def paired_figures(
    benchmark: Benchmark, rows: "pd.DataFrame", overlap: Mapping[str, float], folder: Path
) -> list[Path]:
    """Draw the paired differences: a panel a dataset, a row an entry, a figure a predictive metric.

    Those of a sweep are drawn along its first axis instead (`bdl.reports.swept`).

    Parameters
    ----------
    benchmark, rows, overlap
        As in `paired_differences`.
    folder
        Where the files go; created if need be.

    Returns
    -------
    list of Path
        ``<benchmark>-<metric>-paired.png`` (200 dpi) and ``.pdf``. Datasets without a pair are left out, and so are
        metrics without one. The same rows give the same bytes under one version of matplotlib.
    """
    groups: dict[str, list[PairedDifference]] = {}
    for difference in paired_differences(benchmark, rows, overlap):
        groups.setdefault(difference.metric, []).append(difference)
    draw = _along if benchmark.axes else _figure
    return save(
        {
            f"{benchmark.name}-{metric}-paired": partial(draw, benchmark, metric, own)
            for metric, own in groups.items()
            if any(difference.n for difference in own)
        },
        folder,
    )


def _judged(about: MetricInfo) -> bool:
    return about.kind == "predictive" and about.direction != "none"


def _lost(own: "pd.Series[float]", other: "pd.Series[float]") -> int:
    """Count the splits on which a fit failed while that of the other did not; NaN is a failed fit."""
    return len(own.index[own.isna()].intersection(other.index[other.notna()]))


def _interval(values: Values, overlap: float) -> tuple[float | None, float | None, float | None]:
    """Return the mean and the ends of its interval; None for what too few values leave open."""
    if values.size < 2:
        return (float(values[0]) if values.size else None), None, None
    mean, se = float(values.mean()), mean_se(values) * math.sqrt(1 + values.size * overlap)
    half = reach(se, values.size - 1)
    return mean, mean - half, mean + half


def _figure(benchmark: Benchmark, metric: str, differences: Sequence[PairedDifference]) -> "Figure":
    paired = dict.fromkeys(difference.dataset for difference in differences if difference.n)
    own = {name: [difference for difference in differences if difference.dataset == name] for name in paired}
    figure, axes = panels({name: [difference.entry for difference in drawn] for name, drawn in own.items()})
    for name, panel in axes.items():
        _fill(panel, own[name], benchmark.splits)
    what = f"mean difference from {benchmark.baseline} over {benchmark.splits} splits"
    lines = benchmark.title, heading(metric), what
    figure.suptitle("\n".join(lines), fontsize=11, x=0.01, ha="left")
    _legend(figure, benchmark, metric)
    return figure


def _along(benchmark: Benchmark, metric: str, differences: Sequence[PairedDifference]) -> "Figure":
    paired = {difference.dataset for difference in differences if difference.n}
    marks = [Mark(d.dataset, d.entry, d.point, d.mean, d.half) for d in differences if d.dataset in paired]
    what = f"mean difference from {benchmark.baseline} over {benchmark.splits} splits, 95 % intervals"
    title = "\n".join((benchmark.title, heading(metric), what))
    return along(benchmark, title, marks, around_zero=True)


def _fill(panel: "Axes", differences: Sequence[PairedDifference], splits: int) -> None:
    panel.axvline(0, color=QUIET, linestyle=":", linewidth=1.2, zorder=1)
    for row, difference in enumerate(differences):
        mark(panel, row, difference.mean, difference.half, LOOKS[difference.verdict])
        if difference.n < splits:
            across = panel.get_yaxis_transform()
            panel.text(1.01, row, f"n = {difference.n}", transform=across, va="center", color=QUIET, fontsize=7)
    widen(panel, [difference.reach for difference in differences if difference.reach])


def _legend(figure: "Figure", benchmark: Benchmark, metric: str) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    left, right = ("better", "worse") if info(metric).direction == "lower" else ("worse", "better")
    labels = {
        left: f"left: {left} than {benchmark.baseline}",
        "undecided": "undecided: 95 % interval holds 0, a fit failed, or n < 3",
        right: f"right: {right} than {benchmark.baseline}",
    }
    handles: list[Line2D | Patch] = [Line2D([], [], linestyle="none", label=labels[v], **LOOKS[v]) for v in labels]
    if any(panel.get_xscale() == "symlog" for panel in figure.axes):
        handles.append(Patch(facecolor=SHADE, edgecolor=GRID, label="shaded: logarithmic"))
    columns = 4 if figure.get_figwidth() > WIDE else 2
    spacing = {"handlelength": 1.2, "columnspacing": 1.6}
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, **spacing)
