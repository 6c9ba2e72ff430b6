"""Arrays, frames, tensors and lists as arrays of numbers.

Anything that cannot be one is refused in one line.
"""

import warnings
from collections.abc import Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bdl.errors import InputError, abbreviate
from bdl.types import Array

Inputs = NDArray[np.float64] | NDArray[np.uint8]

_LARGEST = 1e100
"""Magnitudes of numbers that are accepted: their squares, and sums of these, are finite."""


def as_inputs(array_like: Any, subject: str) -> Inputs:
    """Return inputs, which messages call `subject`, as float64, (n, d), or as images of uint8.

    They are numbers, or true and false, in an array, a frame, a tensor or lists, (n, d); or images
    of uint8, (n, H, W) or (n, C, H, W). Bytes with two axes are a table. `InputError` if the shape
    is another, there is no row or no column, or a value is not a finite number.
    """
    array = _as_numeric_array(array_like, subject)
    if array.ndim == 2:
        array = _as_finite(array, subject, column_names(array_like))
    elif array.dtype != np.uint8 or array.ndim not in (3, 4):
        hint = (
            "; reshape(-1, 1) makes one column"
            if array.ndim == 1
            else ", or images of uint8, (n, H, W)"
        )
        raise InputError(
            f"{subject} is {array.dtype} of shape {array.shape}: give numbers, (n, d){hint}"
        )
    if array.size == 0:
        raise InputError(
            f"{subject} has no {'rows' if len(array) == 0 else 'columns'}: give at least one"
        )
    return array


def as_targets(array_like: Any, subject: str) -> Array:
    """Return targets as float64, (n,); a single column, (n, 1), is taken as well.

    `InputError` if the shape is another, or a value is not a finite number.
    """
    array = _as_numeric_array(array_like, subject)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(
            f"{subject} is {array.dtype} of shape {array.shape}: give one target a row, (n,)"
        )
    return _as_finite(array, subject, ())


def as_numbers(array_like: Any, subject: str) -> Array:
    """Return finite numbers of any shape as float64; `InputError` if they are none."""
    return _as_finite(_as_numeric_array(array_like, subject), subject, ())


def column_names(array_like: Any) -> tuple[str, ...]:
    """Return the names of the columns of a frame, and none for anything else."""
    frame = _as_pandas(array_like)
    return () if frame is None or frame.ndim != 2 else tuple(map(str, frame.columns))


def reorder_columns(array_like: Any, fitted_names: Sequence[str], subject: str) -> Any:
    """Return a frame with its columns in the order of those that were fitted.

    Arrays without names of columns stay as they are.

    `InputError` if columns are missing, unknown or there twice; a warning if only the columns that
    were fitted, or only these, have names, so that the order decides.
    """
    names = column_names(array_like)
    if names and fitted_names:
        check_unique_columns(names, subject)
        missing_names = [name for name in fitted_names if name not in names]
        unknown_names = [name for name in names if name not in fitted_names]
        complaints = []
        if missing_names:
            complaints.append(f"lacks {quote_names(missing_names)}")
        if unknown_names:
            complaints.append(f"has unknown {quote_names(unknown_names)}")
        if complaints:
            raise InputError(
                f"{subject} {' and '.join(complaints)}: "
                f"give the columns {quote_names(fitted_names)}"
            )
        return _as_pandas(array_like).iloc[:, [names.index(name) for name in fitted_names]]
    # One side at most has names. Those that count from 0 are pandas' own for unnamed columns.
    one_sided_names = names or tuple(fitted_names)
    if one_sided_names != tuple(map(str, range(len(one_sided_names)))):
        reason = (
            "the columns that were fitted had no names"
            if names
            else f"{subject} has no names of columns"
        )
        warnings.warn(
            f"{reason}: columns are taken in order, {quote_names(one_sided_names)}",
            UserWarning,
            stacklevel=4,  # the user's call of a method of `bdl.api.fitted.Fitted`
        )
    return array_like


def quote_names(names: Sequence[str]) -> str:
    """Write the first five names of columns in quotation marks, and how many more there are."""
    quoted = ", ".join(f"'{abbreviate(name)}'" for name in names[:5])
    return quoted + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def check_row_labels(X: Any, y: Any) -> None:
    """Raise `InputError` if a frame and its targets have the same row labels in another order."""
    x_frame, y_frame = _as_pandas(X), _as_pandas(y)
    if x_frame is None or y_frame is None or len(x_frame) != len(y_frame):
        return
    x_labels, y_labels = x_frame.index, y_frame.index
    if x_labels.equals(y_labels):
        return
    if x_labels.is_unique and y_labels.is_unique and x_labels.isin(y_labels).all():
        raise InputError("X and y have the same row labels in another order: give y.loc[X.index]")


def _as_numeric_array(array_like: Any, subject: str) -> NDArray[Any]:
    frame = _as_pandas(array_like)
    if frame is not None and frame.ndim == 2:
        names = column_names(frame)
        check_unique_columns(names, subject)
        columns = [
            _convert_column(frame.iloc[:, i], f"{subject}: column '{name}'")
            for i, name in enumerate(names)
        ]
        array = np.column_stack(columns) if columns else np.empty((len(frame), 0))
    elif frame is not None:
        array = _convert_column(frame, subject)
    elif np.ma.is_masked(array_like):
        raise InputError(f"{subject} has masked values: drop or fill those rows")
    elif hasattr(array_like, "toarray"):
        raise InputError(f"{subject} is sparse: give {subject.split()[-1]}.toarray()")
    else:
        array = _convert_array(array_like, subject)
    if array.dtype.kind == "O":
        array = _convert_objects(array, array_like, subject)
    if array.dtype.kind not in "biuf":
        kind = "text" if array.dtype.kind in "SU" else str(array.dtype)
        raise InputError(
            f"{subject} is {kind}, not numbers: encode text, dates and categories first"
        )
    return array


def _convert_array(array_like: Any, subject: str) -> NDArray[Any]:
    try:
        if hasattr(array_like, "detach"):  # a tensor, whose gradient and device do not matter
            array_like = array_like.detach().cpu()
            if array_like.is_floating_point():  # NumPy knows no bfloat16
                array_like = array_like.double()
        return np.asarray(array_like)
    except Exception as error:  # whatever foreign types raise when they are converted
        if "inhomogeneous" in str(error):
            raise InputError(
                f"{subject} has rows of different lengths: give every row as many values"
            ) from None
        reason = " ".join(f"{error}".split())[:100]
        raise InputError(
            f"{subject} is {type(array_like).__name__}, not an array of numbers ({reason})"
        ) from None


def _convert_objects(objects: NDArray[Any], array_like: Any, subject: str) -> Array:
    """Return the numbers in an array of Python objects; texts are never read as numbers."""
    if objects.ndim == 0:
        raise InputError(
            f"{subject} is {type(array_like).__name__}: give numbers in an array, a frame or lists"
        )
    for value in objects.ravel():
        if value is None or type(value).__name__ in ("NAType", "NaTType"):
            raise InputError(f"{subject} has gaps ({value}): drop or fill those rows")
        if not isinstance(value, Real | Decimal | np.bool_):
            raise InputError(
                f"{subject} has {abbreviate(value)} among its values, which is no number: "
                "encode or remove it"
            )
    try:
        return objects.astype(np.float64)
    except (OverflowError, ValueError, TypeError):
        raise InputError(
            f"{subject} has numbers beyond {_LARGEST:g}: give them in another unit"
        ) from None


def _convert_column(column: Any, subject: str) -> NDArray[Any]:
    """Return a column of pandas as float64, with NaN for its gaps."""
    from pandas.api.types import is_bool_dtype, is_complex_dtype, is_numeric_dtype

    dtype = column.dtype
    if dtype.kind == "O" and isinstance(dtype, np.dtype):
        return _convert_objects(column.to_numpy(), column, subject)
    if (
        dtype.name == "category"
        or is_complex_dtype(dtype)
        or not (is_numeric_dtype(dtype) or is_bool_dtype(dtype))
    ):
        raise InputError(
            f"{subject} is {dtype}, not numbers: encode text, dates and categories first"
        )
    return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))


def _as_finite(values: NDArray[Any], subject: str, names: Sequence[str]) -> Array:
    """Return float64; raise `InputError` with the place of the first number that is not finite.

    Numbers whose square overflows are refused as well. `names` are those of columns, if any.
    """
    with np.errstate(over="ignore"):
        array = values.astype(np.float64, copy=False)
    with np.errstate(invalid="ignore"):
        refused = ~(np.abs(array) <= _LARGEST)  # so that NaN is refused
    if not refused.any():
        return array
    row, *column = (int(i) for i in np.argwhere(np.atleast_1d(refused))[0])
    position = f"row {row}" + "".join(
        f" of column '{names[i]}'" if names else f" of column {i}" for i in column
    )
    number = np.atleast_1d(array)[row, *column]
    if np.isfinite(number):
        raise InputError(
            f"{subject} has {number:g}, in {position}, from 0: "
            f"give numbers of at most {_LARGEST:g}"
        )
    raise InputError(
        f"{subject} has NaN or infinite values, the first in {position}, from 0: "
        "drop or fill those rows"
    )


def check_unique_columns(names: Sequence[str], subject: str) -> None:
    """Raise `InputError` if a column is there twice."""
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise InputError(f"{subject} has the column '{repeated[0]}' twice: rename one")


def _as_pandas(array_like: Any) -> Any:
    """Return a frame or a column of pandas, converted if need be; None for anything else."""
    library = type(array_like).__module__.partition(".")[0]
    if library in ("polars", "pyarrow") and hasattr(array_like, "to_pandas"):
        array_like = array_like.to_pandas()
    return array_like if hasattr(array_like, "iloc") else None
