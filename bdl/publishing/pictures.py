"""What figures show of the posteriors that a store keeps."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bdl.plan.cell import Cell
from bdl.plan.reference import known_as_functions, truth
from bdl.posteriors import Traced
from bdl.publishing.bands import bands
from bdl.publishing.labels import labelled
from bdl.reports import CredibleBand, Gaussians
from bdl.reports.certainty import Labelled
from bdl.reports.distributions import LayerWeights
from bdl.reports.posteriors import Array
from bdl.store import artefacts
from bdl.store.store import Store


class Pictures(NamedTuple):
    """What figures show of stored posteriors."""

    pairs: Sequence[Gaussians] = ()
    bands: Sequence[CredibleBand] = ()
    labelled: Sequence[Labelled] = ()
    weights: Sequence[LayerWeights] = ()


def pictures(cells: Sequence[Cell], store: Store) -> Pictures:
    """Gather what figures show of the stored posteriors, of data sets all of whose posteriors are stored."""
    kept = of_whole_sets(cells, store)
    return Pictures(posteriors(kept, store), bands(kept, store), labelled(kept, store), layer_weights(kept, store))


def of_whole_sets(cells: Sequence[Cell], store: Store) -> list[Cell]:
    """Leave out data sets with fits that were imported without their posteriors."""
    lacking = {
        cell.dataset
        for cell in cells
        if any(status == "ok" and not artefact for _, status, artefact in store.artefacts(cell.key))
    }
    return [cell for cell in cells if cell.dataset not in lacking]


def posteriors(cells: Sequence[Cell], store: Store) -> list[Gaussians]:
    """Pair the stored posterior of each cell's first successful split with its reference, where it has one."""
    found = []
    for cell in (cell for cell in cells if cell.benchmark.measures_distances):
        kept = [(split, artefact) for split, _, artefact in store.artefacts(cell.key) if artefact]
        reference = truth(cell, kept[0][0]) if kept and not known_as_functions(cell) else None
        if reference is not None:
            posterior, _ = artefacts.read(store.posteriors, kept[0][1])
            moments = [part.double().numpy() for part in (posterior.mean(), posterior.covariance())]
            known = reference.mean.numpy(), reference.covariance.numpy()
            density = _on_arrays(reference.log_density)
            pair = Gaussians(str(cell.dataset), cell.entry, moments[0], moments[1], known[0], known[1], density)
            if isinstance(posterior, Traced):
                pair = pair._replace(start=posterior.start.double().numpy(), path=posterior.path.double().numpy())
            found.append(pair)
    return found


def layer_weights(cells: Sequence[Cell], store: Store) -> list[LayerWeights]:
    """Gather the weights that a benchmark's first `weights_below` counts, of each cell's first successful split."""
    found = []
    for cell in cells:
        counted = next((metric.build() for metric in cell.benchmark.metrics if metric.name == "weights_below"), None)
        kept = next((artefact for _, _, artefact in store.artefacts(cell.key) if artefact), None)
        if counted and kept:
            posterior, _ = artefacts.read(store.posteriors, kept)
            values = posterior.mean()[cell.problem.layout.layers == counted.layer]
            found.append(LayerWeights(str(cell.dataset), cell.entry, values.double().numpy()))
    return found


def _on_arrays(log_density: Callable[[Tensor], Tensor] | None) -> Callable[[Array], Array] | None:
    """Let a function of tensors take and give arrays."""
    return log_density and (lambda points: log_density(torch.from_numpy(points)).numpy())
