"""Arrays, frames, tensors and lists as arrays of numbers.

What cannot be one is refused in one line.
"""

import warnings
from collections.abc import Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bdl.errors import InputError, short

Array = NDArray[np.float64]
Inputs = NDArray[np.float64] | NDArray[np.uint8]

_LARGEST = 1e100
"""Magnitudes of numbers that are accepted: their squares, and sums of these, are finite."""


def inputs(given: Any, what: str) -> Inputs:
    """Return inputs, which messages call `what`, as float64, (n, d), or as images of uint8.

    Given are numbers, or true and false, in an array, a frame, a tensor or lists, (n, d); or
    images of uint8, (n, H, W) or (n, C, H, W). Bytes with two axes are a table. `InputError` if
    the shape is another, there is no row or no column, or a value is not a finite number.
    """
    found = _plain(given, what)
    if found.ndim == 2:
        found = _finite(found, what, columns_of(given))
    elif found.dtype != np.uint8 or found.ndim not in (3, 4):
        hint = (
            "; reshape(-1, 1) makes one column"
            if found.ndim == 1
            else ", or images of uint8, (n, H, W)"
        )
        raise InputError(
            f"{what} is {found.dtype} of shape {found.shape}: give numbers, (n, d){hint}"
        )
    if found.size == 0:
        raise InputError(
            f"{what} has no {'rows' if len(found) == 0 else 'columns'}: give at least one"
        )
    return found


def targets(given: Any, what: str) -> Array:
    """Return targets as float64, (n,); a single column, (n, 1), is taken as well.

    `InputError` if the shape is another, or a value is not a finite number.
    """
    found = _plain(given, what)
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim != 1:
        raise InputError(
            f"{what} is {found.dtype} of shape {found.shape}: give one target a row, (n,)"
        )
    return _finite(found, what, ())


def numbers(given: Any, what: str) -> Array:
    """Return finite numbers of any shape as float64; `InputError` if they are none."""
    return _finite(_plain(given, what), what, ())


def columns_of(given: Any) -> tuple[str, ...]:
    """Return the names of the columns of a frame, and none for what is no frame."""
    frame = _pandas(given)
    return () if frame is None or frame.ndim != 2 else tuple(map(str, frame.columns))


def in_order(given: Any, columns: Sequence[str], what: str) -> Any:
    """Return a frame with its columns in the order of those that were fitted.

    What has no names stays as it is.

    `InputError` if columns are missing, unknown or there twice; a warning if only the columns that
    were fitted, or only these, have names, so that the order decides.
    """
    called = columns_of(given)
    if called and columns:
        check_once(called, what)
        missing = [name for name in columns if name not in called]
        strange = [name for name in called if name not in columns]
        if missing or strange:
            parts = [("lacks", missing), ("has unknown", strange)]
            told = " and ".join(f"{verb} {_listed(found)}" for verb, found in parts if found)
            raise InputError(f"{what} {told}: give the columns {_listed(columns)}")
        return _pandas(given).iloc[:, [called.index(name) for name in columns]]
    unnamed = tuple(map(str, range(len(called or columns))))
    if (called or columns) and (called or tuple(columns)) != unnamed:
        which = (
            "the columns that were fitted had no names"
            if called
            else f"{what} has no names of columns"
        )
        warnings.warn(
            f"{which}: columns are taken in order, {_listed(called or columns)}",
            UserWarning,
            stacklevel=4,
        )
    return given


def check_aligned(X: Any, y: Any) -> None:
    """Raise `InputError` if a frame and its targets have the same row labels in another order."""
    one, other = _pandas(X), _pandas(y)
    if one is None or other is None or len(one) != len(other) or one.index.equals(other.index):
        return
    if one.index.is_unique and other.index.is_unique and one.index.isin(other.index).all():
        raise InputError("X and y have the same row labels in another order: give y.loc[X.index]")


def _plain(given: Any, what: str) -> NDArray[Any]:
    frame = _pandas(given)
    if frame is not None and frame.ndim == 2:
        called = columns_of(frame)
        check_once(called, what)
        parts = [
            _of_column(frame.iloc[:, i], f"{what}: column '{name}'")
            for i, name in enumerate(called)
        ]
        found = np.column_stack(parts) if parts else np.empty((len(frame), 0))
    elif frame is not None:
        found = _of_column(frame, what)
    elif np.ma.is_masked(given):
        raise InputError(f"{what} has masked values: drop or fill those rows")
    elif hasattr(given, "toarray"):
        raise InputError(f"{what} is sparse: give {what.split()[-1]}.toarray()")
    else:
        found = _of_array(given, what)
    if found.dtype.kind == "O":
        found = _of_objects(found, given, what)
    if found.dtype.kind not in "biuf":
        shown = "text" if found.dtype.kind in "SU" else str(found.dtype)
        raise InputError(
            f"{what} is {shown}, not numbers: encode text, dates and categories first"
        )
    return found


def _of_array(given: Any, what: str) -> NDArray[Any]:
    try:
        if hasattr(given, "detach"):  # a tensor, whose gradient and device do not matter
            given = given.detach().cpu()
            given = given.double() if given.is_floating_point() else given
        return np.asarray(given)
    except Exception as error:  # whatever foreign types raise when they are converted
        if "inhomogeneous" in str(error):
            raise InputError(
                f"{what} has rows of different lengths: give every row as many values"
            ) from None
        reason = " ".join(f"{error}".split())[:100]
        raise InputError(
            f"{what} is {type(given).__name__}, not an array of numbers ({reason})"
        ) from None


def _of_objects(found: NDArray[Any], given: Any, what: str) -> Array:
    """Return numbers that stand in an array of Python objects; texts are never read as numbers."""
    if found.ndim == 0:
        raise InputError(
            f"{what} is {type(given).__name__}: give numbers in an array, a frame or lists"
        )
    for value in found.ravel():
        if value is None or type(value).__name__ in ("NAType", "NaTType"):
            raise InputError(f"{what} has gaps ({value}): drop or fill those rows")
        if not isinstance(value, Real | Decimal | np.bool_):
            raise InputError(
                f"{what} has {short(value)} among its values, which is no number: encode or remove it"
            )
    try:
        return found.astype(np.float64)
    except (OverflowError, ValueError, TypeError):
        raise InputError(
            f"{what} has numbers beyond {_LARGEST:g}: give them in another unit"
        ) from None


def _of_column(column: Any, what: str) -> NDArray[Any]:
    """Return a column of pandas as float64, with NaN for its gaps."""
    from pandas.api.types import is_bool_dtype, is_complex_dtype, is_numeric_dtype

    kind = column.dtype
    if kind.kind == "O" and isinstance(kind, np.dtype):
        return _of_objects(column.to_numpy(), column, what)
    if (
        kind.name == "category"
        or is_complex_dtype(kind)
        or not (is_numeric_dtype(kind) or is_bool_dtype(kind))
    ):
        raise InputError(f"{what} is {kind}, not numbers: encode text, dates and categories first")
    return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))


def _finite(values: NDArray[Any], what: str, called: Sequence[str]) -> Array:
    """Return float64.

    NaN, infinities and numbers that overflow when they are squared are refused with their place.
    """
    with np.errstate(over="ignore"):
        found = values.astype(np.float64, copy=False)
    with np.errstate(invalid="ignore"):
        bad = ~(np.abs(found) <= _LARGEST)
    if not bad.any():
        return found
    row, *column = (int(i) for i in np.argwhere(np.atleast_1d(bad))[0])
    where = f"row {row}" + "".join(
        f" of column '{called[i]}'" if called else f" of column {i}" for i in column
    )
    if np.isfinite(first := np.atleast_1d(found)[row, *column]):
        raise InputError(
            f"{what} has {first:g}, in {where}, from 0: give numbers of at most {_LARGEST:g}"
        )
    raise InputError(
        f"{what} has NaN or infinite values, the first in {where}, from 0: drop or fill those rows"
    )


def check_once(called: Sequence[str], what: str) -> None:
    """Raise `InputError` if a column is there twice."""
    if twice := [name for name in called if called.count(name) > 1]:
        raise InputError(f"{what} has the column '{twice[0]}' twice: rename one")


def _pandas(given: Any) -> Any:
    """Return what is, or can become, a frame or a column of pandas; None for anything else."""
    if type(given).__module__.partition(".")[0] in ("polars", "pyarrow") and hasattr(
        given, "to_pandas"
    ):
        given = given.to_pandas()
    return given if hasattr(given, "iloc") else None


def _listed(found: Sequence[str]) -> str:
    shown = ", ".join(f"'{short(name)}'" for name in found[:5])
    return shown + (f" and {len(found) - 5} more" if len(found) > 5 else "")
