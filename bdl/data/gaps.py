"""Small simulated problems whose posteriors can be sampled in a minute, a new draw for every split.

A draw seeds NumPy's generator with its number.
"""

import numpy as np

from bdl.data.dataset import Dataset
from bdl.data.teachers import joined

_DRAWS = 10


def gap_curve() -> Dataset:
    """Forty rows of y = sin(3 x) + N(0, 0.1^2), x uniform on [-2, -0.7] and [0.7, 2] alike; 101 test rows.

    The test rows are evenly spaced on [-3, 3]: among the training rows, in the gap and beyond them.
    """
    draws = []
    for index in range(_DRAWS):
        generator = np.random.default_rng(index)
        x = np.concatenate([generator.uniform(-2, -0.7, 20), generator.uniform(0.7, 2, 20), np.linspace(-3, 3, 101)])
        draws.append((x[:, None], np.sin(3 * x) + 0.1 * generator.standard_normal(len(x))))
    return joined("gap_curve", 40, draws)


def two_moons() -> Dataset:
    """Two half circles, 100 rows that train and 200 that test, by scikit-learn's `make_moons` with noise 0.2."""
    from sklearn.datasets import make_moons

    draws = [make_moons(300, noise=0.2, random_state=index) for index in range(_DRAWS)]
    return joined("two_moons", 100, [(x, y.astype(np.float64)) for x, y in draws], "classification")
