"""Predictions in place of a posterior, for methods without parameters of the model.

A predictive is a function of inputs, (n, d), that gives one of three answers: `MeanVariance`,
`Outputs` or `Probabilities`. A NamedTuple of tensors with such a ``__call__`` is stored as it is.
Of any other function its answer at the test rows is stored, with the numbers of these rows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from bdl.errors import InputError
from bdl.posteriors.base import Posterior, check_finite, check_posterior

_NO_ROWS = torch.empty(0, dtype=torch.int64)
_SUM = 1e-3
"""Probabilities of a row may be so far from 1 in sum; float16 keeps as much. They are divided by
it.
"""


class Answer:
    """Base of the answers.

    The first axis of their fields is members of a mixture, the second rows; ``rows`` has the
    numbers of the rows in the data set.
    """

    rows: Tensor
    _replace: Callable[..., Any]
    _asdict: Callable[..., dict[str, Any]]

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The fields by name, without the row numbers."""
        return {name: value for name, value in self._asdict().items() if name != "rows"}

    def select_rows(self, rows: Tensor | None) -> Self:
        """Select rows by their numbers in the data set, (m,); None stands for rows of no data set.

        `InputError` if it has not all of them.
        """
        position_of_row = {int(row): position for position, row in enumerate(self.rows)}
        positions = [] if rows is None else [position_of_row.get(int(row)) for row in rows]
        if rows is None or None in positions:
            raise InputError(
                "this fit was kept as its predictions at the test rows, and cannot predict "
                "others: let the method return a NamedTuple of tensors with a __call__"
            )
        index = torch.tensor(positions, dtype=torch.int64)
        answer: Self = self.map_fields(lambda field: field[:, index])
        return answer._replace(rows=rows)

    def map_fields(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Apply a function to the fields."""
        return self._replace(**{name: change(value) for name, value in self.tensors.items()})

    def validate(self, n: int, d_out: int, classes: int) -> Self:
        """Return the answer for n rows as float64 tensors with both leading axes, (S, n, ...).

        `classes` is 0 for targets that are numbers. `InputError` if a shape is another, or a value
        is not one that the class documents.
        """
        raise NotImplementedError


class Predictive(Protocol):
    """A function of inputs as the model sees them, float64, (n, d)."""

    def __call__(self, x: Tensor) -> Answer:
        """Answer for each row."""
        ...


class _MeanVarianceFields(NamedTuple):
    mean: Tensor
    variance: Tensor
    rows: Tensor = _NO_ROWS


class MeanVariance(_MeanVarianceFields, Answer):
    """Targets with normal distributions, or an equal mixture of S of them for each row.

    Standardised units.

    Variances include noise; both are (n,), or (S, n). `rows` are left to the suite.
    """

    def validate(self, n: int, d_out: int, classes: int) -> Self:
        if classes:
            raise InputError(
                "MeanVariance is for targets that are numbers: "
                "answer with Probabilities or Outputs"
            )
        fields = {
            name: _as_shape(name, value, ((n,), (None, n))) for name, value in self.tensors.items()
        }
        if fields["mean"].shape != fields["variance"].shape:
            shapes = " and ".join(str(tuple(field.shape)) for field in fields.values())
            raise InputError(f"mean and variance have shapes {shapes}: give both the same")
        if not bool((fields["variance"] > 0).all()):
            raise InputError(
                f"variance must be positive: its smallest value is {fields['variance'].min():g}"
            )
        return self._replace(
            **{name: _with_sample_axis(field, 2) for name, field in fields.items()}
        )


class _OutputsFields(NamedTuple):
    outputs: Tensor
    rows: Tensor = _NO_ROWS


class Outputs(_OutputsFields, Answer):
    """Outputs of S samples of a model, from which the likelihood of the entry predicts.

    Standardised units.

    They are (S, n, d_out), or (S, n) where there is one. `rows` are left to the suite.
    """

    def validate(self, n: int, d_out: int, classes: int) -> Self:
        shapes: tuple[tuple[int | None, ...], ...] = ((None, n, d_out),)
        if d_out == 1:
            shapes = (*shapes, (None, n))
        outputs = _as_shape("outputs", self.outputs, shapes)
        return self._replace(outputs=outputs.view(outputs.shape[0], n, d_out))


class _ProbabilitiesFields(NamedTuple):
    probabilities: Tensor
    rows: Tensor = _NO_ROWS


class Probabilities(_ProbabilitiesFields, Answer):
    """Probabilities of C classes, (n, C), or those of S samples, (S, n, C), which are averaged.

    There are two columns for two classes. `rows` are left to the suite.
    """

    def validate(self, n: int, d_out: int, classes: int) -> Self:
        if not classes:
            raise InputError("Probabilities are for labels: answer with MeanVariance or Outputs")
        shapes = ((n, classes), (None, n, classes))
        probabilities = _as_shape("probabilities", self.probabilities, shapes)
        total = probabilities.sum(-1, keepdim=True)
        if bool((probabilities < 0).any()) or not bool(((total - 1).abs() < _SUM).all()):
            raise InputError("probabilities must be 0 or more, with sum 1 in each row")
        return self._replace(probabilities=_with_sample_axis(probabilities / total, 3))


def is_predictive(posterior: object) -> bool:
    """Return whether something predicts by itself, rather than by parameters of the model."""
    return isinstance(posterior, Answer) or (
        callable(posterior) and not hasattr(posterior, "sample")
    )


def is_stored_whole(predictive: Any) -> bool:
    """Return whether it is a NamedTuple of tensors, which can be stored and asked again."""
    fields = predictive._asdict() if hasattr(predictive, "_asdict") else {}
    return bool(fields) and all(isinstance(value, Tensor) for value in fields.values())


def query_predictive(
    predictive: Any, x: Tensor, rows: Tensor | None, d_out: int, classes: int
) -> Answer:
    """Return the predictions of a predictive, or of a stored answer, for rows.

    Errors are those of `Answer.select_rows` and `Answer.validate`.

    Inputs are as the model sees them, (n, d); `rows` are their numbers in the data set, None for
    other rows.
    """
    if isinstance(predictive, Answer):
        return predictive.select_rows(rows)
    device = next(
        (leaf.device for leaf in tree_leaves(predictive) if isinstance(leaf, Tensor)), x.device
    )
    with torch.no_grad():
        answer = predictive(x.to(device, torch.float64))
    if not isinstance(answer, Answer):
        raise InputError(
            f"the predictive answers with {type(answer).__name__}: "
            "let it return MeanVariance, Outputs or Probabilities"
        )
    return answer.validate(len(x), d_out, classes)


def check_fit(fit: Any, dim: int) -> "Posterior | Predictive":
    """Return the fit of a method: a posterior of D parameters, or a predictive.

    `InputError` if it is neither, has another number of parameters, or a value that is not finite.
    """
    if isinstance(fit, Answer):
        raise InputError("return a function of inputs that answers with it")
    if not (is_predictive(fit) or hasattr(fit, "sample")):
        raise InputError(
            "return a posterior of bdl.posteriors, or a function of inputs "
            "that answers with MeanVariance, Outputs or Probabilities"
        )
    for leaf in tree_leaves(fit):
        if isinstance(leaf, Tensor):
            check_finite("it", leaf, "the fit diverged")
    if not is_predictive(fit):
        check_posterior(fit, dim)
        if isinstance(fit, Posterior):
            fit.check_values()
    return fit


_CHECKED_ROWS = 100
"""Rows that predictions are compared on."""
_ROW_TOLERANCE = 1e-2
"""Share of the largest prediction by which those of a row may differ with the rows around it.

float16 rounds a number by 5e-4 and a sum of a hundred by ten times as much; the mean and variance
of fifty rows, by which a batch norm in training mode divides, vary by 1 / sqrt(50) = 0.14.
"""


def check_row_independence(predictive: Any, x: Tensor, d_out: int, classes: int) -> None:
    """Raise `InputError` if predictions of rows, (n, d), change when half of them are left out.

    Those of random predictives, which differ anyway, are not compared.
    """
    x = x[:_CHECKED_ROWS]
    half = len(x) // 2
    if not half or isinstance(predictive, Answer):
        return
    whole, repeated, partial = (
        query_predictive(predictive, rows, None, d_out, classes) for rows in (x, x, x[:half])
    )
    for name, value in whole.tensors.items():
        limit = _ROW_TOLERANCE * value.abs().max()
        if value.shape[0] != partial.tensors[name].shape[0]:
            raise InputError(f"{name} has another number of samples for other rows")
        if bool(((value - repeated.tensors[name]).abs() > limit).any()):
            return
        difference = (value[:, :half] - partial.tensors[name]).abs().max()
        if bool(difference > limit):
            raise InputError(
                f"{name} of {half} rows changes by {difference:.2g} when it predicts {len(x)}: "
                "let it predict each row by itself (a torch module by .eval())"
            )


def _as_shape(name: str, value: Any, shapes: tuple[tuple[int | None, ...], ...]) -> Tensor:
    """Convert to a float64 tensor of one of these shapes; None stands for any length."""
    # A copy, since arrays of some libraries cannot be written to, of which PyTorch warns.
    array = value if isinstance(value, Tensor) else np.array(value)
    tensor = torch.as_tensor(array, dtype=torch.float64).detach()
    actual = tuple(tensor.shape)

    def fits(shape: tuple[int | None, ...]) -> bool:
        if len(shape) != len(actual):
            return False
        return all(size in (None, n) for size, n in zip(shape, actual, strict=True))

    if not any(map(fits, shapes)) or not tensor.numel():
        expected = " or ".join(
            str(tuple(size or "S" for size in shape)).replace("'", "") for shape in shapes
        )
        raise InputError(f"{name} has shape {actual}: give it shape {expected}")
    if not bool(torch.isfinite(tensor).all()):
        raise InputError(f"{name} has values that are not finite")
    return tensor


def _with_sample_axis(value: Tensor, ndim: int) -> Tensor:
    """Add the axis of samples where there is none."""
    return value if value.ndim == ndim else value.unsqueeze(0)
