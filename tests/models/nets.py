"""Networks of plain torch, as a user would write them, and functions that make ones which do not fit."""

from itertools import pairwise

import torch
from torch import nn


class Residual(nn.Module):
    """A block as in a ResNet: convolutions, batch norm, rectifiers that write into their inputs, and a sum."""

    def __init__(self, channels, momentum):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels, momentum=momentum)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels, momentum=momentum)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        out += x
        return self.relu(out)


def convolutional(shape, d_out, channels=3, momentum=0.1):
    return nn.Sequential(
        nn.Conv2d(shape[0], channels, 3, padding=1),
        Residual(channels, momentum),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, d_out),
    )


def dense(d_in, d_out, hidden=()):
    widths = (d_in, *hidden, d_out)
    layers = [part for sizes in pairwise(widths) for part in (nn.Linear(*sizes), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


class Scaled(nn.Module):
    """One layer with its inputs divided by a constant that is a buffer, and a scale of its own that starts at 0.25."""

    def __init__(self, d_in, d_out):
        super().__init__()
        self.register_buffer("unit", torch.full((d_in,), 4.0))
        self.layer = nn.Linear(d_in, d_out)
        self.slope = nn.PReLU()

    def forward(self, x):
        return self.slope(self.layer(x / self.unit))


def only(layer):
    def factory(d_in, d_out):
        return nn.Sequential(nn.Linear(d_in, d_out), layer())

    return factory


dropout, cumulative = only(lambda: nn.Dropout(0.1)), only(lambda: nn.BatchNorm1d(2, momentum=None))
instance, idle = (
    only(lambda: nn.InstanceNorm1d(2, track_running_stats=True)),
    only(lambda: nn.Dropout(0.0)),
)
untracked = only(lambda: nn.BatchNorm1d(1, track_running_stats=False))
frozen = only(lambda: nn.PReLU().requires_grad_(False))


class HeadFirst(nn.Module):
    """Its last layer is made before the others."""

    def __init__(self, d_in, d_out):
        super().__init__()
        self.head = nn.Linear(4, d_out)
        self.body = nn.Linear(d_in, 4)

    def forward(self, x):
        return self.head(self.body(x).tanh())


def no_network(d_in, d_out):
    return "network"
