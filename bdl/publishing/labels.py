"""What stored posteriors say of the labels of test rows."""

from collections.abc import Sequence
from typing import get_args

import torch

from bdl.execution.scoring import evaluation
from bdl.metrics.selective import Uncertainty, risks
from bdl.plan.cell import Cell
from bdl.posteriors.tensors import as_type
from bdl.reports.certainty import Labelled
from bdl.store import artefacts
from bdl.store.store import Store

MOST = 1_000_000
"""Parameters of a model whose predictions are made again, which takes as long as its scores do."""


def labelled(cells: Sequence[Cell], store: Store) -> list[Labelled]:
    """Predict the test rows by the stored posterior of every split, as scores do.

    This is for benchmarks with `aurc` among the metrics, and models of at most `MOST` parameters.
    """
    scored = (cell for cell in cells if any(metric.name == "aurc" for metric in cell.benchmark.metrics))
    found = []
    for cell in (cell for cell in scored if cell.problem.dim <= MOST):
        for row in (row for row in store.rows("final", cell.key) if row.artefact):
            posterior, buffers = artefacts.read(store.posteriors, str(row.artefact))
            seen = evaluation(cell, row.split, as_type(posterior, torch.float32), buffers, row.hyper)
            by_order = {by: risks(seen, by).numpy() for by in get_args(Uncertainty)}
            labels = seen.tested.y.long().numpy()
            found.append(
                Labelled(str(cell.dataset), cell.entry, seen.predictions.probabilities.numpy(), labels, by_order)
            )
    return found
