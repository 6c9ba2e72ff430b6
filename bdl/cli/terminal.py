"""Output and end of a command: an exit code with the reason, at most one line on stderr."""

import errno
import io
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from bdl.errors import InputError, abbreviate, escape_unprintable

DONE, FAILED_FITS, BAD_INPUT, INTERNAL, INTERRUPTED = 0, 1, 2, 3, 130

_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)
_PATH_ERRORS = (
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
)
"""Errors of a path in the input, rather than of the program."""
_MESSAGE_CHARACTERS = 1500
"""Characters of a message."""


class _ClosableOutput(io.TextIOWrapper):
    """Standard output whose reader may go away: the rest is dropped, and the work goes on."""

    def write(self, text: str, /) -> int:
        """Write; once the reader is gone, drop the text."""
        try:
            return super().write(text)
        except BrokenPipeError:
            self.to_nowhere()
            return len(text)

    def flush(self) -> None:
        """Flush; once the reader is gone, drop the text."""
        try:
            super().flush()
        except BrokenPipeError:
            self.to_nowhere()

    def to_nowhere(self) -> None:
        """Drop the buffered text, and all that follows."""
        null_device = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_device, self.fileno())
        os.close(null_device)
        super().flush()


def prepare_streams() -> None:
    """Make standard output and error safe to write to.

    A closed stream goes nowhere, a character that the encoding lacks becomes a question mark, and
    a reader that goes away ends nothing.
    """
    for name in ("stdout", "stderr"):
        stream: TextIO | None = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif type(stream) is io.TextIOWrapper:
            stream.flush()
            encoding, lines = stream.encoding, stream.line_buffering
            replacement = _ClosableOutput(
                stream.detach(), encoding=encoding, errors="replace", line_buffering=lines
            )
            setattr(sys, name, replacement)


def make_console() -> Console:
    """Make a console for tables and lines, as wide as the terminal.

    Without one it is as wide as the variable COLUMNS says, or has 120 columns.

    Mark-up and emoji are off: ``[x]`` and ``:x:`` in the names, titles and paths of users are
    printed as they are.
    """
    return Console(**console_options())


def console_options() -> dict[str, Any]:
    """Return the options of `make_console`."""
    is_sized = (sys.stdout and sys.stdout.isatty()) or os.environ.get("COLUMNS", "").isdecimal()
    return {
        "width": None if is_sized else 120,
        "markup": False,
        "emoji": False,
    }


def print_lines(lines: Iterable[str], column: int | None = None) -> None:
    """Print lines; on a terminal, one that is too long goes on below, between its words.

    What goes on below starts at a column, by default two behind the start of its line. Lines to a
    file or to another program stay whole, and so do those with a word that is too long, such as a
    path.
    """
    console = make_console()
    for line in lines:
        start, margin = _find_columns(line, column, console.width)
        width = console.width - margin
        if not console.is_terminal or any(cell_len(word) > width for word in line.split()):
            console.print(line, highlight=False, soft_wrap=True)
            continue
        pieces = Text(line[start:]).wrap(console, width)
        for number, piece in enumerate(pieces):
            head = line[:start] if number == 0 else " " * margin
            console.print(f"{head}{piece.plain.rstrip()}", highlight=False, soft_wrap=True)


def _find_columns(line: str, column: int | None, width: int) -> tuple[int, int]:
    """Return where the text of a line starts, and where it goes on below."""
    # a column of a few letters would be harder to read than no column
    if column is not None and column <= width // 2:
        return column, column
    start = len(line) - len(line.lstrip(" "))
    return start, start + 2


def print_wide(tables: RenderableType) -> None:
    """Print the tables of `bdl.reports.render.render`, however wide they are."""
    from bdl.reports.render import measure_tables

    options = console_options()
    width = max(Console(**options).width, measure_tables(tables))
    Console(**options | {"width": width}).print(tables)


def write_text(text: str) -> None:
    """Write a text for machines to standard output, as UTF-8 whatever the locale says."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(text)


def write_json(content: object) -> None:
    """Write JSON for machines to standard output."""
    write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def run_to_exit_code(command: Callable[[], int | None]) -> int:
    """Run a command, print a line on stderr if it fails, and return the exit code.

    It is 0 done, 1 failed fits (which the command itself returns), 2 bad input, 3 a fault of this
    program, 130 interrupted.
    """
    try:
        _check_encoding()
        code = command() or DONE
        sys.stdout.flush()
        return code
    except InputError as error:
        return _end_with_message(_shorten(str(error)), BAD_INPUT)
    except KeyboardInterrupt:
        return _end_with_message("interrupted", INTERRUPTED)
    except SystemExit as stop:
        if _is_from_typer(stop.__traceback__):  # completions for a shell
            return int(stop.code or DONE)
        caller = _last_frame(stop.__traceback__)
        return _end_with_message(
            f"{caller} called sys.exit({stop.code}) and ended the command", BAD_INPUT
        )
    except OSError as error:
        if error.errno in _DISK_FULL_ERRORS:
            file = f" for {error.filename}" if error.filename else ""
            return _end_with_message(
                f"no space left on the disk{file}; free some, and the same command goes on",
                BAD_INPUT,
            )
        if error.errno in _PATH_ERRORS and error.filename:
            return _end_with_message(
                f"{abbreviate(os.fsdecode(error.filename))}: {error.strerror}; mend that, or give "
                "another path",
                BAD_INPUT,
            )
        return _report_fault(error)
    except Exception as error:
        # A usage error is a class of click, or of the copy of click that typer may bring: tell it
        # by its method rather than by its type.
        usage = getattr(error, "format_message", None)
        return _report_fault(error) if usage is None else _report_usage(error, usage())


def _check_encoding() -> None:
    for word in sys.argv[1:]:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise InputError(f"{abbreviate(ascii(word))}: not UTF-8; write it in UTF-8") from None


def _report_usage(error: Exception, message: str) -> int:
    if message:
        return _end_with_message(_shorten(_with_hint(error, message.rstrip("."))), BAD_INPUT)
    getattr(error, "show", str)()
    return BAD_INPUT


def _with_hint(error: Exception, message: str) -> str:
    """Add to a usage error the option that was meant, or the command that lists all options."""
    context = getattr(error, "ctx", None)
    if context is None or message.endswith("?"):
        return message
    option = getattr(error, "option_name", None)
    if option:
        options = [name for parameter in context.command.params for name in parameter.opts]
        candidates = get_close_matches(option, options, n=2, cutoff=0.6)
        if candidates:
            return f"no such option: {option}; did you mean {' or '.join(candidates)}?"
    return f"{message}; see: {context.command_path} --help"


def _report_fault(error: Exception) -> int:
    text = "".join(traceback.format_exception(error))
    summary = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    try:
        handle, path = tempfile.mkstemp(prefix="bdl-bench-", suffix=".log")
        with os.fdopen(handle, "w", encoding="utf-8") as log:
            log.write(f"{' '.join(sys.argv)}\n\n{text}")
    except OSError:
        return _end_with_message(f"a fault of this program: {summary}\n{text}", INTERNAL)
    return _end_with_message(
        f"a fault of this program: {summary}; the traceback is in {path}", INTERNAL
    )


def _end_with_message(message: str, code: int) -> int:
    line = f"bdl-bench: {message}"
    if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
        line = f"\033[31m{line}\033[0m"  # red
    with suppress(OSError):  # standard error may be a file on a full disk
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    try:
        sys.stdout.flush()
    except OSError:
        # drop the text, or Python flushes it again as it ends, and exits with a code of its own
        if isinstance(sys.stdout, _ClosableOutput):
            sys.stdout.to_nowhere()
    return code


def _shorten(message: str) -> str:
    """Shorten a message, which may repeat any input, to one line of bounded length."""
    if not message.isprintable():
        message = escape_unprintable(" ".join(message.split()))
    line = message
    if len(line) <= _MESSAGE_CHARACTERS:
        return line
    return f"{line[: _MESSAGE_CHARACTERS // 2]} ... {line[-_MESSAGE_CHARACTERS // 4 :]}"


def _is_from_typer(trace: TracebackType | None) -> bool:
    if trace is None:
        return False
    while trace.tb_next:
        trace = trace.tb_next
    module = str(trace.tb_frame.f_globals.get("__name__"))
    return module.partition(".")[0] in ("typer", "click")


def _last_frame(trace: TracebackType | None) -> str:
    frames = traceback.extract_tb(trace)
    return f"{frames[-1].filename}, line {frames[-1].lineno}," if frames else "a component"
