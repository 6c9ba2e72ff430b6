"""Reports: our numbers beside the printed ones, as tables and figures."""

from bdl.reports.compare import Cell, compare
from bdl.reports.curves import Curve, curves
from bdl.reports.figures import Shown, draw_figures
from bdl.reports.paired import PairedDifference, paired_differences
from bdl.reports.papers import PaperValue, paper_values
from bdl.reports.posteriors import CredibleBand, Gaussians
from bdl.reports.render import render

__all__ = [
    "Cell",
    "CredibleBand",
    "Curve",
    "Gaussians",
    "PairedDifference",
    "PaperValue",
    "Shown",
    "compare",
    "curves",
    "draw_figures",
    "paired_differences",
    "paper_values",
    "render",
]
