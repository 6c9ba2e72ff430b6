"""``python -m bdl`` is ``bdl-bench``."""

from bdl.cli import main

main()
