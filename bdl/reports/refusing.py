"""What may be done with uncertain predictions of labels: refuse them, trust them as they are, refer by a threshold."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bdl.reports import drawing
from bdl.reports.calibration import reliability

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bdl.spec import Benchmark

Array = NDArray[np.float64]

BINS = 10
"""Of confidence, from 0 to 1."""
SENSITIVITIES = np.linspace(0.8, 1, 41)
SHARES = np.linspace(0.1, 1, 91)
"""Of the rows that are kept: with fewer, a single error is seen most."""
SHADE = 0.12
"""How dark a band is; up to nine lie over one another."""


class Labelled(NamedTuple):
    """Predictions of the labels of the test rows, by one fit."""

    dataset: str
    entry: str
    probabilities: Array
    """Of each class, (n, C)."""
    labels: NDArray[np.int64]
    """(n,)."""
    risks: Mapping[str, Array]
    """What orders the rows, to the mean error of the k most certain ones, k = 1, ..., n."""


def refusal_drawings(benchmark: "Benchmark", fits: Sequence[Labelled]) -> drawing.Drawings:
    """Draw errors by the share that is kept, reliability, and for two classes what a sensitivity costs."""
    drawings = {
        "refusal-risk": partial(risk_figure, benchmark, fits),
        "refusal-reliability": partial(reliability_figure, benchmark, fits),
    }
    two = [fit for fit in fits if fit.probabilities.shape[1] == 2]
    return drawings | ({"refusal-referral": partial(referral_figure, benchmark, two)} if two else {})


def risk_figure(benchmark: "Benchmark", fits: Sequence[Labelled]) -> "Figure":
    """Draw the error of the most certain rows along their share: means over the splits, bands of a standard error."""
    places = [*product(dict.fromkeys(fit.dataset for fit in fits), fits[0].risks)]
    figure, panels = drawing.grid(len(places), (3.6, 3.0), columns=min(len(places), 2), sharey=True)
    for panel, (dataset, by) in zip(panels, places, strict=True):
        drawing.dress(panel, f"{dataset}, by {by}", bold=False)
        panel.set_xlabel("share of the test rows that is kept")
        _bands(panel, benchmark, SHARES, [(fit.entry, at_shares(fit.risks[by])) for fit in fits if fit[0] == dataset])
    return _finished(figure, panels, benchmark, "Errors of the most certain rows", "error")


def referral_figure(benchmark: "Benchmark", fits: Sequence[Labelled]) -> "Figure":
    """Draw the share of all rows that a threshold refers along the sensitivity that it has on these rows."""
    datasets = [*dict.fromkeys(fit.dataset for fit in fits)]
    figure, panels = drawing.grid(len(datasets), (4.6, 3.2))
    for panel, dataset in zip(panels, datasets, strict=True):
        drawing.dress(panel, dataset, bold=False)
        panel.set_xlabel("sensitivity: share of the positive rows that is referred")
        _bands(panel, benchmark, SENSITIVITIES, [(fit.entry, referred(fit)) for fit in fits if fit[0] == dataset])
    return _finished(figure, panels, benchmark, "Referral at a given sensitivity", "share of all rows that is referred")


def reliability_figure(benchmark: "Benchmark", fits: Sequence[Labelled]) -> "Figure":
    """Draw accuracy against confidence in bins, the rows of all splits together: a panel an entry and data set."""
    places = [*dict.fromkeys((fit.dataset, fit.entry) for fit in fits)]
    figure, panels = drawing.grid(len(places), (2.1, 2.1), sharex=True, sharey=True)
    several = len({dataset for dataset, _ in places}) > 1
    for panel, place in zip(panels, places, strict=True):
        own = [fit for fit in fits if fit[:2] == place]
        probabilities = np.concatenate([fit.probabilities for fit in own])
        hits = probabilities.argmax(1) == np.concatenate([fit.labels for fit in own])
        confidence, accuracy, _ = reliability(probabilities.max(1), hits, BINS)
        least = 1 / probabilities.shape[1]  # of the most probable of so many classes
        panel.plot(
            [least, 1], [least, 1], color=drawing.QUIET, linestyle=(0, (3, 1.5)), linewidth=1, label="calibrated"
        )
        panel.plot(confidence, accuracy, color=drawing.COLORS[0], label="predictions", **drawing.DOTS)
        drawing.dress(panel, ", ".join(place) if several else place[1], bold=False)
        panel.set_xlabel("confidence")
    return _finished(figure, panels, benchmark, "Reliability of the most probable class", "accuracy")


def at_shares(risks: Array) -> Array:
    """Return the error of the most certain rows at each of `SHARES`: (n,) to (91,)."""
    kept: Array = risks[np.maximum(np.floor(SHARES * len(risks) + 1e-9).astype(int), 1) - 1]
    return kept


def referred(fit: Labelled) -> Array:
    """Return the least share of all rows that is referred by probability, for each of `SENSITIVITIES`: (41,)."""
    p = fit.probabilities[:, 1]
    positive = np.sort(p[fit.labels == 1])[::-1]
    thresholds = positive[np.ceil(SENSITIVITIES * len(positive) - 1e-9).astype(int) - 1]
    share: Array = (p >= thresholds[:, None]).mean(1)
    return share


def _bands(panel: "Axes", benchmark: "Benchmark", x: Array, lines: Sequence[tuple[str, Array]]) -> None:
    """Draw the mean of each entry's lines, with a band of one standard error where there are several."""
    for entry, look in drawing.styles(benchmark.entries).items():
        own = np.array([line for name, line in lines if name == entry])
        if not len(own):
            continue
        mean, line = own.mean(0), {"color": look["color"], "linestyle": look["linestyle"]}
        panel.plot(x, mean, linewidth=1.4, label=entry, **line)
        if len(own) > 1:
            se = own.std(0, ddof=1) / np.sqrt(len(own))
            panel.fill_between(x, mean - se, mean + se, color=look["color"], alpha=SHADE, linewidth=0)


def _finished(figure: "Figure", panels: "Sequence[Axes]", benchmark: "Benchmark", what: str, up: str) -> "Figure":
    drawing.label_left(panels, up)
    drawing.title(figure, benchmark.title, what)
    drawing.legend(figure, order=benchmark.entries)
    return figure
