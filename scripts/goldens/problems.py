"""The small fixed data that golden trials train on and score."""

from functools import lru_cache

import torch
from torch import Tensor

from bdl.data import Dataset
from bdl.data.splits import Rows, Split

ROWS, TRAINING = 30, 22
"""Rows, and those of them that train: with minibatches of 6 an epoch leaves 4 rows over."""
BATCH = 6
HYPER = {
    "learning_rate": 0.02,
    "prior_precision": 0.7,
    "noise_precision": 0.3,
    "dropout_rate": 0.1,
    "weight_decay": 0.01,
    "warmup_learning_rate": 0.03,
    "initial_precision": 2.0,
    "kl_weight": 0.5,
}
"""Values of hyper-parameters, original units."""
_OTHER = 0.4


def hyper_of(name: str) -> float:
    """Return the value of a hyper-parameter; an unusual name has a value of its own."""
    return HYPER.get(name, _OTHER)


def wave(*shape: int, phase: float = 0.0) -> Tensor:
    """Return irregular fixed numbers of mean about 0 and size about 1, float64."""
    places = torch.arange(1, 1 + int(torch.tensor(shape).prod()), dtype=torch.float64)
    return (1.4 * torch.sin(places * places.sqrt() + phase)).view(shape)


@lru_cache(maxsize=8)
def table(classes: int, images: tuple[int, ...] = ()) -> Dataset:
    """Return inputs and a target that they explain.

    `classes` is 0 for a number, `images` the shape of one.
    """
    x = wave(ROWS, 3)
    signal = x @ torch.tensor([1.0, -0.6, 0.3], dtype=torch.float64) + 0.4 * wave(ROWS, phase=1.0)
    y = 5 + 2 * signal if not classes else torch.argsort(signal.argsort()) * classes // ROWS
    pixels = (
        120 + 60 * (wave(ROWS, *images, phase=2.0) + 0.4 * signal.view(-1, *(1 for _ in images)))
    ).clamp(0, 255)
    inputs = (
        pixels.to(torch.uint8)
        if images
        else 3 + x * torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    )
    return Dataset(
        "golden", inputs.numpy(), y.double().numpy(), "classification" if classes else "regression"
    )


def rows(trial: int, of: int = ROWS) -> Rows:
    """Return the training rows of a trial, in an order of its own."""
    order = (wave(of, phase=3.0 + trial)).argsort()
    return order[:TRAINING].numpy()


def split(of: Dataset) -> Split:
    """Return training rows, test rows, and rows to validate on."""
    order = wave(len(of.y), phase=4.0).argsort().numpy()
    return Split(order[:16], order[16:24], order[24:])
