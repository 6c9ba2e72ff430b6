"""What becomes of figures: drawn in the house style with a remark, written to files, or shown by a notebook."""

import io
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from html import escape
from pathlib import Path
from re import sub
from textwrap import shorten
from typing import TYPE_CHECKING

from bdl.reports.drawing import METADATA, STYLE, Drawings, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bdl.reports.layout import Section


REMARK = 36
"""Letters of a remark an inch of a figure's width, about three lines; tables have all of it."""
_remark = ContextVar("_remark", default="")


@contextmanager
def remarked(text: str) -> Iterator[None]:
    """Put a text below the title of every figure that is drawn within the block."""
    before = _remark.set(text)
    try:
        yield
    finally:
        _remark.reset(before)


def drawn(draw: "Callable[[], Figure]") -> "Figure":
    """Draw a figure in the house style, with its remark."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.style import context

    with context(["default", STYLE]):
        figure = draw()
        _entitle(figure)
        FigureCanvasAgg(figure)
        return figure


def _entitle(figure: "Figure") -> None:
    """Put the remark below the title, cut if long, and let the figure grow by lines that were broken or are new.

    So panels keep their size.
    """
    given = figure.get_suptitle()
    planned = figure.suptitle(given, fontsize=11, wrap=False).get_window_extent().height
    remark = shorten(_remark.get(), int(REMARK * figure.get_figwidth()), placeholder=" ...")
    added = title(figure, given, remark).get_window_extent().height - planned
    figure.set_figheight(figure.get_figheight() + added / figure.dpi)


def save(drawings: Drawings, folder: Path, pdf: bool = True) -> list[Path]:
    """Draw figures in the house style; write each as PNG (200 dpi), and as PDF, under its name, made fit for a file."""
    from matplotlib.style import context

    folder.mkdir(parents=True, exist_ok=True)
    paths, suffixes = list[Path](), [suffix for suffix in METADATA if pdf or suffix != "pdf"]
    for name, draw in drawings.items():
        figure, own = drawn(draw), {suffix: folder / f"{file_name(name)}.{suffix}" for suffix in suffixes}
        with context(["default", STYLE]):
            for suffix, path in own.items():
                figure.savefig(path, dpi=200, metadata=METADATA[suffix])
        reduce_colours(own["png"])
        paths += own.values()
    return paths


def file_name(name: str) -> str:
    """Make a name fit for a file: a data set may be called by its path."""
    return sub(r"[^\w.=,+-]+", "_", name)


def reduce_colours(png: Path) -> None:
    """Keep 256 colours of a picture, which halves its file or better; the PDF beside it has all of them."""
    from PIL import Image

    with Image.open(png) as picture:
        dpi, small = picture.info["dpi"], picture.convert("RGB").quantize(256)
    small.save(png, optimize=True, dpi=dpi)


class Figures(dict[str, "Figure"]):
    """Figures by name; a notebook shows all of them."""

    def _repr_html_(self) -> str:
        return "".join(
            f'<img alt="figure" width="{width}" src="{source}">' for width, source in map(_source, self.values())
        )


def tables_html(tables: Sequence["Section"], remark: str) -> str:
    """Write tables as HTML, each under its title, below a remark."""
    above = f"<p><strong>{escape(remark)}</strong></p>" if remark else ""
    return above + "".join(
        f"<p><strong>{escape(each.title)}</strong></p>{each.table.to_html(index=False, border=0)}" for each in tables
    )


def _source(figure: "Figure") -> tuple[int, str]:
    """Return the width of a figure, in dots of which 96 are an inch, and the figure as a data URI."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=144)
    return round(96 * figure.get_figwidth()), data_uri(stream)


def data_uri(png: io.BytesIO) -> str:
    """Write a picture as an address that has all of it."""
    return f"data:image/png;base64,{b64encode(png.getvalue()).decode()}"
