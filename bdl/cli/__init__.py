"""The command line, `bdl-bench`."""

import signal
import sys


def main() -> None:
    """Run the command line, and exit with its code.

    0 done, 1 fits failed, 2 bad input, 3 a fault of this program, 130 interrupted.
    """
    from bdl.cli import terminal
    from bdl.runtime import ensure_account, keep_pages, wait_briefly

    # Schedulers and containers end a process so: it is to end as by Ctrl-C, its workers with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    terminal.prepare_streams()
    ensure_account()
    wait_briefly()
    keep_pages()
    from bdl.cli.commands import app

    sys.exit(terminal.run_to_exit_code(lambda: app(prog_name="bdl-bench", standalone_mode=False)))
