"""Adds the posteriors of a run that was repeated to published rows, where its scores are those that are published.

Rows that were published before posteriors travelled keep their numbers, times and origin. A cell gets its posteriors if
every split of it was made again under today's identity, and each score came out the same, but for what rounding does on
another processor (the rule of ``stamp_published.py``). It then has today's identity, also if it had none. What came out
otherwise, or was not made again, stays as it is and is named. After that, scores that were added to the benchmark's
file come from ``bdl-bench run NAME --published``, without training::

    bdl-bench run sgd-posterior --results /tmp/again
    python scripts/attach_posteriors.py results/sgd-posterior /tmp/again/sgd-posterior

Exit code 1 if a cell got none.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pandas as pd
from stamp_published import SAME, cells_of_published, worst

from bdl.archive import ResultsFolder
from bdl.archive.frames import STORE
from bdl.archive.posteriors import Contents, read_posteriors, write_posteriors
from bdl.execution.scoring import computed
from bdl.plan import Cell, fit_hash, joint_hash, score_hash
from bdl.publishing.provenance import write_provenance
from bdl.store import artefacts
from bdl.store.store import Store


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("published", type=Path, help="folder of published rows, results/<benchmark>")
    parser.add_argument("repeated", type=Path, nargs="+", help="folders of runs with a store, or of parts")
    given = parser.parse_args(arguments)
    with ResultsFolder(given.published) as here:
        provenance = here.provenance
    contents: dict[str, dict[int, bytes]] = {
        label: {**own} for label, own in read_posteriors(given.published, provenance).items()
    }
    lacking = 0
    with ExitStack() as stack:
        stores = [stack.enter_context(Store(folder / STORE)) for folder in given.repeated]
        for cell, rows in cells_of_published(given.published):
            found = dict(_artefacts(cell, rows, stores))
            if set(found) != set(rows.split):
                lacking += 1
                print(f"{cell.label}: {len(found)} of {len(rows)} splits were made again with the same scores")
                continue
            contents[cell.label] = found
            provenance["fit_hashes"][cell.label] = fit_hash(cell)
            scores = [metric for metric in computed(cell) if str(metric) in rows]
            provenance["score_hashes"][cell.label] = joint_hash(score_hash(cell, metric) for metric in scores)
    _write(contents, provenance, given.published)
    return 1 if lacking else 0


def _write(contents: Contents, provenance: dict[str, object], folder: Path) -> None:
    known = write_posteriors(contents, folder)
    write_provenance(provenance | {"posteriors": known}, folder)
    print(f"{folder}: {sum(map(len, contents.values()))} posteriors, {json.dumps(known)}")


def _artefacts(cell: Cell, rows: pd.DataFrame, stores: Sequence[Store]) -> Iterator[tuple[int, bytes]]:
    """Yield the split and the artefact of each fit that was made again and has the published scores."""
    published = {int(row["split"]): row for row in rows.to_dict("records")}
    for store in (own for own in stores if own.fit_hash(cell.key) == fit_hash(cell)):
        for row in store.rows("final", cell.key):
            if row.split in published and row.artefact:
                before = published[row.split]
                pairs = {
                    name: [float(before[name]), value]
                    for name, value in row.metrics.items()
                    if name in before and name != "runtime" and value is not None and not pd.isna(before[name])
                }
                if pairs and max(worst(pairs).values(), default=0.0) <= SAME:
                    yield row.split, artefacts.content(store.posteriors, row.artefact)


if __name__ == "__main__":
    raise SystemExit(main())
