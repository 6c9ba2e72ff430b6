"""Every argument of the Python API with values that nobody should give: it works, or one line says why not."""

import inspect
import warnings
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

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
FRAME = pd.DataFrame(X, columns=["a", "b"])


class Raising:
    """An object that refuses to be an array."""

    def __array__(self, *given, **named):
        raise RuntimeError("no array\nof this")


def scalars():
    """Return values that are no arrays."""
    return [
        *(
            None,
            True,
            0,
            -1,
            10**30,
            1.5,
            -0.0,
            1e300,
            float("nan"),
            float("inf"),
            1j,
            Decimal("1.5"),
            Fraction(1, 3),
        ),
        *(
            "",
            "x",
            "a\nb",
            "\0",
            "é" * 300,
            "1",
            b"x",
            bytearray(b"xy"),
            object(),
            Raising(),
            int,
            len,
            ...,
            Path("x"),
        ),
        *(
            np.float32(1),
            np.int64(2),
            np.bool_(True),
            np.str_("x"),
            np.datetime64("2026-01-01"),
            pd.NaT,
            pd.NA,
        ),
        *(range(3), {1, 2}, {"a": 1}, {}, {None: None}, (x for x in [1.0]), slice(3)),
    ]


def columns():
    """Return columns of 12 rows, of every type that pandas has."""
    days = pd.date_range("2026-01-01", periods=12)
    texts = [
        list("abc") * 4,
        ["1", "2,5", "3"] * 4,
        [b"x"] * 12,
        pd.array(["x"] * 12, dtype="string"),
    ]
    objects = [
        [[1.0]] * 12,
        [{"a": 1}] * 12,
        [Decimal("1.5")] * 12,
        [None, 1.0] * 6,
        [True, None, 2.5] * 4,
    ]
    large = [[1j] * 12, [10**400] * 12, [2**70] * 12]
    dates = [
        days,
        days.tz_localize("UTC"),
        days.to_period("D"),
        days - days[0],
        pd.interval_range(0, 12),
    ]
    kinds = [
        pd.Categorical(list("abc") * 4),
        pd.Categorical([1, 2, 3] * 4),
        pd.arrays.SparseArray([0.0, 1.0] * 6),
    ]
    gaps = [pd.array([1, None] * 6, dtype="Int64"), pd.array([True, None] * 6, dtype="boolean")]
    whole = [pd.array([1.5] * 12, dtype=dtype) for dtype in ("Float64", "double[pyarrow]")]
    found = [
        pd.Series(column) for column in (*texts, *objects, *large, *dates, *kinds, *gaps, *whole)
    ]
    return [*found, pd.Series([1.0] * 12, name="y", index=range(5, 17))]


def arrays():
    """Return arrays, frames, tensors and lists of 12 rows or fewer, most of which cannot be fitted."""
    lists = [
        [],
        [[]],
        [[1.0], [2.0, 3.0]],
        [[], []],
        [[1.0, None]],
        [["1", "2"]],
        [[1.0, 2.0]],
        [[[1.0]]],
    ]
    shapes = [
        np.array(3.0),
        X[:0],
        X[:, :0],
        X[:1],
        X[0],
        X[:, :, None],
        X[::-1],
        np.asfortranarray(X),
    ]
    types = [X.astype(dtype) for dtype in (complex, object, str, "S", np.float16, np.uint8)]
    types += [
        X > 0,
        X.astype(np.longdouble) ** 2000,
        np.zeros(12, dtype=[("a", float)]),
        np.rec.fromarrays([X[:, 0]]),
    ]
    values = [np.where(X > 3, np.nan, X), np.where(X > 3, -np.inf, X), X * 1e200]
    images = [np.ones((12, 2, 2), np.uint8), np.ones((12, 2, 2, 2, 2), np.uint8)]
    others = [
        np.ma.masked_greater(X, 3),
        np.ma.asarray(X),
        scipy.sparse.csr_array(X),
        scipy.sparse.csr_matrix(X),
    ]
    tensors = [
        torch.tensor(X, requires_grad=True),
        torch.tensor(X).bfloat16(),
        torch.tensor(X).to_sparse(),
    ]
    tensors += [
        torch.tensor(X, device="meta"),
        torch.tensor(X + 1j),
        torch.tensor([]),
        [torch.tensor(1.0)] * 12,
    ]
    tensors += [
        torch.ones(12, 2),
        torch.ones(12, 2, dtype=torch.bool),
        [torch.ones(2, requires_grad=True)] * 12,
    ]
    frames = [
        FRAME,
        FRAME[["b", "a"]],
        FRAME[["a", "a"]],
        FRAME.set_axis([0, 1], axis=1),
        FRAME.iloc[::-1],
        FRAME.T,
    ]
    frames += [
        FRAME.assign(c=1),
        FRAME[[]],
        FRAME[:0],
        FRAME.set_index("a"),
        pd.concat([FRAME], axis=1, keys=["top"]),
    ]
    frames += [
        pd.get_dummies(FRAME.assign(k=list("uv") * 6), sparse=sparse) for sparse in (False, True)
    ]
    frames += [FRAME.assign(b=column) for column in columns()]
    targets = [
        Y[:, None],
        Y[None],
        Y > 0,
        np.arange(12) % 3,
        -np.arange(12),
        np.full(12, 7.0),
        Y.tolist(),
        iter(Y),
    ]
    return [
        *lists,
        *shapes,
        *types,
        *values,
        *images,
        *others,
        *tensors,
        *frames,
        *columns(),
        *targets,
    ]


def regressor(X, y, method="conjugate", hyper="auto", training=None, samples=5, seed=0):
    return bdl.Regressor(
        method=method, hyper=hyper, training=training, samples=samples, random_state=seed
    ).fit(X, y)


def classifier(X, y, likelihood="auto", prior_precision=1.0):
    return bdl.Classifier(likelihood=likelihood, prior_precision=prior_precision, samples=5).fit(
        X, y
    )


def with_hyper(prior_precision, noise_precision):
    hyper = {"prior_precision": prior_precision, "noise_precision": noise_precision}
    return bdl.fit("conjugate", "linear", "gaussian", X, Y, hyper)


def tries():
    """Yield a call for each argument of each function, and each odd value of it."""
    usual = {
        "method": "conjugate",
        "model": "linear",
        "likelihood": "gaussian",
        "X": X,
        "y": Y,
        "hyper": EXACT,
    }
    fitted, named = bdl.fit(**usual), bdl.fit(**usual | {"X": FRAME})
    estimator = bdl.Regressor().fit(X, Y)
    given = {
        bdl.fit: usual,
        regressor: {"X": X, "y": Y},
        classifier: {"X": X, "y": Y > 3},
        with_hyper: EXACT,
        bdl.benchmark: {"name_or_path": "uci-regression"},
        bdl.results: {"name_or_path": "uci-regression"},
        bdl.posterior: {"found": "uci-regression", "dataset": "yacht", "method": "vifa-lr"},
        fitted.predict: {"x": X},
        fitted.predict_distribution: {"x": X},
        named.predict: {"x": X},
        fitted.predict_interval: {"x": X, "level": 0.9},
        fitted.sample: {"n": 1, "seed": 0},
        fitted.log_density: {"theta": np.zeros(3)},
        estimator.predict: {"X": X},
        estimator.predict_distribution: {"X": X},
        Benchmark("uci-regression", "quick").results: {},
    }
    for function, arguments in given.items():
        for name in inspect.signature(function).parameters:
            for i, odd in enumerate([*scalars(), *arrays()]):
                what = (
                    f"{function.__qualname__}({name}={type(odd).__name__} {i}: {str(odd)[:60]!r})"
                )
                yield what, function, arguments | {name: odd}


@pytest.mark.slow  # some thousand calls
def test_an_odd_value_works_or_is_told_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = []
    for what, function, arguments in tries():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                function(**arguments)
        except InputError as error:
            if "\n" in str(error) or not str(error):
                found.append(f"{what}: not one line: {error}")
        except Exception as error:
            found.append(f"{what}: {type(error).__name__}: {str(error)[:200]}")
    assert found == []


def test_numbers_of_numpy_are_numbers():
    """They come out of searches, frames and loops over arrays, and count as those of Python."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = x @ [1, -2] + 0.1 * rng.normal(size=60)
    numbers = {"prior_precision": 1.0, "noise_precision": 100.0, "learning_rate": 0.01}
    of_numpy = {name: np.float64(value) for name, value in numbers.items()}
    training = {"epochs": 5, "batch_size": 10}
    training_of_numpy = {"epochs": np.int64(5), "batch_size": np.uint8(10)}
    expected = bdl.fit("bbb", "linear", "gaussian", x, y, numbers, training=training, seed=3)
    fitted = bdl.fit(
        {"name": "bbb", "initial_rho": np.float64(-1)},
        "linear",
        "gaussian",
        x,
        y,
        of_numpy,
        training=training_of_numpy,
        seed=np.int64(3),
    )
    np.testing.assert_array_equal(fitted.predict(x), expected.predict(x))
    for seed in (3, np.int64(3)):
        estimator = bdl.Regressor("bbb", random_state=seed, training=training, **numbers)
        np.testing.assert_array_equal(estimator.fit(x, y).predict(x), expected.predict(x))
    other = bdl.Regressor("bbb", random_state=np.int32(4), training=training, **numbers)
    assert (other.fit(x, y).predict(x) != expected.predict(x)).any()


def test_a_calibration_refuses_targets_of_other_rows():
    """As `fit` does: the same labels in another order."""
    frame = pd.DataFrame({"a": np.arange(20.0), "b": np.arange(20.0) % 3})
    y = pd.Series(np.arange(20.0))
    fitted = bdl.Regressor(hyper={"prior_precision": 1, "noise_precision": 1}).fit(frame, y)
    with pytest.raises(InputError, match="same row labels in another order"):
        bdl.calibration(fitted, frame, y[::-1])


def test_calibration_is_of_a_fit():
    with pytest.raises(InputError, match=r"calibration: fit: give a fitted bdl\.Regressor"):
        bdl.calibration(5, [[1.0]], [1.0])
