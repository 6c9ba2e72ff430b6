"""Predictions in place of a distribution over parameters, for methods that have no parameters of the model.

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
from bdl.posteriors.base import Posterior

_NO_ROWS = torch.empty(0, dtype=torch.int64)
_SUM = 1e-3
"""Probabilities of a row may be so far from 1 in sum; float16 keeps as much. They are divided by
it.
"""


class Answer:
    """What the answers share: fields whose first axis is members of a mixture, the second rows.

    And ``rows``.
    """

    rows: Tensor
    _replace: Callable[..., Any]
    _asdict: Callable[..., dict[str, Any]]

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The fields by name, without the row numbers."""
        return {name: value for name, value in self._asdict().items() if name != "rows"}

    def at(self, rows: Tensor | None) -> Self:
        """Select rows by their numbers in the data set, (m,); None stands for rows of no data set.

        `InputError` if it has not all of them.
        """
        known = {int(row): place for place, row in enumerate(self.rows)}
        wanted = [] if rows is None else [known.get(int(row)) for row in rows]
        if rows is None or None in wanted:
            raise InputError(
                "this fit was kept as its predictions at the test rows, and cannot predict others: let the method "
                "return a NamedTuple of tensors with a __call__"
            )
        chosen: Self = self.mapped(lambda value: value[:, torch.tensor(wanted, dtype=torch.int64)])
        return chosen._replace(rows=rows)

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Apply a function to the fields."""
        return self._replace(**{name: change(value) for name, value in self.tensors.items()})

    def checked(self, n: int, d_out: int, classes: int) -> Self:
        """Return the answer as float64 tensors with both leading axes, (S, n, ...), if it is one for n rows.

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

    def checked(self, n: int, d_out: int, classes: int) -> Self:
        if classes:
            raise InputError(
                "MeanVariance is for targets that are numbers: answer with Probabilities or Outputs"
            )
        parts = {
            name: _shaped(name, value, ((n,), (None, n))) for name, value in self.tensors.items()
        }
        if parts["mean"].shape != parts["variance"].shape:
            shapes = " and ".join(str(tuple(part.shape)) for part in parts.values())
            raise InputError(f"mean and variance have shapes {shapes}: give both the same")
        if not bool((parts["variance"] > 0).all()):
            raise InputError(
                f"variance must be positive: its smallest value is {parts['variance'].min():g}"
            )
        return self._replace(**{name: _of_samples(part, 2) for name, part in parts.items()})


class _OutputsFields(NamedTuple):
    outputs: Tensor
    rows: Tensor = _NO_ROWS


class Outputs(_OutputsFields, Answer):
    """Outputs of S samples of a model, from which the likelihood of the entry predicts.

    Standardised units.

    They are (S, n, d_out), or (S, n) where there is one. `rows` are left to the suite.
    """

    def checked(self, n: int, d_out: int, classes: int) -> Self:
        wanted: tuple[tuple[int | None, ...], ...] = ((None, n, d_out), (None, n))[
            : 2 if d_out == 1 else 1
        ]
        found = _shaped("outputs", self.outputs, wanted)
        return self._replace(outputs=found.view(found.shape[0], n, d_out))


class _ProbabilitiesFields(NamedTuple):
    probabilities: Tensor
    rows: Tensor = _NO_ROWS


class Probabilities(_ProbabilitiesFields, Answer):
    """Probabilities of C classes, (n, C), or those of S samples, (S, n, C), which are averaged.

    There are two columns for two classes. `rows` are left to the suite.
    """

    def checked(self, n: int, d_out: int, classes: int) -> Self:
        if not classes:
            raise InputError("Probabilities are for labels: answer with MeanVariance or Outputs")
        found = _shaped("probabilities", self.probabilities, ((n, classes), (None, n, classes)))
        total = found.sum(-1, keepdim=True)
        if bool((found < 0).any()) or not bool(((total - 1).abs() < _SUM).all()):
            raise InputError("probabilities must be 0 or more, with sum 1 in each row")
        return self._replace(probabilities=_of_samples(found / total, 3))


def is_predictive(posterior: object) -> bool:
    """Return whether something predicts by itself, rather than by parameters of the model."""
    return isinstance(posterior, Answer) or (
        callable(posterior) and not hasattr(posterior, "sample")
    )


def is_stored_whole(predictive: Any) -> bool:
    """Return whether it is a NamedTuple of tensors, which can be stored and asked again."""
    fields = predictive._asdict() if hasattr(predictive, "_asdict") else {}
    return bool(fields) and all(isinstance(value, Tensor) for value in fields.values())


def ask(predictive: Any, x: Tensor, rows: Tensor | None, d_out: int, classes: int) -> Answer:
    """Return what a predictive, or a stored answer, says of rows.

    Errors are those of `Answer.at` and `Answer.checked`.

    Inputs are as the model sees them, (n, d); `rows` are their numbers in the data set, None for
    other rows.
    """
    if isinstance(predictive, Answer):
        return predictive.at(rows)
    device = next(
        (leaf.device for leaf in tree_leaves(predictive) if isinstance(leaf, Tensor)), x.device
    )
    with torch.no_grad():
        answer = predictive(x.to(device, torch.float64))
    if not isinstance(answer, Answer):
        raise InputError(
            f"the predictive answers with {type(answer).__name__}: let it return MeanVariance, Outputs or Probabilities"
        )
    return answer.checked(len(x), d_out, classes)


def check_fit(found: Any, dim: int) -> "Posterior | Predictive":
    """Return what a method has left: a posterior of D parameters, or a predictive.

    `InputError` if it is neither, has another number of parameters, or a value that is not finite.
    """
    kind = type(found).__name__
    if not (is_predictive(found) or hasattr(found, "sample")):
        raise InputError(
            f"fit returned {kind}: return a posterior of bdl.posteriors, or a function of inputs that answers with "
            "MeanVariance, Outputs or Probabilities"
        )
    if isinstance(found, Answer):
        raise InputError(f"fit returned {kind}: return a function of inputs that answers with it")
    if any(
        not bool(torch.isfinite(leaf).all())
        for leaf in tree_leaves(found)
        if isinstance(leaf, Tensor)
    ):
        raise InputError(f"{kind} has values that are not finite")
    if is_predictive(found):
        return found
    if found.dim != dim:
        raise InputError(f"the posterior is over {found.dim} parameters, and the model has {dim}")
    return found.check() if hasattr(found, "check") else found


def _shaped(name: str, value: Any, shapes: tuple[tuple[int | None, ...], ...]) -> Tensor:
    """Return float64 of one of these shapes; None stands for one or more."""
    found = torch.as_tensor(
        value if isinstance(value, Tensor) else np.asarray(value), dtype=torch.float64
    ).detach()
    own = tuple(found.shape)
    fits = (
        len(shape) == len(own) and all(s in (None, n) for s, n in zip(shape, own, strict=True))
        for shape in shapes
    )
    if not any(fits) or not found.numel():
        wanted = " or ".join(
            str(tuple(size or "S" for size in shape)).replace("'", "") for shape in shapes
        )
        raise InputError(f"{name} has shape {own}: give it shape {wanted}")
    if not bool(torch.isfinite(found).all()):
        raise InputError(f"{name} has values that are not finite")
    return found


def _of_samples(value: Tensor, ndim: int) -> Tensor:
    """Return the axis of samples where there is none."""
    return value if value.ndim == ndim else value.unsqueeze(0)
