"""What the papers of a benchmark print that is not right: the sections of ``docs/errata.md`` that are about them."""

import re
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

_ABOUT = re.compile(r"<!-- papers: (.*?) -->\n*")


def errata(papers: Iterable[str]) -> str:
    """Return the sections about papers as Markdown; a section says in a comment which papers it is about.

    Parameters
    ----------
    papers
        Identifiers such as ``vifa2023``.
    """
    wanted, (_, *sections) = set(papers), re.split(r"(?m)^(?=## )", _text())
    about = ((section, _ABOUT.search(section)) for section in sections)
    chosen = (section for section, found in about if found and wanted & set(found[1].split()))
    return "".join(_ABOUT.sub("", section) for section in chosen)


def _text() -> str:
    """Read the page, which an installed package has among its own files, and a checkout among its documentation."""
    installed = files("bdl") / "errata.md"
    page = installed if installed.is_file() else Path(__file__).parents[2] / "docs" / "errata.md"
    return page.read_text(encoding="utf-8")
