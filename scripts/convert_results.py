"""Rewrites folders of results of versions before 0.2 as run folders; others are left alone.

    python scripts/convert_results.py results

Every folder below is converted, published rows and stores. Scores stay equal to the bit.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from bdl.stored_results import legacy


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, help="a folder of results, or one above some")
    options = parser.parse_args(arguments)
    for folder in [options.results, *sorted(options.results.glob("**/"))]:
        if legacy.has_store(folder) or legacy.has_published_rows(folder):
            legacy.convert_folder(folder)
            print(folder, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
