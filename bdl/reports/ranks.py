"""Average ranks of entries over data sets, and which of them chance cannot tell apart."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from bdl.errors import InputError
from bdl.metrics import info
from bdl.reports.compare import Cell
from bdl.reports.drawing import Drawings, title
from bdl.reports.layout import Section, heading
from bdl.reports.verdicts import LEVEL

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FEWEST = 3
"""Entries that the test takes."""


class Ranks(NamedTuple):
    """Ranks of entries by the means of one metric; 1 is the best."""

    metric: str
    places: int
    """Data sets on which all of the entries have a mean."""
    p: float
    """Of Friedman's test that all entries are alike."""
    means: Mapping[str, float]
    """Entry to its average rank, the best first."""
    pairs: Mapping[str, Mapping[str, float]]
    """p of each pair by Nemenyi's test."""

    def apart(self, entry: str) -> list[str]:
        """List the other entries that Nemenyi's test tells from this one at 5 %."""
        return [name for name in self.means if name != entry and self.pairs[entry][name] < LEVEL]


def ranks(cells: Sequence[Cell], metric: str) -> Ranks | None:
    """Rank the entries that have most means, over the data sets on which all of these have one.

    Points of a sweep are of the same data, and no data sets of their own: an entry's means at them are averaged first,
    over the points that all of these entries have.

    Parameters
    ----------
    cells
        As `bdl.reports.compare` returns them.
    metric
        One with a better and a worse.

    Returns
    -------
    Ranks or None
        None with fewer than three such entries or fewer than two data sets.

    Raises
    ------
    InputError
        If scikit-posthocs is missing.

    Notes
    -----
    Friedman's test and Nemenyi's (Demsar, "Statistical comparisons of classifiers over multiple data sets", Journal of
    Machine Learning Research 7, 2006). Means are of the trials that succeeded.
    """
    from scipy.stats import friedmanchisquare

    table = _table(cells, metric)
    if table.shape[1] < FEWEST or len(table) < 2:
        return None
    ranked = table.rank(axis=1, ascending=info(metric).direction == "lower")
    means = ranked.mean().sort_values(kind="stable")
    p = float(friedmanchisquare(*ranked.to_numpy().T).pvalue)
    pairs = _posthocs().posthoc_nemenyi_friedman(ranked).to_dict()
    return Ranks(metric, len(table), p, {str(name): float(mean) for name, mean in means.items()}, pairs)


def rank_section(found: Ranks) -> Section:
    """Lay out ranks."""
    rows = [(name, f"{mean:.2f}", ", ".join(found.apart(name)) or "-") for name, mean in found.means.items()]
    title = f"Ranks over {found.places} data sets, {heading(found.metric)}; Friedman p = {found.p:.2g}, Nemenyi at 5 %"
    return Section.of(title, ["Method", "Average rank", "Told from"], rows)


def rank_drawings(found: Sequence[Ranks]) -> Drawings:
    """Draw the ranks as diagrams of critical differences, a figure a metric."""
    return {f"{each.metric}-ranks": partial(_figure, each) for each in found}


def _figure(found: Ranks) -> "Figure":
    import pandas as pd
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 1.4 + 0.22 * len(found.means)), layout="constrained", facecolor="white")
    _posthocs().critical_difference_diagram(
        dict(found.means), pd.DataFrame(found.pairs), ax=figure.subplots(), alpha=LEVEL
    )
    what = f"{heading(found.metric)}: average rank over {found.places} data sets"
    title(figure, what, "lines join what Nemenyi's test does not tell apart")
    return figure


def _table(cells: Sequence[Cell], metric: str) -> "pd.DataFrame":
    """Lay out means over the points of a sweep, a row a data set and a column an entry, without gaps."""
    import pandas as pd

    means: dict[str, dict[tuple[str, ...], float]] = {}
    for cell in cells:
        if (cell.metric, cell.statistic) == (metric, "mean") and cell.ours is not None:
            means.setdefault(cell.method, {})[cell.dataset, *cell.point.values()] = cell.ours
    most = max((len(own) for own in means.values()), default=0)
    kept = {entry: own for entry, own in means.items() if len(own) == most}
    places = [place for place in next(iter(kept.values()), {}) if all(place in own for own in kept.values())]
    table = pd.DataFrame({entry: [own[place] for place in places] for entry, own in kept.items()})
    return table.groupby([dataset for dataset, *_ in places], sort=False).mean()


def _posthocs() -> Any:
    try:
        import scikit_posthocs
    except ImportError:
        raise InputError("ranks need scikit-posthocs: pip install 'bdl-bench[ranks]'") from None
    return scikit_posthocs
