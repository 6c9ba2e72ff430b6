"""Module against the plain torch.nn module with the same numbers, alone and mapped over trials."""

import copy
import pickle

import pytest
import torch
from torch import nn

from bdl.errors import InputError
from bdl.models import MODELS
from bdl.models.gradients import gradient_matrix
from bdl.models.likelihoods import Categorical, GaussianLikelihood
from bdl.models.modules import Module, NetworkModule
from bdl.models.networks import Mlp
from bdl.models.problem import Batch, Problem

from . import nets

NETS = nets.__name__
SHAPE = (1, 4, 4)


CONVOLUTIONAL = Module(f"{NETS}:convolutional", {"channels": 3, "momentum": 0.3}, SHAPE)
PROBLEM = Problem(CONVOLUTIONAL, Categorical(), 16, 3)


@pytest.fixture
def draw():
    generator = torch.Generator().manual_seed(8)
    return lambda *shape: torch.randn(shape, generator=generator)


def filled(theta, buffers, momentum=0.3):
    """The plain network with these numbers in it."""
    net = nets.convolutional(SHAPE, 3, momentum=momentum)
    nn.utils.vector_to_parameters(theta, net.parameters())
    for name, value in buffers.items():
        net.get_buffer(name).copy_(value)
    return net


@pytest.fixture
def numbers(draw):
    """Parameters, inputs and statistics of three trials."""
    buffers = {
        name: draw(3, *value.shape).abs() if "var" in name else draw(3, *value.shape)
        for name, value in PROBLEM.buffers().items()
    }
    return draw(3, PROBLEM.dim), draw(3, 5, 16), buffers


def trial(numbers, index):
    theta, x, buffers = numbers
    return theta[index], x[index], {name: value[index] for name, value in buffers.items()}


def test_predictions_match_the_plain_network_in_evaluation(numbers):
    theta, x, buffers = trial(numbers, 0)
    expected = filled(theta, buffers).eval()(x.view(5, *SHAPE))
    torch.testing.assert_close(PROBLEM.predict(theta, x, buffers), expected, rtol=1e-5, atol=1e-6)
    alone = PROBLEM.predict(theta, x[2:3], buffers)  # no row depends on the others
    torch.testing.assert_close(alone, expected[2:3], rtol=1e-5, atol=1e-6)


def test_statistics_follow_two_minibatches_as_those_of_the_plain_network(numbers):
    theta, x, buffers = trial(numbers, 0)
    net, before = (
        filled(theta, buffers).train(),
        {name: value.clone() for name, value in buffers.items()},
    )
    found = buffers
    for rows in (x, 2 * x[:3] + 1):
        net(rows.view(-1, *SHAPE))
        found = PROBLEM.track(theta, rows, found)
    for name, value in found.items():
        torch.testing.assert_close(value, net.get_buffer(name), rtol=1e-5, atol=1e-6)
        assert torch.equal(buffers[name], before[name])
    assert len(found) == 4


def test_statistics_start_at_the_standard_normal_and_are_copies():
    buffers = PROBLEM.buffers()
    assert [name for name in buffers if "mean" in name] == [
        "1.norm1.running_mean",
        "1.norm2.running_mean",
    ]
    assert [value.tolist() for value in buffers.values()] == 2 * [3 * [0.0], 3 * [1.0]]
    buffers["1.norm1.running_mean"] += 1
    assert PROBLEM.buffers()["1.norm1.running_mean"].sum() == 0
    assert PROBLEM.widest == 3 * 4 * 4


def test_vmap_over_trials_equals_the_loop(numbers):
    def everything(theta, x, buffers):
        return (
            PROBLEM.predict(theta, x, buffers),
            CONVOLUTIONAL(theta, x, 3),
            PROBLEM.track(theta, x, buffers),
        )

    expected = [everything(*trial(numbers, index)) for index in range(3)]
    predictions, outputs, buffers = torch.func.vmap(everything)(*numbers)
    for index, alone in enumerate(expected):
        torch.testing.assert_close(predictions[index], alone[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(outputs[index], alone[1], rtol=1e-4, atol=1e-5)
        for name, value in alone[2].items():
            torch.testing.assert_close(buffers[name][index], value, rtol=1e-4, atol=1e-5)


def samples_gradient(theta, x, noise):
    """The gradient averaged over samples around theta, as a variational method takes it."""
    batch = Batch(x, torch.arange(5) % 3, torch.tensor(20.0), torch.tensor(1.0))
    return torch.func.vmap(torch.func.grad(lambda t: PROBLEM.log_likelihood(t, batch, {})))(
        theta + noise
    ).mean(0)


def test_nested_vmap_of_gradients_equals_the_plain_network(numbers, draw):
    theta, x, _ = numbers
    noise = 0.1 * draw(3, 2, PROBLEM.dim)
    found = torch.func.vmap(samples_gradient)(theta, x, noise)
    for index in range(3):
        total = torch.zeros(PROBLEM.dim)
        for shift in noise[index]:
            net = filled(theta[index] + shift, {}).train()
            loss = nn.functional.cross_entropy(net(x[index].view(5, *SHAPE)), torch.arange(5) % 3)
            total -= (
                20
                / 2
                * torch.cat(
                    [part.flatten() for part in torch.autograd.grad(loss, list(net.parameters()))]
                )
            )
        torch.testing.assert_close(found[index], total, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("hidden", [(), (4,), (5, 3)])
def test_dense_networks_are_those_of_mlp(draw, hidden):
    """The same order of parameters, biases and, a factor sqrt(2) of the weights aside, the same start."""
    module, x = Module(f"{NETS}:dense", {"hidden": list(hidden)}), draw(7, 3).double()
    mlp = Mlp(hidden)
    assert module.dim(3, 2) == mlp.dim(3, 2)
    theta = draw(mlp.dim(3, 2)).double()
    torch.testing.assert_close(module(theta, x, 2), mlp(theta, x, 2), rtol=1e-12, atol=1e-14)
    assert torch.equal(module.bias_mask(3, 2), mlp.bias_mask(3, 2))
    torch.testing.assert_close(
        module.initial(theta, 3, 2), 2**0.5 * mlp.initial(theta, 3, 2), rtol=1e-6, atol=0
    )
    problem = Problem(module, GaussianLikelihood(), 3, 2)
    assert problem.buffers() == {} == problem.track(theta, x, {})
    assert torch.equal(problem.predict(theta, x, {}), module(theta, x, 2))
    assert problem.widest == max(3, *hidden, 2)


def test_the_start_is_he_normal_with_scales_of_one(draw):
    noise = draw(PROBLEM.dim)
    net = filled(PROBLEM.initial(noise), {})
    parameters = dict(net.named_parameters())
    assert parameters["1.norm2.weight"].tolist() == [1.0, 1.0, 1.0]
    assert all(
        value.count_nonzero() == 0 for name, value in parameters.items() if name.endswith("bias")
    )
    # 3 x 1 x 3 x 3 weights, fan-in 9, come first; 9 products of 3 channels each make the second
    # convolution's fan-in
    torch.testing.assert_close(parameters["0.weight"].flatten(), noise[:27] * (2 / 9) ** 0.5)
    torch.testing.assert_close(
        parameters["1.conv1.weight"].flatten(), noise[30:111] * (2 / 27) ** 0.5
    )


def test_constants_stay_and_other_vectors_start_as_built(draw):
    problem = Problem(Module(f"{NETS}:Scaled"), GaussianLikelihood(), 2)
    theta, x = torch.tensor([8.0, -4.0, 1.0, 0.5]), torch.tensor([[1.0, 0.0], [0.0, 4.0]])
    assert problem.buffers() == {}
    assert problem.predict(theta, x, {}).tolist() == [[3.0], [-1.5]]  # 8/4 + 1; 0.5 (1 - 4)
    assert problem.model(theta.double(), x.double(), 1).tolist() == [[3.0], [-1.5]]
    assert problem.initial(torch.ones(4)).tolist() == [1.0, 1.0, 0.0, 0.25]
    assert problem.layout.biases.tolist() == [False, False, True, False]


def test_building_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    assert Module(f"{NETS}:dense", {"hidden": [9]}).dim(4, 1) == 55
    assert torch.equal(torch.random.get_rng_state(), before)


def test_equal_models_are_equal_keys_and_pickle():
    same = Module(CONVOLUTIONAL.factory, dict(CONVOLUTIONAL.settings), SHAPE)
    assert {CONVOLUTIONAL: 1}[same] == 1
    assert same != Module(CONVOLUTIONAL.factory, {"channels": 4}, SHAPE)
    assert (
        PROBLEM.dim == Problem(pickle.loads(pickle.dumps(CONVOLUTIONAL)), Categorical(), 16, 3).dim
    )
    assert copy.deepcopy(CONVOLUTIONAL) == CONVOLUTIONAL
    assert CONVOLUTIONAL.sources == (NETS,)
    assert MODELS.get("module") is Module
    assert MODELS.missing_members(Module) is None


def test_a_file_may_hold_the_network(tmp_path, draw):
    path = tmp_path / "net.py"
    path.write_text(
        "from torch import nn\n\ndef make(d_in, d_out):\n    return nn.Linear(d_in, d_out)\n"
    )
    module, theta, x = Module(f"{path}:make"), draw(4), draw(5, 3)
    assert torch.equal(module(theta, x, 1), nn.functional.linear(x, theta[None, :3], theta[3:]))
    assert module.bias_mask(3, 1).tolist() == [False, False, False, True]
    assert module.sources[0].startswith("bdl_user_net_")


def test_under_batch_normalisation_no_example_has_a_gradient(numbers):
    theta, x, _ = trial(numbers, 0)
    batch = Batch(x, torch.zeros(5), torch.tensor(5.0), torch.tensor(1.0))
    with pytest.raises(
        InputError, match="no example has a gradient of its own: use layer normalisation"
    ):
        gradient_matrix(PROBLEM, theta, batch, {})
    with pytest.raises(
        InputError, match="model Module is not made of dense layers: use linear or mlp"
    ):
        PROBLEM.layers(theta, batch, {})


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Module("dense"), "factory 'dense': give module:function or path/to/file.py:function"),
        (Module(f"{NETS}:dens"), "defines no 'dens'"),
        (Module("nowhere:dense"), "module: cannot import 'nowhere'"),
        (
            Module(f"{NETS}:dense", {"width": 3}),
            "fails: TypeError: .*unexpected keyword argument 'width'",
        ),
        (
            Module(f"{NETS}:dense", shape=(3, 1)),
            r"shape \[3, 1\] has 3 values a row: the data have 2; mend shape",
        ),
        (Module(f"{NETS}:convolutional"), "fails: TypeError"),
        (Module(f"{NETS}:no_network"), "gives str: let it return a torch.nn.Module"),
        (
            Module(f"{NETS}:dropout"),
            "1 draws random numbers of its own; leave dropout to a method",
        ),
        (Module(f"{NETS}:cumulative"), "1 averages all minibatches; give it a momentum"),
        (Module(f"{NETS}:instance"), "1 gathers statistics; give track_running_stats=False"),
        (Module(f"{NETS}:untracked"), "others by 1; give it track_running_stats=True"),
        (Module(f"{NETS}:frozen"), "1.weight has requires_grad=False, and all parameters are"),
        (Module("torch.nn:Flatten"), r"rows of shape \(2,\) fail: IndexError"),
        (Module("torch.nn:Identity"), r"gives outputs \(2, 2\) for 2 rows: make it \(2, 1\)"),
    ],
)
def test_what_does_not_fit_is_said(module, message):
    with pytest.raises(InputError, match=message):
        module.dim(2, 1)
    assert Module(f"{NETS}:idle").dim(2, 1) == 3, "dropout of nothing is allowed"


def test_the_last_layer_is_the_one_that_is_called_last():
    assert Module(f"{NETS}:HeadFirst").dim(2, 1) == 17
    with pytest.raises(InputError, match="head is called last, and the parameters of body come"):
        Module(f"{NETS}:HeadFirst").last_layer(2, 1)


def test_a_changed_file_is_another_network(tmp_path):
    text = "from torch import nn\n\ndef make(n, m):\n    return nn.Linear(n, m, bias={})\n"
    path = tmp_path / "network.py"
    settings = {"factory": f"{path}:make"}
    models = []
    for bias, dim in ((True, 4), (False, 3)):
        path.write_text(text.format(bias), "utf-8")
        models.append(MODELS.build("module", settings))
        assert models[-1].dim(3, 1) == dim
    again = MODELS.build("module", settings)
    assert again == models[1] != models[0]
    assert hash(again) == hash(models[1])
    for twin in (copy.deepcopy(models[0]), pickle.loads(pickle.dumps(models[0]))):
        assert twin == models[0]
        assert twin.dim(3, 1) == 4
        with pytest.raises(InputError, match="its file has changed since the model was made"):
            twin.dim(5, 1)


def test_a_network_that_is_frozen_as_a_whole_is_one_like_any_other():
    net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)).requires_grad_(False)
    assert NetworkModule(network=net).dim(3, 1) == 11
    assert not net[0].weight.requires_grad
    net[0].requires_grad_(True)
    with pytest.raises(InputError, match=r"1\.weight has requires_grad=False"):
        NetworkModule(network=net).dim(3, 1)
