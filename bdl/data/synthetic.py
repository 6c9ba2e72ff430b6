"""Data drawn from a known model, a new draw for every split."""

import numpy as np

from bdl.data.dataset import Dataset
from bdl.data.splits import Split

_DRAWS, _ROWS = 10, 1000
_PRIOR_PRECISION, _NOISE_PRECISION = 0.01, 0.1


def synthetic() -> Dataset:
    """Ten draws of a linear regression with two parameters and 1000 rows; split i is draw i.

    x ~ N(0, [[1, 0.5], [0.5, 1]]), theta ~ N(0, I / 0.01), y ~ N(theta . x, 1 / 0.1), without a bias
    (Brownlie 2022, sections 4.4.2 and 5.2.1). Draw i seeds the legacy generator with i and takes x, theta and the
    noise in this order. All rows of a draw train; none test.
    """
    draws = [_draw(seed) for seed in range(_DRAWS)]
    x, y = (np.concatenate(parts) for parts in zip(*draws, strict=True))
    return Dataset("synthetic", x, y, splits=_DRAWS, published=_block)


def _draw(seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.RandomState(seed)
    x = generator.multivariate_normal(np.zeros(2), [[1, 0.5], [0.5, 1]], _ROWS)
    theta = generator.normal(0, _PRIOR_PRECISION**-0.5, 2)
    return x, x @ theta + generator.normal(0, _NOISE_PRECISION**-0.5, _ROWS)


def _block(index: int) -> Split:
    return Split(np.arange(index * _ROWS, (index + 1) * _ROWS), np.arange(0))
