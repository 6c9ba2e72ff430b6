"""The figure of `bench_estimators.py`: errors, densities and coverages of each set."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bdl.reports.drawing import INK, METADATA, STYLE
from peers.estimators import LEVEL, OUR_METHODS

LIMITS = 0.80, 0.97
"""Least and greatest coverage of 90 % intervals that counts as calibrated."""
_PANELS = {
    "rmse": "RMSE (standard deviations)",
    "nll": "NLL (nats per row)",
    "coverage": "coverage of 90 % intervals",
}
_MARKERS = "osD^vPX*h"


def draw(file: Path, scores: Sequence[Mapping[str, Any]]) -> None:
    """Draw a panel for each quantity: a row for each set, a mark for each method.

    Methods of this package are filled, the peers are not.
    """
    import matplotlib
    from matplotlib.figure import Figure

    sets = list(dict.fromkeys(entry["dataset"] for entry in scores))
    methods = list(dict.fromkeys(entry["method"] for entry in scores))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 0.42 * len(sets) + 1.2), layout="constrained")
        panels = figure.subplots(1, len(_PANELS), sharey=True, squeeze=False)[0]
        for axes, (name, label) in zip(panels, _PANELS.items(), strict=True):
            axes.grid(True)
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_xlabel(label)
            for number, method in enumerate(methods):
                entries = [entry for entry in scores if entry["method"] == method]
                shift = 0.6 * (number / max(1, len(methods) - 1) - 0.5)
                colour = f"C{number}"
                axes.plot(
                    [entry[name] for entry in entries if entry[name] is not None],
                    [
                        sets.index(entry["dataset"]) + shift
                        for entry in entries
                        if entry[name] is not None
                    ],
                    linestyle="",
                    marker=_MARKERS[number % len(_MARKERS)],
                    markersize=4.5,
                    color=colour,
                    markerfacecolor=colour if method in OUR_METHODS else "none",
                    label=method,
                )
        panels[0].set_yticks(range(len(sets)), sets)
        panels[0].invert_yaxis()
        panels[0].set_xscale("log")
        panels[-1].axvspan(*LIMITS, color=INK, alpha=0.08, linewidth=0)
        panels[-1].axvline(LEVEL, color=INK, linewidth=0.8)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, ncols=len(labels), loc="outside upper center", frameon=False
        )
        figure.savefig(file, dpi=110, metadata=METADATA.get(file.suffix[1:]))
