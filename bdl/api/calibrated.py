"""Calibration of a fit on rows that it was not fitted to."""

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from annotated_types import Ge, Le
from numpy.typing import NDArray
from pydantic import SkipValidation
from sklearn.pipeline import Pipeline
from sklearn.utils import column_or_1d
from torch.distributions import Categorical

from bdl.api.estimators import Classifier, Regressor, check_labels
from bdl.api.fitted import Fitted
from bdl.data.conversion import as_targets, check_row_labels
from bdl.errors import InputError, abbreviate
from bdl.reports.certainty import calibration_figure, coverage, reliability
from bdl.reports.figures import Figures, draw_figure
from bdl.spec.fields import validate_arguments


@dataclass(frozen=True, eq=False)
class Calibration:
    """How often events that were predicted with some probability came true.

    Parameters
    ----------
    table
        Of numbers the probability (``level``) of central intervals and the share of targets within
        (``coverage``); of labels the mean ``confidence`` in the most probable class and the
        ``accuracy``, with the ``rows``, of each bin.
    rows
        How many rows were predicted.
    """

    table: pd.DataFrame = field(repr=False)
    rows: int

    def plot(self) -> Figures:
        """Draw coverage against level, or accuracy against confidence; a notebook shows it."""
        return Figures(
            {"calibration": draw_figure(lambda: calibration_figure(self.table, self.rows))}
        )


@validate_arguments
def calibration(
    fit: Annotated[Regressor | Classifier | Fitted | Pipeline, SkipValidation],
    X: Any = None,
    y: Any = None,
    bins: Annotated[int, Ge(2), Le(1000)] = 10,
) -> Calibration:
    """Compare predictive probabilities with what came true, on rows that a fit has not seen.

    Parameters
    ----------
    fit
        An estimator, a pipeline of scikit-learn that ends with one, or a fit of arrays or of a
        benchmark.
    X, y
        Inputs, (n, d), and targets, (n,), that it has not seen, as `predict` takes and gives them;
        by default the test rows of a fit of a benchmark.
    bins
        Number of bins of equal width for labels, of levels 1/bins, ..., 1 - 1/bins for numbers.

    Returns
    -------
    Calibration
        For numbers the coverage of central intervals; for labels a reliability diagram (Guo et al.
        2017).

    Raises
    ------
    InputError
        If there are no rows, targets and inputs differ in number, or targets are not one finite
        number or label a row; and as `predict_distribution` says.
    """
    # before a pipeline makes an array of X, which has no labels
    check_row_labels(X, y)
    if isinstance(fit, Pipeline):
        if X is not None and len(fit) > 1:
            X = fit[:-1].transform(X)
        return calibration(fit[-1], X, y, bins)
    if not isinstance(fit, Regressor | Classifier | Fitted):
        raise InputError(
            "calibration: fit: give a fitted bdl.Regressor or bdl.Classifier, a pipeline that "
            f"ends with one, or what bdl.fit or bdl.posterior returns, not {type(fit).__name__}"
        )
    if X is None and y is None and isinstance(fit, Fitted):
        rows = fit.cell.rows(fit.split).test
        X, y = fit.cell.data.x[rows], fit.cell.data.y[rows]
    if X is None or y is None or not len(X) or len(X) != len(y):
        raise InputError(
            "calibration: give X and y, one target a row, of rows that the fit has not seen"
        )
    if isinstance(fit, Classifier):
        check_labels(y)
        labels = column_or_1d(y)
        _check_classes(labels, fit.classes_)
        probabilities, correct = fit.predict_proba(X), labels == fit.predict(X)
    else:
        distribution, targets = fit.predict_distribution(X), as_targets(y, "y")
        if not isinstance(distribution, Categorical):
            levels = np.arange(1, bins) / bins
            cdf_values = distribution.cdf(torch.tensor(targets)).numpy()
            table = pd.DataFrame({"level": levels, "coverage": coverage(cdf_values, levels)})
            return Calibration(table, len(cdf_values))
        probabilities = np.asarray(distribution.probs)
        _check_classes(targets, np.arange(probabilities.shape[1]))
        correct = probabilities.argmax(1) == targets
    names = ("confidence", "accuracy", "rows")
    values = reliability(probabilities.max(1), correct, bins)
    return Calibration(pd.DataFrame(dict(zip(names, values, strict=True))), len(correct))


def _check_classes(labels: NDArray[Any], classes: NDArray[Any]) -> None:
    """Refuse labels that are none of the classes of a fit: most are of another coding."""
    unknown = labels[~np.isin(labels, classes)]
    if unknown.size:
        raise InputError(
            f"calibration: y has {unknown.tolist()[0]!r}, which is none of the classes of the fit: "
            f"{abbreviate(', '.join(map(repr, classes.tolist())))}; drop such rows"
        )
