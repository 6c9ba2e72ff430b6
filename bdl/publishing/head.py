"""Tables that say at their head what they are not."""

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.text import Text

from bdl.reports import Cell, render
from bdl.reports.render import markdown


def headed(cells: Sequence[Cell], format: str, remark: str) -> RenderableType:
    """Render a comparison below a remark; formats that have no head have it among the notes of every cell.

    Parameters
    ----------
    cells, format
        As `bdl.reports.render` takes them; so are the errors.
    remark
        A sentence; empty for the table alone.
    """
    if not remark:
        return render(cells, format)
    if format == "rich":
        return Group(Text(remark, style="bold yellow"), Text(), render(cells, format))
    if format == "markdown":
        return f"**{markdown(remark)}**\n\n{render(cells, format)}"
    return render([replace(cell, note="\n".join(filter(None, (remark, cell.note)))) for cell in cells], format)
