"""Networks for tests of methods, made by path."""

import torch


def small_net(d_in: int, d_out: int) -> torch.nn.Module:
    """Two dense layers with a normalisation between them."""
    return torch.nn.Sequential(
        torch.nn.Linear(d_in, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, d_out)
    )
