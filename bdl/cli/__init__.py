"""The command line, `bdl-bench`."""

import sys


def main() -> None:
    """Run the command line, and exit with its code.

    0 done, 1 fits failed, 2 bad input, 3 a fault of this program, 130 interrupted.
    """
    from bdl.cli import terminal
    from bdl.runtime import keep_pages, wait_briefly

    terminal.prepare_streams()
    wait_briefly()
    keep_pages()
    from bdl.cli.commands import app

    sys.exit(terminal.run_to_exit_code(lambda: app(prog_name="bdl-bench", standalone_mode=False)))
