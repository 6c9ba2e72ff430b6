"""Recorded operations are those of the function."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.dialect.common.cse_pass import CSEPass

from bdl.training.recording import record_operations

X, Y = torch.arange(6.0).reshape(2, 3), torch.linspace(-1, 1, 3)


def operations(graph):
    """List the operations that compute: a tensor that is detached is the same one."""
    found = (node.target for node in graph.graph.nodes if node.op == "call_function")
    return [target for target in found if target is not torch.ops.aten.detach.default]


def curved(x, y):
    return (x.sin() * y + torch.where(x > 1, x * y, 0.5)).exp().log().sum()


def decomposed(x, y):
    gram = x.T @ x + torch.diag(y.exp())
    return (
        torch.linalg.cholesky(gram).diagonal().log().sum()
        + torch.split(x, [1, 2], dim=1)[1].norm()
    )


@pytest.mark.parametrize("cost", [curved, decomposed])
def test_operations_are_those_that_pytorch_records(cost):
    def gradients(x, y):
        return [
            *torch.func.vmap(torch.func.grad(cost, argnums=(0, 1)))(
                torch.stack([x, x + 1]), torch.stack([y, 2 * y])
            )
        ]

    ours, reference = (
        record_operations(gradients, [X, Y]),
        CSEPass()(make_fx(gradients)(X, Y)).graph_module,
    )
    reference.graph.eliminate_dead_code()
    assert operations(ours) == operations(reference)
    for x, y in ((X, Y), (X.cos(), Y - 3)):
        assert all(map(torch.equal, ours(x, y), gradients(x, y)))


def test_what_is_computed_twice_is_written_down_once_if_its_numbers_are_the_same():
    graph = record_operations(lambda x: [x * 2 + x * 2, x * 2.0, x + 0.0, x + -0.0], [X])
    names = [
        node.target.overloadpacket.__name__
        for node in graph.graph.nodes
        if node.op == "call_function"
    ]
    assert sorted(names) == ["add"] * 3 + ["mul"] * 2


def test_constants_are_moved_once():
    own = torch.arange(3, dtype=torch.int32)
    graph = record_operations(lambda x: [x * own.to(x.dtype), x + own.to(x.dtype)], [X])
    assert len(operations(graph)) == 2
    assert [constant.dtype for constant in graph.buffers()] == [torch.float32]
    assert torch.equal(graph(X + 1)[0], (X + 1) * own)


def test_a_tensor_that_is_passed_twice_is_two_arguments():
    graph = record_operations(lambda x, y: [x - y], [X, X])
    assert torch.equal(graph(X, 2 * X)[0], -X)


def changed_part_of_what_is_used_twice(x):
    first, second = x.exp(), x.exp()
    first[0].mul_(2)
    return [first, second]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: [x.add_(1)], "changed in place"),
        (lambda x: [Y.add_(0) + x], "changed in place"),
        (changed_part_of_what_is_used_twice, "changed in place"),
        (lambda x: [x * x.sum().item()], "asks for a number"),
    ],
    ids=["argument", "constant", "twice", "number"],
)
def test_what_a_list_of_operations_cannot_say_is_refused(function, message):
    with pytest.raises(ValueError, match=message):
        record_operations(function, [X.clone()])


def test_a_result_of_ones_own_is_changed_in_place():
    def function(x):
        own, before = x.exp(), x * 2
        own[0].mul_(before[0])
        return [own, own.clone().squeeze_(), x.exp()]

    graph = record_operations(function, [X])
    assert all(map(torch.equal, graph(X.sin()), function(X.sin())))


def test_running_statistics_move():
    """Batch normalisation writes them into tensors that it is given."""

    def one(x, mean, variance):
        mean, variance = mean.clone(), variance.clone()
        torch.nn.functional.batch_norm(x, mean, variance, training=True)
        return mean, variance

    def function(*tensors):
        return [*torch.func.vmap(one)(*tensors)]

    args = torch.randn(2, 5, 3), torch.zeros(2, 3), torch.ones(2, 3)
    graph = record_operations(function, args)
    args = (args[0] + 1, *args[1:])
    assert all(map(torch.equal, graph(*args), function(*args)))
    assert not torch.equal(graph(*args)[0], args[1])
