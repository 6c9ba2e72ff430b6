"""Rows of a data set, and the distributions of their targets: given outputs of the model, or given predictions."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, Normal

from bdl.models.problem import Hyper, Problem
from bdl.posteriors.predictive import Answer, MeanVariance, Outputs, Probabilities, ask
from bdl.posteriors.tensors import as_type


class Examples(NamedTuple):
    """Rows of a data set."""

    x: Tensor
    """Inputs as the model sees them, (n, d)."""
    y: Tensor
    """Targets in original units, float64, (n,)."""
    y_unit: Tensor | float
    """Original target units per unit of the model's outputs."""
    y_origin: Tensor | float
    """Where the model's outputs are zero, original target units."""
    rows: Tensor | None = None
    """Their numbers in the data set, int64, (n,); None for other rows."""

    def take(self, index: Tensor | slice) -> "Examples":
        """Select some of the rows."""
        rows = None if self.rows is None else self.rows[index]
        return self._replace(x=self.x[index], y=self.y[index], rows=rows)


def row_order(rows: Examples) -> Tensor:
    """Return an order of the rows that their own order has no part in: by targets, then by inputs from the first on."""
    return torch.from_numpy(np.lexsort((*rows.x.flatten(1).T.cpu().numpy()[::-1], rows.y.cpu().numpy())))


def at_outputs(problem: Problem, f: Tensor, hyper: Hyper) -> Distribution:
    """Return the distributions of the targets at outputs in original units, (..., d_out)."""
    return problem.likelihood.predictive(f.double(), {name: value.double() for name, value in hyper.items()})


def answer(problem: Problem, predictive: Any, examples: Examples) -> Answer:
    """Ask what predicts by itself about rows, on the CPU; errors as in `bdl.posteriors.predictive.ask`."""
    found = ask(predictive, examples.x, examples.rows, problem.d_out, problem.classes)
    return as_type(found, torch.float64, torch.device("cpu"))


def restored(problem: Problem, found: Outputs, examples: Examples) -> Tensor:
    """Return outputs in original units."""
    unit, origin = (torch.as_tensor(value, dtype=torch.float64) for value in (examples.y_unit, examples.y_origin))
    return problem.likelihood.restore(found.outputs, unit, origin)


def targets(problem: Problem, found: Answer, examples: Examples, hyper: Hyper) -> Distribution:
    """Return the distributions of the targets that an answer stands for, in original units, of its shape (S, n)."""
    if isinstance(found, Outputs):
        return at_outputs(problem, restored(problem, found, examples), hyper)
    if isinstance(found, Probabilities):
        return Categorical(probs=found.probabilities, validate_args=False)
    assert isinstance(found, MeanVariance), "there are three answers"
    unit, origin = (torch.as_tensor(value, dtype=torch.float64) for value in (examples.y_unit, examples.y_origin))
    return Normal(found.mean * unit + origin, found.variance.sqrt() * unit, validate_args=False)
