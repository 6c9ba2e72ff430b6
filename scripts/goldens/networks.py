"""A small convolutional network with batch normalisation, for the model ``module``."""

from torch import nn


def small(shape: tuple[int, int, int], outputs: int) -> nn.Module:
    """Return a convolution, its normalisation, and a dense layer.

    The convolution has no bias: normalisation takes it out again, so that its gradient would be
    nothing but rounding, which Adam brings to size.
    """
    channels, height, width = shape
    units = 2 * (height - 2) * (width - 2)
    return nn.Sequential(
        nn.Conv2d(channels, 2, 3, bias=False),
        nn.BatchNorm2d(2),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(units, outputs),
    )
