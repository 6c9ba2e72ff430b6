"""All kinds of figures: names, data, drawing, and files and HTML of the drawn figures."""

import io
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from re import fullmatch, sub
from textwrap import shorten
from typing import TYPE_CHECKING, Any, NamedTuple

from bdl.reports.certainty import (
    LabelPredictions,
    coverage_drawings,
    refusal_drawings,
    selective_drawings,
)
from bdl.reports.comparison import TableEntry
from bdl.reports.cost_figures import cost_drawings, distance_drawings
from bdl.reports.curves import Curve, curve_drawings
from bdl.reports.distributions import (
    Box,
    LayerWeights,
    RankedTruth,
    box_drawings,
    truth_rank_drawings,
    weight_drawings,
)
from bdl.reports.drawing import METADATA, STYLE, Drawings, write_title
from bdl.reports.paired import PairedDifference
from bdl.reports.planes import iterate_drawings, joint_drawings, posterior_drawings
from bdl.reports.posteriors import CredibleBand, Gaussians, credible_band_drawings
from bdl.reports.scores import paired_drawings, score_drawings
from bdl.reports.standing_figure import standing_drawings
from bdl.reports.standing_tables import Standing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bdl.reports.layout import Section
    from bdl.spec import Benchmark


LETTERS_PER_INCH = 36
"""Letters of a remark for each inch of a figure's width, which is about three lines.

Tables have all of it.
"""


def draw_figure(draw: "Callable[[], Figure]", remark: str = "") -> "Figure":
    """Draw a figure in the house style, with a remark below its title, shortened if it is long.

    The figure grows by the lines of the title that were broken or are new, so that panels keep
    their size.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.style import context

    with context(["default", STYLE]):
        figure = draw()
        text = figure.get_suptitle()
        height = figure.suptitle(text, fontsize=11, wrap=False).get_window_extent().height
        letters = int(LETTERS_PER_INCH * figure.get_figwidth())
        remark_line = shorten(remark, letters, placeholder=" ...")
        growth = write_title(figure, text, remark_line).get_window_extent().height - height
        figure.set_figheight(figure.get_figheight() + growth / figure.dpi)
        FigureCanvasAgg(figure)
        return figure


def save_figures(
    drawings: Drawings, folder: Path, pdf: bool = True, remark: str = ""
) -> list[Path]:
    """Draw figures in the house style, and write each as PNG (200 dpi) and as PDF.

    Letters of a name that a file cannot have become underscores.
    """
    from matplotlib.style import context

    folder.mkdir(parents=True, exist_ok=True)
    suffixes = [suffix for suffix in METADATA if pdf or suffix != "pdf"]
    paths: list[Path] = []
    for name, draw in drawings.items():
        figure = draw_figure(draw, remark)
        file_name = sub(r"[^\w.=,+-]+", "_", name)  # a data set may be called by its path
        path_of = {suffix: folder / f"{file_name}.{suffix}" for suffix in suffixes}
        with context(["default", STYLE]):
            for suffix, path in path_of.items():
                figure.savefig(path, dpi=200, metadata=METADATA[suffix])
        reduce_colours(path_of["png"])
        paths += path_of.values()
    return paths


def reduce_colours(png: Path) -> None:
    """Reduce a picture to 256 colours, which makes its file half as large or smaller.

    The PDF of the same figure has all colours.
    """
    from PIL import Image

    with Image.open(png) as picture:
        dpi, small = picture.info["dpi"], picture.convert("RGB").quantize(256)
    small.save(png, optimize=True, dpi=dpi)


class Figures(dict[str, "Figure"]):
    """Figures by name; a notebook shows all of them."""

    def _repr_html_(self) -> str:
        return "".join(map(_figure_html, self.values()))


def tables_html(tables: Sequence["Section"], remark: str) -> str:
    """Write tables as HTML, each under its title, below a remark."""
    html = f"<p><strong>{escape(remark)}</strong></p>" if remark else ""
    for section in tables:
        html += f"<p><strong>{escape(section.title)}</strong></p>"
        html += section.table.to_html(index=False, border=0)
    return html


def _figure_html(figure: "Figure") -> str:
    """Write a figure as HTML, where an inch has 96 dots."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=144)
    return (
        f'<img alt="figure" width="{round(96 * figure.get_figwidth())}" src="{data_uri(stream)}">'
    )


def data_uri(png: io.BytesIO) -> str:
    """Encode a picture as a data URI."""
    return f"data:image/png;base64,{b64encode(png.getvalue()).decode()}"


@dataclass(frozen=True)
class FigureData:
    """A benchmark and the data of its figures, as functions of `bdl.reports` return them."""

    benchmark: "Benchmark"
    cells: Sequence[TableEntry] = ()
    differences: Sequence[PairedDifference] = ()
    curves: Sequence[Curve] = ()
    boxes: Sequence[Box] = ()
    truth_ranks: Sequence[RankedTruth] = ()
    posteriors: Sequence[Gaussians] = ()
    credible_bands: Sequence[CredibleBand] = ()
    label_predictions: Sequence[LabelPredictions] = ()
    weights: Sequence[LayerWeights] = ()
    standings: Sequence[Standing] = ()
    remark: str = ""
    """Text below the title of every figure."""


class FigureKind(NamedTuple):
    """One kind of figure."""

    needs: str
    """Field of `FigureData` without which there is nothing to draw."""
    draw: "Callable[[Benchmark, Any], Drawings]"
    """Takes that field and returns the function that draws each figure, by the name of its file.

    Names are without that of the benchmark, which comes first.
    """
    heading: str
    """Over such figures on a page."""
    files: str
    """Pattern of those names, as the table of figures in docs/spec.md has it."""

    def draws(self, name: str) -> bool:
        """Return whether the name of a figure fits the pattern, perhaps with an axis behind it."""
        return fullmatch(sub("<.*?>", ".+", self.files) + "(-.+)?", name) is not None


FIGURE_KINDS = (
    FigureKind("standings", standing_drawings, "Overall standing", "<metric>-standing"),
    FigureKind("cells", score_drawings, "Scores", "<metric>"),
    FigureKind("differences", paired_drawings, "Paired differences", "<metric>-paired"),
    FigureKind("curves", curve_drawings, "Curves", "<metric>-curve"),
    FigureKind("boxes", box_drawings, "Repeats", "<metric>-box"),
    FigureKind("truth_ranks", truth_rank_drawings, "Calibration by simulation", "sbc-<dataset>"),
    FigureKind("cells", cost_drawings, "What scores cost", "<metric>-cost"),
    FigureKind("cells", distance_drawings, "Scores and distances", "<metric>-distance"),
    FigureKind("cells", selective_drawings, "The most certain rows", "selective-<score>"),
    FigureKind("cells", coverage_drawings, "Calibration", "calibration"),
    FigureKind(
        "posteriors",
        posterior_drawings,
        "Posteriors and the truth",
        "posterior-<dataset>-<entry>",
    ),
    FigureKind(
        "posteriors",
        joint_drawings,
        "Posteriors and the truth",
        "posteriors-<dataset>",
    ),
    FigureKind(
        "posteriors",
        iterate_drawings,
        "Iterates over the truth",
        "iterates-<dataset>",
    ),
    FigureKind("credible_bands", credible_band_drawings, "Credible bands", "bands-<dataset>"),
    FigureKind(
        "label_predictions", refusal_drawings, "Predictions that may be refused", "refusal-<what>"
    ),
    FigureKind("weights", weight_drawings, "Weights", "weights-<dataset>"),
)
"""All kinds, in the order in which they are drawn and shown."""


def draw_figures(figure_data: FigureData, folder: Path, pdf: bool = True) -> list[Path]:
    """Draw all figures for which there are data.

    Files are ``<benchmark>-<name>.png`` (200 dpi) and ``.pdf``. PDF, which takes as long again,
    may be left out. The same input gives the same bytes under one
    version of matplotlib, whatever the user's own settings.
    """
    drawings = {
        f"{figure_data.benchmark.name}-{name}": draw
        for name, draw in drawings_of(figure_data).items()
    }
    return save_figures(drawings, folder, pdf, figure_data.remark)


def drawings_of(figure_data: FigureData) -> Drawings:
    """Return the function that draws each figure for which there are data, by its name.

    Names are without that of the benchmark.
    """
    drawings: dict[str, Callable[[], Figure]] = {}
    for kind in FIGURE_KINDS:
        content = getattr(figure_data, kind.needs)
        if content:
            drawings |= kind.draw(figure_data.benchmark, content)
    return drawings


def heading_of(name: str) -> str:
    """Return the heading over a figure, by the name of its file without that of the benchmark."""
    # Names that begin with a word first, since "-cost" behind it may be that of an entry, and at
    # last those of scores, which may be any.
    kinds = sorted(
        FIGURE_KINDS, key=lambda kind: (kind.files == "<metric>", kind.files.startswith("<"))
    )
    return next(kind.heading for kind in kinds if kind.draws(name))
