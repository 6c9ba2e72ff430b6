"""Data sets that come with an installed package and need no download."""

from bdl.data.dataset import Dataset


def diabetes() -> Dataset:
    """Disease progression after one year of 442 diabetes patients, 10 inputs, in original units.

    Efron, Hastie, Johnstone and Tibshirani (2004), "Least angle regression"; shipped with scikit-learn.
    """
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True, scaled=False)
    return Dataset("diabetes", x, y)
