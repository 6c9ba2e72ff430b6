"""ResNet-18 (He et al. 2016), any network of torchvision, and pretrained weights.

Parameters of this ResNet-18 have the names and shapes of torchvision's. Both are factories for the
model ``module``. Inputs are images in [0, 1]; with colours they are
standardised by the moments of ImageNet first, as pretrained weights expect them.
"""

import hashlib
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bdl.errors import InputError

_DIGEST = "[0-9a-fA-F]{12,64}"


def read_weights(path: Path, sha256: str | None) -> Mapping[str, Any]:
    """Read named tensors from a file that ``torch.save`` wrote.

    `sha256` is the digest (hex, or 12 characters of its start at the least) that it must have;
    None takes any file. `InputError` if the file is missing, damaged or has another digest, or
    `sha256` is no digest.
    """
    if sha256 is not None and not re.fullmatch(_DIGEST, sha256):
        raise InputError(
            f"sha256 '{sha256[:64]}': give the file's SHA-256 in hex, "
            "or its first 12 characters or more"
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"weights {path}: {error.strerror}; give the path of a file that torch.save wrote"
        ) from None
    digest = hashlib.sha256(content).hexdigest()
    if sha256 and not digest.startswith(sha256.lower()):
        raise InputError(
            f"weights {path}: expected sha256 {sha256}, found {digest[: len(sha256)]}; "
            "get the file again"
        )
    try:
        # from the bytes that were verified: the file may have changed since
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:
        raise InputError(
            f"weights {path}: cannot be read ({type(error).__name__}); get the file again"
        ) from None
    if not isinstance(state, Mapping) or not all(
        isinstance(value, Tensor) for value in state.values()
    ):
        raise InputError(f"weights {path}: no tensors by name; save the network's state_dict()")
    return state


def with_weights(net: nn.Module, state: Mapping[str, Any], source: str) -> nn.Module:
    """Load pretrained tensors into a network, except those of its last layer, and return it.

    The network's attribute `pretrained` has their names. Messages call the tensors `source`.
    `InputError` if names or shapes are those of another architecture.
    """
    own_state = net.state_dict()
    last_layer = [*dict(net.named_parameters())][-1].rpartition(".")[0]
    shapes = dict[str, torch.Size]()
    for name, value in own_state.items():
        # counts of batches are of no use with a fixed momentum, and old files have none
        is_count = name.endswith("num_batches_tracked") or name.startswith("num_batches_tracked")
        if not is_count and not name.startswith(f"{last_layer}."):
            shapes[name] = value.shape
    unfit_names = [
        name for name, shape in shapes.items() if name not in state or state[name].shape != shape
    ]
    unknown_names = [name for name in state if name not in own_state]
    if unfit_names or unknown_names:
        raise InputError(
            f"weights {source}: of another architecture: {len(unfit_names)} tensors are missing "
            f"or of another shape and {len(unknown_names)} unknown, "
            f"the first is {(unfit_names + unknown_names)[0]}; use weights of this network"
        )
    net.load_state_dict({name: state[name] for name in shapes}, strict=False)
    vars(net)["pretrained"] = frozenset(shapes)
    return net


_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class _Block(nn.Module):
    """Two 3 x 3 convolutions around which the input passes."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        if stride != 1 or n_in != n_out:
            self.downsample = nn.Sequential(
                nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        inner = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(inner + (self.downsample(x) if hasattr(self, "downsample") else x))


class _ResNet18(nn.Module):
    def __init__(self, channels: int, outputs: int, width: int) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width]
        self.conv1 = nn.Conv2d(channels, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        for number, (n_in, n_out) in enumerate(
            zip([width, *widths], widths, strict=False), start=1
        ):
            blocks = nn.Sequential(
                _Block(n_in, n_out, 1 if number == 1 else 2), _Block(n_out, n_out, 1)
            )
            self.add_module(f"layer{number}", blocks)
        self.fc = nn.Linear(widths[-1], outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        for number in range(1, 5):
            x = getattr(self, f"layer{number}")(x)
        return self.fc(x.mean((-2, -1)))


def resnet18(
    shape: tuple[int, int, int],
    outputs: int,
    weights: str | None = None,
    sha256: str | None = None,
) -> nn.Module:
    """Make a ResNet-18; with two outputs it has 11,177,538 parameters.

    `shape` is (channels, height, width). `weights` is a file of pretrained parameters and running
    statistics, as ``torch.save`` writes torchvision's; the last layer starts anew, and null starts
    all anew. `sha256` and errors as in `read_weights`, and `InputError` if the file has another
    architecture.
    """
    return _prepare_network(_ResNet18(shape[0], outputs, 64), shape[0], weights, sha256)


def narrow_resnet18(
    shape: tuple[int, int, int],
    outputs: int,
    weights: str | None = None,
    sha256: str | None = None,
) -> nn.Module:
    """Make a ResNet-18 with an eighth of the channels, for trials on small images.

    Arguments as in `resnet18`.
    """
    return _prepare_network(_ResNet18(shape[0], outputs, 8), shape[0], weights, sha256)


def torchvision(
    shape: tuple[int, int, int],
    outputs: int,
    arch: str = "resnet18",
    weights: str | None = None,
    sha256: str | None = None,
) -> nn.Module:
    """Make a network of torchvision by its name there, `arch`; else as `resnet18`.

    `weights` may also be ``"DEFAULT"``, which torchvision downloads and checks itself.
    `InputError` also if torchvision is not installed, does not fit torch or knows no such network.
    """
    try:
        from torchvision.models import get_model, get_model_weights
    except (ImportError, RuntimeError) as error:  # the latter where it was built for another torch
        raise InputError(
            f"torchvision cannot be used ({error}): pip install 'bdl-bench[vision]', "
            "or take bdl.models.resnet:resnet18"
        ) from None
    try:
        net = get_model(arch, num_classes=outputs)
    except ValueError as error:
        raise InputError(f"torchvision has no network '{arch}' ({error})") from None
    if weights != "DEFAULT":
        return _prepare_network(net, shape[0], weights, sha256)
    return with_weights(
        _with_standardisation(net, shape[0]),
        get_model_weights(arch).DEFAULT.get_state_dict(check_hash=True),
        arch,
    )


def _prepare_network(
    net: nn.Module, channels: int, weights: str | None, sha256: str | None
) -> nn.Module:
    net = _with_standardisation(net, channels)
    if weights is None:
        return net
    return with_weights(net, read_weights(Path(weights).expanduser(), sha256), weights)


def _with_standardisation(net: nn.Module, channels: int) -> nn.Module:
    """Let the network standardise images with colours first; names of its parameters stay."""
    if channels == 3:
        net.register_buffer("image_mean", torch.tensor(_MEAN).view(3, 1, 1), persistent=False)
        net.register_buffer("image_std", torch.tensor(_STD).view(3, 1, 1), persistent=False)
        net.register_forward_pre_hook(_standardise_images)
    return net


def _standardise_images(net: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    mean, std = net.get_buffer("image_mean"), net.get_buffer("image_std")
    return ((inputs[0] - mean) / std,)
