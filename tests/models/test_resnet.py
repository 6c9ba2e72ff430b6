"""ResNet-18: names, shapes, outputs, and pretrained weights that fit or do not."""

import hashlib
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from bdl.errors import InputError
from bdl.models.modules import Module
from bdl.models.resnet import resnet18, torchvision

SHAPE = (3, 32, 32)
D_IN = 3 * 32 * 32


def network(**settings) -> Module:
    return Module("bdl.models.resnet:resnet18", settings, SHAPE)


@pytest.fixture
def weights(tmp_path):
    """Parameters and statistics of a network with a last layer of ten classes, as a file, and what is in it."""
    torch.manual_seed(1)
    net = resnet18((3, 64, 64), 10)
    for name, value in net.state_dict().items():
        if value.is_floating_point():
            value.copy_(torch.rand_like(value) + ("var" in name))
    torch.save(net.state_dict(), tmp_path / "weights.pth")
    return tmp_path / "weights.pth", net.state_dict()


def test_it_has_the_published_number_of_parameters_and_torchvisions_names():
    assert network().dim(D_IN, 2) == 11_177_538
    shapes = {name: tuple(value.shape) for name, value in resnet18(SHAPE, 2).named_parameters()}
    assert len(shapes) == 62
    assert [*shapes][:4] == ["conv1.weight", "bn1.weight", "bn1.bias", "layer1.0.conv1.weight"]
    assert [*shapes][-2:] == ["fc.weight", "fc.bias"]
    assert shapes["conv1.weight"] == (64, 3, 7, 7)
    assert shapes["layer2.0.downsample.0.weight"] == (128, 64, 1, 1)
    assert shapes["layer4.1.conv2.weight"] == (512, 512, 3, 3)
    assert shapes["fc.weight"] == (2, 512)
    assert not any("layer1.0.downsample" in name for name in shapes)


def test_its_outputs_are_those_of_the_formulas():
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
        inner = F.relu(norm(F.conv2d(x, p[f"{name}.conv1.weight"], stride=stride, padding=1), f"{name}.bn1"))
        inner = norm(F.conv2d(inner, p[f"{name}.conv2.weight"], padding=1), f"{name}.bn2")
        if f"{name}.downsample.0.weight" in p:
            x = norm(F.conv2d(x, p[f"{name}.downsample.0.weight"], stride=stride), f"{name}.downsample.1")
        return F.relu(inner + x)

    images = torch.rand(2, *SHAPE)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    x = (images - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    x = F.max_pool2d(F.relu(norm(F.conv2d(x, p["conv1.weight"], stride=2, padding=3), "bn1")), 3, 2, 1)
    for layer, stride in ((1, 1), (2, 2), (3, 2), (4, 2)):
        x = block(block(x, f"layer{layer}.0", stride), f"layer{layer}.1", 1)
    expected = x.mean((2, 3)) @ p["fc.weight"].T + p["fc.bias"]
    torch.testing.assert_close(net(images), expected)


def test_pretrained_weights_start_all_but_the_last_layer(weights):
    path, state = weights
    model = network(weights=str(path), sha256=hashlib.sha256(path.read_bytes()).hexdigest()[:12])
    theta = model.initial(torch.randn(model.dim(D_IN, 2)), D_IN, 2)
    assert torch.equal(theta[: 64 * 3 * 49], state["conv1.weight"].flatten())
    assert torch.equal(theta[:-1026][-512:], state["layer4.1.bn2.bias"])
    assert theta[-2:].tolist() == [0, 0]
    assert theta[-1026:-2].std().item() == pytest.approx((2 / 512) ** 0.5, rel=0.1)
    assert torch.equal(model.buffers(D_IN, 2)["bn1.running_var"], state["bn1.running_var"])


def test_without_weights_everything_starts_anew():
    model = network()
    theta = model.initial(torch.zeros(model.dim(D_IN, 2)), D_IN, 2)
    assert theta[: 64 * 3 * 49].abs().max() == 0  # weights are noise, and there is none
    assert theta[64 * 3 * 49 :][:64].tolist() == [1.0] * 64  # scales of the normalisation


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("layer3.0.conv1.weight"), "1 tensors are missing or of another shape and 0 unknown"),
        (
            lambda s: s.update({"layer5.x": torch.ones(1)}),
            "0 unknown|0 tensors .* and 1 unknown, the first is layer5.x",
        ),
        (lambda s: s.update({"conv1.weight": torch.ones(64, 1, 7, 7)}), "the first is conv1.weight"),
        (lambda s: s.update({"epoch": 3}), "no tensors by name"),
    ],
)
def test_weights_of_another_architecture_are_refused_in_one_line(weights, change, message):
    path, state = weights
    state = dict(state)
    change(state)
    torch.save(state, path)
    with pytest.raises(InputError, match=message) as caught:
        network(weights=str(path)).dim(D_IN, 2)
    assert "\n" not in str(caught.value)


def test_weights_that_are_missing_damaged_or_others_are_refused(weights, tmp_path):
    path, _ = weights
    with pytest.raises(InputError, match=r"expected sha256 0123456789ab, found [0-9a-f]{12};"):
        network(weights=str(path), sha256="0123456789ab").dim(D_IN, 2)
    with pytest.raises(InputError, match="No such file"):
        network(weights=str(tmp_path / "none.pth")).dim(D_IN, 2)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InputError, match="cannot be read"):
        network(weights=str(path)).dim(D_IN, 2)


@pytest.mark.parametrize("start", [0, 1, 11])
def test_a_digest_of_few_characters_is_refused(weights, start):
    path, _ = weights
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(InputError, match="first 12 characters or more"):
        network(weights=str(path), sha256=digest[:start]).dim(D_IN, 2)
    assert network(weights=str(path), sha256=digest[:12].upper()).dim(D_IN, 2)


def test_weights_are_of_the_bytes_that_were_hashed(weights, monkeypatch, tmp_path):
    """Another file comes into the place while the first one is read."""
    path, state = weights
    torch.save({name: torch.zeros_like(value) for name, value in state.items()}, tmp_path / "other.pth")
    digest, read = hashlib.sha256(path.read_bytes()).hexdigest(), Path.read_bytes

    def exchanged(self):
        content = read(self)
        (tmp_path / "other.pth").replace(self)
        return content

    monkeypatch.setattr(Path, "read_bytes", exchanged)
    model = network(weights=str(path), sha256=digest)
    theta = model.initial(torch.zeros(model.dim(D_IN, 2)), D_IN, 2)
    assert torch.equal(theta[: 64 * 3 * 49], state["conv1.weight"].flatten())


def test_without_torchvision_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    with pytest.raises(InputError, match=r"pip install 'bdl-bench\[vision\]'"):
        torchvision(SHAPE, 2)


def test_torchvisions_network_is_the_same():
    pytest.importorskip("torchvision")
    ours, theirs = resnet18(SHAPE, 2), torchvision(SHAPE, 2)
    ours.load_state_dict(theirs.state_dict())
    images = torch.rand(2, *SHAPE)
    torch.testing.assert_close(ours.eval()(images), theirs.eval()(images))
