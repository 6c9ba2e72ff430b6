"""Compact tables for a terminal: what they show, and that no cell of a published table is broken."""

import io
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from bdl.reports.comparison import compare_with_papers
from bdl.reports.layout import estimate_text, printed_text
from bdl.reports.overview import SIGNS, Overview, count_verdicts, find_sign

from .conftest import make_benchmark, make_note, make_trials, three

ROOT = Path(__file__).parents[2]
TRACKED = subprocess.run(
    ["git", "ls-files", "results/*table.json"],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
)
TABLES = sorted(ROOT / line for line in TRACKED.stdout.splitlines())
SHOW = """
import fcntl, struct, sys, termios
from pathlib import Path
from bdl.stored_results.loading import load_results
from bdl.cli.terminal import make_console
from bdl.publishing.run_tables import compare_with_print, summarise_tables
from bdl.spec import load_request
widths = [int(word) for word in sys.argv[1].split()]
for folder in sys.argv[2:]:
    loaded = load_results(load_request(*folder.split("/")), Path("results"))
    tables = summarise_tables(loaded, table_entries=compare_with_print(loaded))
    for width in widths:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
        print("terminal", width)
        make_console().print(tables)
"""
"""A program that prints tables to a terminal of one width after the other."""


@pytest.fixture
def cells():
    rows = [
        make_trials("energy", "vifa-lr", three(2.57)),
        make_trials("yacht", "vifa-lr", three(3.0)),
        make_trials("yacht", "vifa-nn", three(2.4)),
    ]
    notes = [make_note("Timed elsewhere.", entry="vifa-lr")]
    return compare_with_papers(make_benchmark(notes=notes), pd.concat(rows))


def lines_of(overview, width=80):
    console = Console(width=width, file=io.StringIO(), color_system=None, markup=False)
    console.print(overview)
    return console.file.getvalue().splitlines()


def test_each_verdict_has_a_sign_that_every_terminal_has():
    assert len({*SIGNS.values()}) == len(SIGNS)
    assert all(len(sign) == 1 and sign.isascii() for sign in SIGNS.values())
    assert find_sign("differs, cause known") == "!"
    assert find_sign("no paper value") == find_sign("withheld") == find_sign("13x faster") == ""


def test_a_printed_number_that_is_compared_twice_counts_once(cells):
    (first, *_) = [cell for cell in cells if find_sign(cell.verdict)]
    word = first.verdict.partition(",")[0]
    assert count_verdicts([first, replace(first, counted=False)]) == {word: 1}
    text = " ".join(lines_of(Overview([replace(first, counted=False)])))
    assert f"{find_sign(first.verdict)} {word} 0 (docs/verdicts.md; a printed number" in text


def test_a_row_has_data_set_method_ours_printed_and_sign(cells):
    nmll = [cell for cell in cells if cell.metric == "nmll"]
    first = nmll[0]
    row = next(line for line in lines_of(Overview(nmll)) if line.startswith("energy"))
    assert row.split() == [
        "energy",
        "vifa-lr",
        *estimate_text(first).split(),
        *printed_text(first).split(),
        find_sign(first.verdict),
    ]


def test_names_above_their_rows_make_a_wide_table_fit(cells):
    nmll = [replace(cell, dataset=40 * "d") for cell in cells if cell.metric == "nmll"]
    lines = lines_of(Overview(nmll), width=50)
    assert 40 * "d" in lines
    row = next(line for line in lines if "vifa-lr" in line)
    assert estimate_text(nmll[0]) in row
    assert printed_text(nmll[0]) in row


def test_rows_without_a_printed_value_come_apart(cells):
    """With several data sets they are named, unless nothing is printed at all."""
    nmll = [cell for cell in cells if cell.metric == "nmll"]
    blank = [replace(cell, paper=None, verdict="no paper value") for cell in nmll]
    some = [
        new if cell.method == "vifa-nn" else cell for cell, new in zip(nmll, blank, strict=True)
    ]
    text = "\n".join(lines_of(Overview(some)))
    assert "rows without a printed value (vifa-nn)" in text
    assert estimate_text(some[-2]) not in text
    yacht = [cell for cell in some if cell.dataset == "yacht"]
    lines = lines_of(Overview(yacht))
    apart = lines.index("not in a paper:")
    assert estimate_text(yacht[-2]) in lines[apart + 1]
    text = "\n".join(lines_of(Overview(blank)))
    assert all(estimate_text(cell) in text for cell in blank if cell.statistic == "mean")
    assert "rows without" not in text


def test_notes_are_counted_or_written(cells):
    counted, written = (
        " ".join(lines_of(Overview(cells, with_notes=with_notes))) for with_notes in (False, True)
    )
    assert "Timed elsewhere." not in counted
    assert "--notes adds" in counted
    assert "Timed elsewhere." in written
    assert "vifa-lr¹" in written


def test_rows_that_were_not_run_have_a_star(cells):
    text = "\n".join(lines_of(Overview(cells, published={"vifa-nn"})))
    assert "vifa-nn *" in text
    assert "* Not run here: published rows of 3 splits." in text


def show_in_terminal(widths, paths):
    """Return the lines that tables write to a terminal, by its width."""
    reader, terminal = pty.openpty()
    environment = {name: os.environ[name] for name in os.environ if name != "COLUMNS"}
    folders = [str(path.parent.relative_to(ROOT / "results")) for path in paths]
    program = subprocess.Popen(
        [sys.executable, "-c", SHOW, " ".join(map(str, widths)), *folders],
        stdout=terminal,
        cwd=ROOT,
        env=environment | {"NO_COLOR": "1", "TERM": "xterm"},
    )
    os.close(terminal)
    chunks = []
    with suppress(OSError):  # the program has ended
        while chunk := os.read(reader, 65536):
            chunks.append(chunk)
    os.close(reader)
    assert program.wait() == 0
    lines = {width: [] for width in widths}
    text = re.sub(r"\x1b\[[0-9;]*m", "", b"".join(chunks).decode())  # bold and dim
    for line in text.splitlines():
        if line.startswith("terminal "):
            width = int(line.split()[1])
        else:
            lines[width].append(line)
    return lines


def rows_of(lines):
    """List the rows of tables: lines of cells, which have two spaces or more between them."""
    return [" ".join(line.split()) for line in lines if "  " in line.strip()]


@pytest.mark.slow
def test_no_cell_of_a_published_table_is_broken_in_a_terminal():
    """On 400 columns none is; on fewer, data sets may stand above their rows, and nothing else differs."""
    assert len(TABLES) > 30
    lines = show_in_terminal((80, 100, 140, 400), TABLES)
    whole = rows_of(lines.pop(400))
    for columns, narrow in lines.items():
        assert max(map(len, narrow)) <= columns
        rows = rows_of(narrow)
        assert len(rows) == len(whole)
        assert [row for row, text in zip(rows, whole, strict=True) if not text.endswith(row)] == []


def test_the_main_table_is_at_most_sixty_lines_of_eighty_columns():
    (path,) = (path for path in TABLES if path.parent.name == "uci-regression")
    (lines,) = show_in_terminal((80,), [path]).values()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 60


def test_a_pipe_is_as_wide_as_columns_says():
    words = [sys.executable, "-c", "from bdl.cli import main; main()", "table", "uci-regression"]
    for columns, width in (("80", 80), ("", 120)):
        environment = os.environ | {"COLUMNS": columns}
        shown = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, check=True)
        lines = shown.stdout.decode().splitlines()
        assert width - 30 < max(map(len, lines)) <= width
