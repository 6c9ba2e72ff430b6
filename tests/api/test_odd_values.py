"""Every argument of the Python API with values that nobody should give: it works, or one line says why not."""

import datetime
import inspect
import warnings
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

import bdl
from bdl.api import Benchmark
from bdl.errors import InputError

RNG = np.random.default_rng(0)
X = RNG.normal(3, 2, (12, 2))
Y = X @ [2.0, -1.0]
EXACT = {"prior_precision": 1.0, "noise_precision": 4.0}


class Raising:
    """An object that refuses to be an array."""

    def __array__(self, *given: Any, **named: Any) -> Any:
        raise RuntimeError("no array\nof this")


def scalars() -> list[Any]:
    """Return values that are no arrays."""
    return [
        *(None, True, 0, -1, 10**30, 1.5, -0.0, 1e300, float("nan"), float("inf"), 1j, Decimal("1.5"), Fraction(1, 3)),
        *("", "x", "a\nb", "\0", "é" * 300, "1", b"x", bytearray(b"xy"), object(), Raising(), int, len, ...),
        *(np.float32(1), np.int64(2), np.bool_(True), np.str_("x"), np.datetime64("2026-01-01"), pd.NaT, pd.NA),
        *(
            datetime.date(2026, 1, 1),
            Path("x"),
            range(3),
            {1, 2},
            {"a": 1},
            {},
            {None: None},
            (x for x in [1.0]),
            slice(3),
        ),
    ]


def arrays() -> list[Any]:
    """Return arrays, frames, tensors and lists of 12 rows or fewer, most of which cannot be fitted."""
    frame = pd.DataFrame(X, columns=["a", "b"])
    days = pd.date_range("2026-01-01", periods=12)
    columns = [
        days,
        days.tz_localize("UTC"),
        days.to_period("D"),
        days - days[0],
        pd.Categorical(list("abc") * 4),
        pd.Categorical([1, 2, 3] * 4),
        list("abc") * 4,
        ["1", "2,5", "3"] * 4,
        [b"x"] * 12,
        [[1.0]] * 12,
        [{"a": 1}] * 12,
        [Decimal("1.5")] * 12,
        [None, 1.0] * 6,
        [True, None, 2.5] * 4,
        [1j] * 12,
        pd.array([1, None] * 6, dtype="Int64"),
        pd.array([1.5] * 12, dtype="Float64"),
        pd.array([True, None] * 6, dtype="boolean"),
        pd.array([1.0] * 12, dtype="double[pyarrow]"),
        pd.array(["x"] * 12, dtype="string"),
        pd.arrays.SparseArray([0.0, 1.0] * 6),
        pd.interval_range(0, 12),
        [10**400] * 12,
        [2**70] * 12,
    ]
    columns = [pd.Series(column) for column in columns]
    columns.append(pd.Series([1.0] * 12, name="y", index=range(5, 17)))
    return [
        *([], [[]], [[1.0], [2.0, 3.0]], [[], []], [[1.0, None]], [["1", "2"]], [[1.0, 2.0]], [[[1.0]]], np.array(3.0)),
        *(X[:0], X[:, :0], X[:1], X[0], X[:, :, None], X + 1j, X.astype(object), X.astype(str), X.astype("S"), X > 0),
        *(np.where(X > 3, np.nan, X), np.where(X > 3, -np.inf, X), X * 1e200, X.astype(np.longdouble) ** 2000),
        *(X.astype(np.float16), X.astype(np.uint8), np.ones((12, 2, 2), np.uint8), np.ones((12, 2, 2, 2, 2), np.uint8)),
        *(np.ma.masked_greater(X, 3), np.ma.asarray(X), scipy.sparse.csr_array(X), scipy.sparse.csr_matrix(X)),
        *(
            days.to_numpy(),
            np.zeros(12, dtype=[("a", float)]),
            np.rec.fromarrays([X[:, 0]]),
            X[::-1],
            np.asfortranarray(X),
        ),
        *(
            torch.tensor(X, requires_grad=True),
            torch.tensor(X).bfloat16(),
            torch.tensor(X).to_sparse(),
            torch.ones(12, 2),
        ),
        *(torch.tensor(X, device="meta"), torch.tensor(X + 1j), torch.tensor([]), [torch.tensor(1.0)] * 12),
        *([torch.ones(2, requires_grad=True)] * 12, torch.ones(12, 2, dtype=torch.bool)),
        *(
            frame,
            frame[["b", "a"]],
            frame[["a", "a"]],
            frame.set_axis([0, 1], axis=1),
            frame.iloc[::-1],
            frame.assign(c=1),
        ),
        *(frame[[]], frame[:0], frame.T, frame.set_index("a"), pd.get_dummies(frame.assign(k=list("uv") * 6)), frame.a),
        *(pd.get_dummies(frame.assign(k=list("uv") * 6), sparse=True), pd.concat([frame], axis=1, keys=["top"])),
        *(frame.assign(b=column) for column in columns),
        *columns,
        *(
            Y[:, None],
            Y[None],
            Y > 0,
            np.arange(12) % 3,
            -np.arange(12),
            np.full(12, 7.0),
            Y.tolist(),
            tuple(Y),
            iter(Y),
        ),
    ]


def tries() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield a call for each argument of each function, and each odd value of it."""
    given: dict[Any, dict[str, Any]] = {
        bdl.fit: {"method": "conjugate", "model": "linear", "likelihood": "gaussian", "X": X, "y": Y, "hyper": EXACT},
        _regressor: {"X": X, "y": Y},
        _classifier: {"X": X, "y": Y > 3},
        _with_hyper: {"prior_precision": 1.0, "noise_precision": 4.0},
        bdl.benchmark: {"name_or_path": "uci-regression"},
        bdl.results: {"name_or_path": "uci-regression"},
        bdl.posterior: {"found": "uci-regression", "dataset": "yacht", "method": "vifa-lr"},
    }
    fitted = bdl.fit(**given[bdl.fit])
    named = bdl.fit(**given[bdl.fit] | {"X": pd.DataFrame(X, columns=["a", "b"])})
    estimator = bdl.Regressor().fit(X, Y)
    run = Benchmark("uci-regression", "quick")
    given |= {fitted.predict: {"x": X}, fitted.predict_distribution: {"x": X}, named.predict: {"x": X}}
    given |= {fitted.predict_interval: {"x": X, "level": 0.9}}
    given |= {fitted.sample: {"n": 1, "seed": 0}, fitted.log_density: {"theta": np.zeros(3)}}
    given |= {estimator.predict: {"X": X}, estimator.predict_distribution: {"X": X}, run.results: {}}
    for function, usual in given.items():
        for name in inspect.signature(function).parameters:
            for i, odd in enumerate([*scalars(), *arrays()]):
                what = f"{function.__qualname__}({name}={type(odd).__name__} {i}: {str(odd)[:60]!r})"
                yield what, lambda function=function, usual=usual, name=name, odd=odd: function(**usual | {name: odd})


def _regressor(
    X: Any,
    y: Any,
    method: Any = "conjugate",
    hyper: Any = "auto",
    training: Any = None,
    samples: Any = 5,
    seed: Any = 0,
) -> Any:
    return bdl.Regressor(method=method, hyper=hyper, training=training, samples=samples, random_state=seed).fit(X, y)


def _classifier(X: Any, y: Any, likelihood: Any = "auto", prior_precision: Any = 1.0) -> Any:
    return bdl.Classifier(likelihood=likelihood, prior_precision=prior_precision, samples=5).fit(X, y)


def _with_hyper(prior_precision: Any, noise_precision: Any) -> Any:
    hyper = {"prior_precision": prior_precision, "noise_precision": noise_precision}
    return bdl.fit("conjugate", "linear", "gaussian", X, Y, hyper)


@pytest.mark.slow  # some thousand calls
def test_an_odd_value_works_or_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = []
    for what, call in tries():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call()
        except InputError as error:
            if "\n" in str(error) or not str(error):
                found.append(f"{what}: not one line: {error}")
        except Exception as error:
            found.append(f"{what}: {type(error).__name__}: {str(error)[:200]}")
    assert found == []
