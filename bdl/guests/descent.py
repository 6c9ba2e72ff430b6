"""Full-batch descent of torch modules, for guests that start from a trained network."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn


def descend(parameters: Iterable[nn.Parameter], cost: Callable[[], Tensor], steps: int, rate: float) -> None:
    """Minimise a cost by Adam, with a rate that falls to 0 along a half cosine.

    Parameters
    ----------
    parameters
        What is changed.
    cost
        Evaluates the cost, a scalar.
    steps
        Number of updates.
    rate
        First learning rate.
    """
    optimizer = torch.optim.Adam(parameters, lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        cost().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
