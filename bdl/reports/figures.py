"""The figures that there are: what each is called, what it needs, how it is drawn, and what becomes of it."""

import io
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from re import sub
from textwrap import shorten
from typing import TYPE_CHECKING, Any, NamedTuple

from bdl.reports import Cell
from bdl.reports.certainty import Labelled, coverage_drawings, refusal_drawings, selective_drawings
from bdl.reports.curves import Curve, curve_drawings
from bdl.reports.distributions import (
    Box,
    LayerWeights,
    RankedTruth,
    box_drawings,
    truth_rank_drawings,
    weight_drawings,
)
from bdl.reports.drawing import METADATA, STYLE, Drawings, title
from bdl.reports.paired import PairedDifference
from bdl.reports.planes import iterate_drawings, joint_drawings, own_drawings
from bdl.reports.posteriors import CredibleBand, Gaussians, band_drawings
from bdl.reports.scores import paired_drawings, score_drawings
from bdl.reports.standings import Ranks, cost_drawings, distance_drawings, rank_drawings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bdl.reports.layout import Section
    from bdl.spec import Benchmark


REMARK = 36
"""Letters of a remark an inch of a figure's width, about three lines; tables have all of it."""


def drawn(draw: "Callable[[], Figure]", remark: str = "") -> "Figure":
    """Draw a figure in the house style, with a remark below its title, cut if long.

    It grows by lines of the title that were broken or are new, so that panels keep their size.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.style import context

    with context(["default", STYLE]):
        figure = draw()
        given = figure.get_suptitle()
        planned = figure.suptitle(given, fontsize=11, wrap=False).get_window_extent().height
        short = shorten(remark, int(REMARK * figure.get_figwidth()), placeholder=" ...")
        added = title(figure, given, short).get_window_extent().height - planned
        figure.set_figheight(figure.get_figheight() + added / figure.dpi)
        FigureCanvasAgg(figure)
        return figure


def save(drawings: Drawings, folder: Path, pdf: bool = True, remark: str = "") -> list[Path]:
    """Draw figures in the house style.

    Write each as PNG (200 dpi), and as PDF, under its name, made fit for a file.
    """
    from matplotlib.style import context

    folder.mkdir(parents=True, exist_ok=True)
    paths, suffixes = list[Path](), [suffix for suffix in METADATA if pdf or suffix != "pdf"]
    for name, draw in drawings.items():
        figure = drawn(draw, remark)
        fit = sub(r"[^\w.=,+-]+", "_", name)  # a data set may be called by its path
        own = {suffix: folder / f"{fit}.{suffix}" for suffix in suffixes}
        with context(["default", STYLE]):
            for suffix, path in own.items():
                figure.savefig(path, dpi=200, metadata=METADATA[suffix])
        reduce_colours(own["png"])
        paths += own.values()
    return paths


def reduce_colours(png: Path) -> None:
    """Keep 256 colours of a picture, which halves its file or better.

    The PDF beside it has all of them.
    """
    from PIL import Image

    with Image.open(png) as picture:
        dpi, small = picture.info["dpi"], picture.convert("RGB").quantize(256)
    small.save(png, optimize=True, dpi=dpi)


class Figures(dict[str, "Figure"]):
    """Figures by name; a notebook shows all of them."""

    def _repr_html_(self) -> str:
        return "".join(map(_image, self.values()))


def tables_html(tables: Sequence["Section"], remark: str) -> str:
    """Write tables as HTML, each under its title, below a remark."""
    above = f"<p><strong>{escape(remark)}</strong></p>" if remark else ""
    return above + "".join(
        f"<p><strong>{escape(each.title)}</strong></p>{each.table.to_html(index=False, border=0)}"
        for each in tables
    )


def _image(figure: "Figure") -> str:
    """Write a figure as HTML; an inch has 96 dots there."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=144)
    return (
        f'<img alt="figure" width="{round(96 * figure.get_figwidth())}" src="{data_uri(stream)}">'
    )


def data_uri(png: io.BytesIO) -> str:
    """Write a picture as an address that has all of it."""
    return f"data:image/png;base64,{b64encode(png.getvalue()).decode()}"


@dataclass(frozen=True)
class Shown:
    """What figures show: a benchmark and what is known of it, as functions of `bdl.reports` return it."""

    benchmark: "Benchmark"
    cells: Sequence[Cell] = ()
    differences: Sequence[PairedDifference] = ()
    curves: Sequence[Curve] = ()
    boxes: Sequence[Box] = ()
    truths: Sequence[RankedTruth] = ()
    posteriors: Sequence[Gaussians] = ()
    bands: Sequence[CredibleBand] = ()
    labelled: Sequence[Labelled] = ()
    weights: Sequence[LayerWeights] = ()
    ranks: Sequence[Ranks] = ()
    remark: str = ""
    """What stands below the title of every figure."""


class Kind(NamedTuple):
    """One kind of figure."""

    needs: str
    """Field of `Shown` without which there is nothing to draw."""
    draw: "Callable[[Benchmark, Any], Drawings]"
    """Takes that field and returns the names of files, behind that of the benchmark, and what
    draws each.
    """
    heading: str
    """Over such figures on a page."""
    files: str
    """Pattern of those names, as the table of figures in docs/spec.md has it."""

    @property
    def part(self) -> str:
        """What the names of such figures, and of no other heading, have behind the benchmark's."""
        return next((f"-{word}" for word in self.files.split("-") if not word.startswith("<")), "")


KINDS = (
    Kind("cells", score_drawings, "Scores", "<metric>"),
    Kind("differences", paired_drawings, "Paired differences", "<metric>-paired"),
    Kind("curves", curve_drawings, "Curves", "<metric>-curve"),
    Kind("boxes", box_drawings, "Repeats", "<metric>-box"),
    Kind("truths", truth_rank_drawings, "Calibration by simulation", "sbc-<dataset>"),
    Kind("cells", cost_drawings, "What scores cost", "<metric>-cost"),
    Kind("cells", distance_drawings, "Scores and distances", "<metric>-distance"),
    Kind("cells", selective_drawings, "The most certain rows", "selective-<score>"),
    Kind("cells", coverage_drawings, "Calibration", "calibration"),
    Kind(
        "posteriors",
        lambda _, pairs: own_drawings(pairs),
        "Posteriors and the truth",
        "posterior-<dataset>-<entry>",
    ),
    Kind(
        "posteriors",
        lambda _, pairs: joint_drawings(pairs),
        "Posteriors and the truth",
        "posteriors-<dataset>",
    ),
    Kind(
        "posteriors",
        lambda _, pairs: iterate_drawings(pairs),
        "Iterates over the truth",
        "iterates-<dataset>",
    ),
    Kind("bands", band_drawings, "Credible bands", "bands-<dataset>"),
    Kind("labelled", refusal_drawings, "Predictions that may be refused", "refusal-<what>"),
    Kind("weights", weight_drawings, "Weights", "weights-<dataset>"),
    Kind("ranks", lambda _, found: rank_drawings(found), "Ranks", "<metric>-ranks"),
)
"""All kinds, in the order in which they are drawn and shown."""


def draw_figures(shown: Shown, folder: Path, pdf: bool = True) -> list[Path]:
    """Draw all figures for which there is something to show, as ``<benchmark>-<name>.png`` (200 dpi) and ``.pdf``.

    PDF, which takes as long again, may be left out. The same input gives the same bytes under one
    version of matplotlib, whatever the user's own settings.
    """
    drawings = {
        f"{shown.benchmark.name}-{name}": draw for name, draw in drawings_of(shown).items()
    }
    return save(drawings, folder, pdf, shown.remark)


def drawings_of(shown: Shown) -> Drawings:
    """Return what draws each figure for which there is something to show, by the name behind the benchmark's."""
    kinds = [kind for kind in KINDS if getattr(shown, kind.needs)]
    drawings = (kind.draw(shown.benchmark, getattr(shown, kind.needs)) for kind in kinds)
    return {name: draw for own in drawings for name, draw in own.items()}


def heading_of(name: str) -> str:
    """Return the heading over a figure, by the part of its file's name behind the benchmark's."""
    return next(
        (kind.heading for kind in KINDS if kind.part and kind.part in name), KINDS[0].heading
    )
