"""What the command lines of the scripts share."""

import argparse
from pathlib import Path

from peers.machine import cores


def plain(documentation: str) -> argparse.ArgumentParser:
    """Make a parser with the options that every script has.

    Parameters
    ----------
    documentation
        The script's docstring: a summary in one line, and details.
    """
    summary, _, details = documentation.partition("\n")
    found = argparse.ArgumentParser(
        description=summary, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument(
        "--threads", type=count, default=cores(), help=f"cores for all contenders ({cores()})"
    )
    found.add_argument("--json", type=Path, metavar="FILE", help="write the numbers")
    return found


def parser(documentation: str, *, repeats: int, epochs: int) -> argparse.ArgumentParser:
    """Make a parser with the options of scripts that train models.

    Parameters
    ----------
    documentation
        As in `plain`.
    repeats, epochs
        Defaults.
    """
    found = plain(documentation)
    found.add_argument("--trials", type=count, default=150, help="models trained together (150)")
    found.add_argument(
        "--repeats",
        type=count,
        default=repeats,
        help=f"times each contender is measured ({repeats})",
    )
    found.add_argument(
        "--epochs",
        type=count,
        default=epochs,
        help=f"epochs of a measurement, 36 minibatches each ({epochs})",
    )
    return found


def count(text: str) -> int:
    """Read a whole number from 1 up."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1 up")
    return int(text)


def number(value: float | None, digits: int, unit: str = "") -> str:
    """Format a number for a table, with a dash for what was not measured."""
    return "-" if value is None else f"{value:,.{digits}f}{unit}"


def verdict(holds: bool) -> str:
    """Return whether a limit holds."""
    return "holds" if holds else "[red]does not hold[/red]"
