"""Pictures: smaller files, and figures that a notebook shows."""

import io
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bdl.reports.layout import Section


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
    return round(96 * figure.get_figwidth()), f"data:image/png;base64,{b64encode(stream.getvalue()).decode()}"
