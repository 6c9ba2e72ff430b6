"""Draw figures of the papers that are of no benchmark's kind.

    python scripts/paper_figures.py  # draws docs/images/prior-densities.png,
    docs/images/slang-toy-last-updates.png and docs/images/prior-draws.png

The first shows the priors of Mata (2018, Figures 2.1, 3.2 to 3.4 and C.1) by the package's own
log-densities; the second the end of the published curves of `slang-toy`, as in Figure 8 of the
SLANG paper (2018); the third importance sampling from the prior, as in Figure 1 of the lecture
notes of León Villares.
"""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.style import context
from numpy.typing import NDArray
from scipy.special import log_expit, softmax

from bdl.data import load_dataset
from bdl.models.base import Layout
from bdl.models.networks import LinearModel
from bdl.models.priors import GaussianPrior, HorseshoePrior, Prior, SpikeSlabPrior, StudentTPrior
from bdl.records.run_folder import RunFolder
from bdl.reports import drawing
from bdl.reports.figures import draw_figure, reduce_colours
from bdl.reports.layout import metric_with_unit
from bdl.reports.method_styles import entry_styles

Array = NDArray[np.float64]

ROOT = Path(__file__).parents[1]
ONE = Layout(LinearModel(bias=False), 1, 1)
"""A model of one weight, which has one layer and leaves one unit."""
WEIGHT, LAYER_A, UNIT_A, LAYER_B, UNIT_B = range(5)
"""Latent variables that the horseshoe has there: the weight before it is scaled, and logarithms
of roots.
"""
STEP, REACH = 0.02, 30.0
GRID: Array = STEP * np.arange(-2250.0, 2251.0)
"""Logarithms of scales over which the horseshoe is summed. Of sums of them, those up to `REACH`
in size count: beyond
lies less than 1e-11, and the ends of the grid are felt."""


def density(prior: Prior, latent: Array, hyper: Mapping[str, float]) -> Array:
    """Return the prior density of latent variables of the model of one weight, (m, P) -> (m,)."""
    own = {name: torch.tensor(value, dtype=torch.float64) for name, value in hyper.items()}
    return np.asarray(prior.log_prob(torch.from_numpy(latent), own, ONE).exp())


def of_weight(prior: Prior, theta: Array, **hyper: float) -> Array:
    """Return the density of a weight under a prior whose latent variables are the weights, (m,)."""
    return density(prior, theta[:, None], hyper)


def of_latent(place: int, values: Array, kappa: float = 1.0) -> Array:
    """Return the density of one latent variable of the horseshoe, the others summed away, (m,)."""
    middle = np.zeros(5)
    middle[LAYER_A] = math.log(kappa)

    def along(variable: int, at: Array) -> Array:
        latent = np.tile(middle, (len(at), 1))
        latent[:, variable] = at
        return density(HorseshoePrior(), latent, {"global_scale": kappa})

    # They are independent: the joint density is that in the middle times what each of them changes
    # of it.
    joint = along(WEIGHT, np.zeros(1))[0]
    others = [along(other, GRID).sum() * STEP / joint for other in range(5) if other != place]
    return np.asarray(along(place, values) * np.prod(others))


def of_log_scale(parts: Sequence[int], kappa: float = 1.0) -> tuple[Array, Array]:
    """Return sums of logarithms of the horseshoe, ascending, and their density, both (m,)."""
    found = of_latent(parts[0], GRID, kappa)
    for part in parts[1:]:  # logarithms add, so densities convolve
        found = np.convolve(found, of_latent(part, GRID, kappa), mode="same") * STEP
    inside = np.abs(GRID) <= REACH
    return GRID[inside], found[inside]


def of_horseshoe(theta: Array, kappa: float) -> Array:
    """Return the density of a weight under the horseshoe, summed over its scale, (m,).

    It has no bound at 0.
    """
    u, share = of_log_scale((LAYER_A, UNIT_A, LAYER_B, UNIT_B), kappa)
    unscaled = (theta[:, None] * np.exp(-u)).ravel()
    given = of_latent(WEIGHT, unscaled, kappa).reshape(len(theta), -1) * np.exp(-u)
    return np.asarray(given @ share * STEP)


def of_scale(*parts: int) -> tuple[Array, Array]:
    """Return values of a product of roots of the horseshoe, ascending, and their density, both (m,)."""
    u, found = of_log_scale(parts)
    return np.exp(u), found * np.exp(-u)


def of_shrinkage() -> tuple[Array, Array]:
    """Return 1 / (1 + scale^2) of a unit under the horseshoe, descending, and its density, both (m,)."""
    scale, found = of_scale(UNIT_A, UNIT_B)
    share = 1 / (1 + scale**2)
    return share, found / (2 * scale * share**2)


class Line(NamedTuple):
    """A density of a weight, and how it is drawn."""

    of: Callable[[Array], Array]
    color: str
    style: str = "-"


NORMAL = Line(partial(of_weight, GaussianPrior(), prior_precision=1.0), drawing.INK, "--")
STUDENT_6, STUDENT_3, CAUCHY = (
    Line(partial(of_weight, StudentTPrior(degrees), prior_scale=1.0), color)
    for degrees, color in ((6, drawing.COLORS[2]), (3, drawing.COLORS[4]), (1, drawing.COLORS[1]))
)
HORSESHOE = Line(partial(of_horseshoe, kappa=1.0), drawing.COLORS[0])
PANELS = {
    "Gaussian": {
        "precision 4": Line(
            partial(of_weight, GaussianPrior(), prior_precision=4.0), drawing.COLORS[0]
        ),
        "precision 1": NORMAL,
        "precision 1/4": Line(
            partial(of_weight, GaussianPrior(), prior_precision=0.25), drawing.COLORS[1]
        ),
    },
    "Student's t of scale 1": {
        "Gaussian": NORMAL,
        "6 degrees": STUDENT_6,
        "3 degrees": STUDENT_3,
        "1 degree": CAUCHY,
    },
    "Horseshoe of global scale κ": {
        "κ = 1": HORSESHOE,
        "κ = 0.1": Line(partial(of_horseshoe, kappa=0.1), drawing.COLORS[3]),
        "Cauchy": CAUCHY,
        "Gaussian": NORMAL,
    },
    "Tails": {
        "horseshoe, κ = 1": HORSESHOE,
        "Cauchy": CAUCHY,
        "Student's t, 6 degrees": STUDENT_6,
        "spike of 0.1, slab of 4": Line(
            partial(of_weight, SpikeSlabPrior(), slab_share=0.5, slab_scale=4.0, spike_scale=0.1),
            drawing.COLORS[7],
        ),
        "Gaussian": NORMAL,
    },
}
"""Densities of a weight, by the heading of a panel and their label."""
SCALES = {
    "root of a": (UNIT_A,),
    "root of b": (UNIT_B,),
    "root of a b (half-Cauchy)": (UNIT_A, UNIT_B),
}
"""What scales the weights of a unit under a horseshoe."""
STAR: dict[str, Any] = {
    "marker": "*",
    "markersize": 13,
    "linestyle": "none",
    "markeredgecolor": drawing.INK,
    "zorder": 3,
}
LAST, SHOWN = 2000, 0.995
"""Updates of `slang-toy` at its end, and the share of the ELBOs there that is within the axis."""
DRAWS, PRIOR_SD, ROWS = 10_000, 10.0, (20, 3000)
"""Draws of two weights from their prior, its standard deviation, and rows that weigh the draws."""
NEAR, FAR = np.linspace(-5, 5, 400), np.geomspace(0.01, 100, 200)
"""Weights that the panels show, all but 0."""


def densities() -> Figure:
    """Draw the densities of a weight, and of what scales it under a horseshoe."""
    figure, panels = drawing.lay_out_panels(len(PANELS) + 2, (3.1, 2.7), columns=3)
    for panel, (heading, lines) in zip(panels, PANELS.items(), strict=False):
        theta = FAR if heading == "Tails" else NEAR
        for label, line in lines.items():
            panel.plot(theta, line.of(theta), line.style, color=line.color, label=label)
        panel.set(ylim=(0, None), xlabel="weight")
        drawing.style_panel(panel, heading)
    *_, horseshoe, tails, scales, shares = panels
    horseshoe.set_ylim(0, 1.5)  # it has no bound at 0
    tails.set(xscale="log", yscale="log", ylim=(1e-8, 30), xlabel="size of a weight")
    for (label, parts), color in zip(SCALES.items(), drawing.COLORS, strict=False):
        scales.plot(*of_scale(*parts), color=color, label=label)
    scales.set(xlim=(0, 4), ylim=(0, None), xlabel="scale, or factor of it")
    drawing.style_panel(scales, "Scale of a unit, horseshoe")
    shares.plot(*of_shrinkage(), color=HORSESHOE.color, label="horseshoe")
    shares.set(xlim=(0, 1), ylim=(0, 4), xlabel="1 / (1 + scale²)")
    drawing.style_panel(shares, "Shrinkage by it")
    for panel in panels[:-1]:
        place = "lower left" if panel is tails else "upper right"
        panel.legend(frameon=False, fontsize=7.5, handlelength=1.5, loc=place)
    drawing.label_vertical_axes(panels, "density")
    drawing.write_title(figure, "Densities of the priors of a weight")
    return figure


def last_updates() -> Figure:
    """Draw the negative ELBO of `slang-toy` over all updates and over the last, with stars where it is least.

    There the paper's code takes SLANG's models, of which each ELBO is an estimate by a hundred
    samples.
    """
    points = (
        RunFolder(ROOT / "results/slang-toy").tabulate_curve_points().query("metric == 'neg_elbo'")
    )
    end = int(points["at"].max())
    figure, panels = drawing.lay_out_panels(2, (4.2, 3.0), sharey=True)
    shown = []
    styles = entry_styles(points["entry"].unique())
    for entry, own in points.groupby("entry", sort=False):
        color = styles[str(entry)]["color"]
        shown.append(own["value"][own["at"] > end - LAST])
        best = own.iloc[int(own["value"].argmin())]
        for panel in panels:
            panel.plot(own["at"], own["value"], color=color, linewidth=0.6, label=entry)
            if str(entry).startswith("slang"):
                label = f"{entry}, selected: update {best['at']:,}"
                panel.plot(best["at"], best["value"], label=label, color=color, **STAR)
    for panel, heading, first in zip(
        panels, ("All updates", f"Last {LAST:,} updates"), (0, end - LAST), strict=True
    ):
        drawing.style_panel(panel, heading)
        panel.set(xlim=(first, end), xlabel="updates")
        panel.xaxis.set_major_formatter("{x:,.0f}")
        panel.locator_params(axis="x", nbins=5)
    last = pd.concat(shown)
    low, high = float(points["value"].min()), float(last.quantile(SHOWN))
    panels[0].set_ylim(
        low - drawing.AXIS_MARGIN * (high - low), high + drawing.AXIS_MARGIN * (high - low)
    )
    drawing.label_vertical_axes(panels, metric_with_unit("neg_elbo"))
    beyond = f"{1 - SHOWN:.1%} of the last values lie beyond the axis, up to {last.max():.1f}"
    drawing.write_title(figure, "Cubic regression with ten hidden units", beyond)
    drawing.draw_legend(figure, columns=5)
    return figure


def prior_draws() -> Figure:
    """Draw weights of a logistic regression from their prior, with areas like their likelihoods."""
    data = load_dataset("synthetic_logistic")
    theta = np.random.default_rng(0).normal(0, PRIOR_SD, (DRAWS, 2))
    figure, panels = drawing.lay_out_panels(len(ROWS), (3.6, 3.4), sharey=True)
    for panel, count in zip(panels, ROWS, strict=True):
        rows = data.split(0).train[:count]
        signs = 2 * data.y[rows] - 1
        share = softmax(log_expit(signs * (theta @ data.x[rows].T)).sum(1))
        panel.scatter(theta[:, 0], theta[:, 1], s=1, color=drawing.QUIET, alpha=0.3, linewidths=0)
        panel.scatter(
            theta[:, 0],
            theta[:, 1],
            s=1500 * share,
            color=drawing.COLORS[0],
            alpha=0.6,
            linewidths=0,
        )
        effective = 1 / np.square(share).sum()
        drawing.style_panel(panel, f"{count:,} rows: effective sample size {effective:,.0f}")
        panel.set(xlabel="first weight")
    drawing.label_vertical_axes(panels, "second weight")
    title = f"{DRAWS:,} draws of two weights from their prior"
    drawing.write_title(figure, title, "areas in proportion to likelihoods")
    return figure


def save(draw: Callable[[], Figure], target: Path) -> None:
    """Draw a figure in the style of all others."""
    figure = draw_figure(draw)
    with context(["default", drawing.STYLE]):
        figure.savefig(target, dpi=200, metadata=drawing.METADATA["png"])
    reduce_colours(target)


def main() -> None:
    """Draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=ROOT / "docs/images", help="folder")
    folder = parser.parse_args().output
    save(densities, folder / "prior-densities.png")
    save(last_updates, folder / "slang-toy-last-updates.png")
    save(prior_draws, folder / "prior-draws.png")


if __name__ == "__main__":
    main()
