"""Reports: our numbers beside the printed ones, as tables and figures."""

from bdl.reports.bands import band_figures
from bdl.reports.compare import Cell, compare
from bdl.reports.cost import cost_figures
from bdl.reports.curves import Curve, curve_figures, curves
from bdl.reports.figures import figures
from bdl.reports.inputs import Band, Gaussians
from bdl.reports.moments import moment_figures
from bdl.reports.paired import PairedDifference, paired_differences, paired_figures
from bdl.reports.papers import PaperValue, paper_values
from bdl.reports.posteriors import posterior_figures
from bdl.reports.render import render
from bdl.reports.selective import selective_figures

__all__ = [
    "Band",
    "Cell",
    "Curve",
    "Gaussians",
    "PairedDifference",
    "PaperValue",
    "band_figures",
    "compare",
    "cost_figures",
    "curve_figures",
    "curves",
    "figures",
    "moment_figures",
    "paired_differences",
    "paired_figures",
    "paper_values",
    "posterior_figures",
    "render",
    "selective_figures",
]
