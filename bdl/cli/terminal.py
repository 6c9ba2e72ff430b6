"""How a command ends: with an exit code that says why, and at most one line on stderr."""

import errno
import io
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console

from bdl.errors import InputError, short

DONE, FAILED_FITS, BAD_INPUT, INTERNAL, INTERRUPTED = 0, 1, 2, 3, 130

_FULL = (errno.ENOSPC, errno.EDQUOT)
_PATHS = (
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
)
"""What is wrong with a path that was given, rather than with the program."""
_LONGEST = 1500
"""Characters of a message."""


class _Patient(io.TextIOWrapper):
    """Standard output that whoever reads it may close: what follows is written nowhere, and work goes on."""

    def write(self, text: str, /) -> int:
        """Write, and notice on the next flush that nobody reads."""
        try:
            return super().write(text)
        except BrokenPipeError:
            self.to_nowhere()
            return len(text)

    def flush(self) -> None:
        """Flush; from the first time that nobody reads on, into nothing."""
        try:
            super().flush()
        except BrokenPipeError:
            self.to_nowhere()

    def to_nowhere(self) -> None:
        """Drop what is not written yet, and all that follows."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
        super().flush()


def prepare() -> None:
    """Make standard output and error fit to be written to.

    One that is closed is nowhere, a character that its encoding lacks is a question mark, and one
    that is closed by its reader ends nothing.
    """
    for name in ("stdout", "stderr"):
        stream: TextIO | None = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif type(stream) is io.TextIOWrapper:
            stream.flush()
            encoding, lines = stream.encoding, stream.line_buffering
            patient = _Patient(
                stream.detach(), encoding=encoding, errors="replace", line_buffering=lines
            )
            setattr(sys, name, patient)


def console() -> Console:
    """Make what shows tables and lines: as wide as the terminal, and wide enough for a table where there is none.

    Names, titles and paths come from people, so that ``[x]`` and ``:x:`` in a text are what it
    says and no mark-up.
    """
    return Console(**looks())


def looks() -> dict[str, Any]:
    """Return the options of such a console."""
    return {
        "width": None if sys.stdout and sys.stdout.isatty() else 120,
        "markup": False,
        "emoji": False,
    }


def write(text: str) -> None:
    """Write a text for machines to standard output, as UTF-8 whatever the locale says."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(text)


def write_json(content: object) -> None:
    """Write JSON for machines to standard output."""
    write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def ended(command: Callable[[], int | None]) -> int:
    """Run a command to its end, with a line on stderr where there is something to tell.

    Return the exit code.

    It is 0 done, 1 failed fits (which the command itself gives), 2 bad input, 3 a fault of this
    program, 130 interrupted.
    """
    try:
        _check_words()
        code = command() or DONE
        sys.stdout.flush()
        return code
    except InputError as error:
        return _told(_cut(str(error)), BAD_INPUT)
    except KeyboardInterrupt:
        return _told("interrupted", INTERRUPTED)
    except SystemExit as stop:
        if _by_typer(stop.__traceback__):  # completions for a shell
            return int(stop.code or DONE)
        return _told(
            f"{_place(stop.__traceback__)} called sys.exit({stop.code}) and ended the command",
            BAD_INPUT,
        )
    except OSError as error:
        if error.errno in _FULL:
            where = f" for {error.filename}" if error.filename else ""
            return _told(
                f"no space left on the disk{where}; free some, and the same command goes on",
                BAD_INPUT,
            )
        if error.errno in _PATHS and error.filename:
            return _told(
                f"{short(os.fsdecode(error.filename))}: {error.strerror}; give another path",
                BAD_INPUT,
            )
        return _internal(error)
    except Exception as error:
        # That of typer or of click, whichever typer brings, for an option or argument that cannot
        # be.
        usage = getattr(error, "format_message", None)
        return _internal(error) if usage is None else _usage(error, usage())


def _check_words() -> None:
    for word in sys.argv[1:]:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise InputError(f"{short(ascii(word))}: not UTF-8; write it in UTF-8") from None


def _usage(error: Exception, message: str) -> int:
    if message:
        return _told(_cut(_mended(error, message.rstrip("."))), BAD_INPUT)
    getattr(error, "show", str)()
    return BAD_INPUT


def _mended(error: Exception, message: str) -> str:
    """Add to a complaint about options or arguments which option is near, or where they are listed."""
    context = getattr(error, "ctx", None)
    if context is None or message.endswith("?"):
        return message
    given, options = (
        getattr(error, "option_name", None),
        [name for own in context.command.params for name in own.opts],
    )
    if given and (near := get_close_matches(given, options, n=2, cutoff=0.6)):
        return f"no such option: {given}; did you mean {' or '.join(near)}?"
    return f"{message}; see: {context.command_path} --help"


def _internal(error: Exception) -> int:
    text = "".join(traceback.format_exception(error))
    what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    try:
        handle, path = tempfile.mkstemp(prefix="bdl-bench-", suffix=".log")
        with os.fdopen(handle, "w", encoding="utf-8") as log:
            log.write(f"{' '.join(sys.argv)}\n\n{text}")
    except OSError:
        return _told(f"a fault of this program: {what}\n{text}", INTERNAL)
    return _told(f"a fault of this program: {what}; the traceback is in {path}", INTERNAL)


def _told(message: str, code: int) -> int:
    with suppress(OSError):  # a full disk, say, on which standard error is
        colour = (
            ("\033[31m", "\033[0m")
            if sys.stderr.isatty() and "NO_COLOR" not in os.environ
            else ("", "")
        )
        sys.stderr.write(f"{colour[0]}bdl-bench: {message}{colour[1]}\n")
        sys.stderr.flush()
    try:
        sys.stdout.flush()
    except OSError:  # or Python would complain of it at its end, with a code of its own
        if isinstance(sys.stdout, _Patient):
            sys.stdout.to_nowhere()
    return code


def _cut(message: str) -> str:
    """Keep a message to one line that is not too long, whatever the input that it repeats has in it."""
    line = message if message.isprintable() else " ".join(message.split())
    return (
        line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 4 :]}"
    )


def _by_typer(trace: TracebackType | None) -> bool:
    while trace and trace.tb_next:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__")).partition(".")[
        0
    ] in ("typer", "click")


def _place(trace: TracebackType | None) -> str:
    frames = traceback.extract_tb(trace)
    return f"{frames[-1].filename}, line {frames[-1].lineno}," if frames else "a component"
