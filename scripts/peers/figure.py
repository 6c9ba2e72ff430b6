"""The figure of `bench_methods.py`: a panel or two for each part that was measured."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bdl.reports.drawing import (
    COLORS,
    INK,
    METADATA,
    OUR_MARK,
    PAPER_MARK,
    STYLE,
    label_log_axis,
)
from peers.gradients import GradientPoint
from peers.methods import LIMITS, REFERENCE, MethodCost
from peers.slang_scaling import Sizes, SlangPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Panel = Callable[["Axes"], None]
_WIDTH, _HEIGHT, _COLUMNS = 4.2, 3.2, 2
_MARKERS = "osD^v"


class Measured(NamedTuple):
    """The parts; one that was not measured is empty."""

    costs: Mapping[str, MethodCost] = {}
    gradients: Sequence[GradientPoint] = ()
    slang: Sequence[SlangPoint] = ()


def draw(file: Path, measured: Measured, sizes: Sizes) -> None:
    """Draw what was measured, side by side."""
    import matplotlib
    from matplotlib.figure import Figure

    panels = list(_panels(measured, sizes))
    columns = min(len(panels), _COLUMNS)
    rows = -(-len(panels) // columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(_WIDTH * columns, _HEIGHT * rows), layout="constrained")
        for place, panel in enumerate(panels, start=1):
            axes = figure.add_subplot(rows, columns, place)
            axes.grid(True)
            axes.spines[["top", "right"]].set_visible(False)
            panel(axes)
        figure.savefig(file, dpi=150, metadata=METADATA.get(file.suffix[1:]))


def _panels(measured: Measured, sizes: Sizes) -> Iterator[Panel]:
    if measured.costs:
        yield partial(_methods, measured.costs)
    if measured.gradients:
        yield partial(_gradients, measured.gradients)
    if not measured.slang:
        return
    ranks = [
        point
        for point in measured.slang
        if point.hidden == sizes.paper and point.rank in sizes.ranks
    ]
    dims = [point for point in measured.slang if point.hidden in sizes.hidden]
    # part of the memory is constant: what is linear is a straight line on linear axes only
    for value, title, scale in (
        ("seconds", "Seconds per update of SLANG", "log"),
        ("peak_gb", "Peak memory of SLANG, GB", "linear"),
    ):
        by_rank = {f"D = {ranks[0].dim:,}": [(p.rank, getattr(p, value)) for p in ranks]}
        by_dim = {
            f"L = {rank}": [(p.dim, getattr(p, value)) for p in dims if p.rank == rank]
            for rank in sizes.hidden_ranks
        }
        yield partial(_lines, by_rank, "rank L", title, scale)
        yield partial(_lines, by_dim, "parameters D", title, scale)


def _methods(costs: Mapping[str, MethodCost], axes: "Axes") -> None:
    names = list(costs)
    updates, gradients = (
        [getattr(cost, field) for cost in costs.values()] for field in ("update_ratio", "ratio")
    )
    # the larger and open marker stays visible where both are the same
    axes.plot(
        updates, names, **PAPER_MARK | {"markersize": 11}, linestyle="none", label="an update"
    )
    axes.plot(gradients, names, **OUR_MARK, linestyle="none", label="a gradient")
    limits = {name: limit for name, limit in LIMITS.items() if name in costs}
    axes.plot(
        list(limits.values()),
        list(limits),
        "|",
        color=INK,
        markersize=16,
        label="limit for a gradient",
    )
    axes.margins(y=0.1)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_title(f"Cost relative to {REFERENCE}")
    axes.legend(fontsize=7, ncol=3, loc="upper center", bbox_to_anchor=(0.5, -0.1))


def _gradients(points: Sequence[GradientPoint], axes: "Axes") -> None:
    rows = sorted({point.examples for point in points})
    series = {
        f"M = {count}": [
            (p.dim, p.ratio) for p in points if p.examples == count and p.ratio is not None
        ]
        for count in rows
    }
    axes.axhline(1, color=INK, linewidth=0.8)
    _lines(series, "parameters D", "Time with the matrix / with outer products", "log", axes)


def _lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    xlabel: str,
    title: str,
    scale: str,
    axes: "Axes",
) -> None:
    looks = zip(_MARKERS, COLORS, series.items(), strict=False)
    for marker, color, (name, values) in looks:
        look: dict[str, Any] = {"marker": marker, "color": color, "markersize": 4}
        axes.plot(*zip(*values, strict=True), **look, label=name)
    axes.set_xscale(scale)
    axes.set_yscale(scale)
    if scale == "log":
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            label_log_axis(axis, high / low)
    axes.set_xlabel(xlabel)
    axes.set_title(title)
    axes.legend(fontsize=7)
