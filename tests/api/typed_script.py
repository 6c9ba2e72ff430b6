"""A user's script, which mypy checks strictly with the package (``files`` in pyproject.toml).

No test runs it: its annotations are the check.
"""

from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import bdl

x, y = np.zeros((9, 2)), np.zeros(9)
model = bdl.Regressor().fit(x, y)
assert_type(model, bdl.Regressor)
assert_type(model.predict(x), NDArray[np.float64])
assert_type(model.predict(x, return_std=True), tuple[NDArray[np.float64], NDArray[np.float64]])
mean, deviation = model.predict(x, return_std=True)
assert_type(bdl.Regressor.load("fit"), bdl.Regressor)
fitted: bdl.Fitted = bdl.fit("conjugate", "linear", "gaussian", x, y)
assert_type(bdl.load("fit").predict_interval(x, level=0.5), NDArray[np.float64])
bdl.calibration(model, x, y).table.plot()
