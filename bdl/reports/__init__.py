"""Reports: our numbers beside the printed ones, as tables and figures."""

from bdl.reports.compare import Cell, compare
from bdl.reports.curves import Curve, curve_figures, curves
from bdl.reports.figures import figures
from bdl.reports.inputs import Gaussians
from bdl.reports.moments import moment_figures
from bdl.reports.paired import PairedDifference, paired_differences, paired_figures
from bdl.reports.papers import PaperValue, paper_values
from bdl.reports.render import render

__all__ = [
    "Cell",
    "Curve",
    "Gaussians",
    "PairedDifference",
    "PaperValue",
    "compare",
    "curve_figures",
    "curves",
    "figures",
    "moment_figures",
    "paired_differences",
    "paired_figures",
    "paper_values",
    "render",
]
