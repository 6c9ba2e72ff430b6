"""Reports: our numbers beside the printed ones, as tables and figures."""

from bdl.reports.compare import Cell, compare
from bdl.reports.figures import figures
from bdl.reports.moments import Gaussians, moment_figures
from bdl.reports.papers import PaperValue, paper_values
from bdl.reports.render import render

__all__ = ["Cell", "Gaussians", "PaperValue", "compare", "figures", "moment_figures", "paper_values", "render"]
