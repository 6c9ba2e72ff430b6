"""The operations of one call of a function of tensors, less what is computed twice.

PyTorch's own `make_fx` records the same operations. It imports the compiler for that, and takes
several times as long, since it also describes every result for tracing without numbers.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

_aten = torch.ops.aten


def recorded(function: Callable[..., Sequence[Tensor]], leaves: Sequence[Tensor]) -> GraphModule:
    """Record the operations that a function makes of tensors.

    Constants are put on the device, and in the type, that they are used with, so that no call
    copies them. `ValueError` if the function asks for a number, on which its operations may
    depend, or changes in place what is not its own.
    """
    own = [
        leaf.detach() for leaf in leaves
    ]  # of which each is one argument, whatever is passed twice
    recorder = _Recorder(own)
    with recorder:
        returned = function(*own)
    return recorder.graph_module(returned)


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Write down operations as they are made, below `vmap` and derivatives.

    `leaves` are arguments of the graph.
    """

    def __init__(self, leaves: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = leaves[0].device if leaves else None
        self._graph, self._constants = Graph(), dict[str, Tensor]()
        self._nodes = WeakTensorKeyDictionary()  # results that nobody needs are freed meanwhile
        self._made, self._shared = dict[object, Node](), set[Node]()
        self._placed = dict[object, tuple[Tensor | float, Tensor]]()
        for number, leaf in enumerate(leaves):
            self._nodes[leaf] = self._graph.placeholder(f"leaf_{number}")

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Make an operation and write it down."""
        kwargs = dict(kwargs or {})
        with self:
            parts = func.decompose(*args, **kwargs)
        if parts is not NotImplemented:
            return parts
        if torch.Tag.data_dependent_output in func.tags:
            raise ValueError(f"{func} asks for a number")
        if func is _aten._to_copy.default and not self._knows(args[0]):
            return self._moved(args[0], kwargs)
        found = func(*args, **kwargs)
        if func is _aten.detach.default:
            self._nodes[found] = self._node_of(args[0])
            return found
        if (
            func is _aten.lift_fresh.default
        ):  # what is written as a number is made anew in each call
            func = _aten.lift_fresh_copy.default
        written = (
            {**kwargs, "device": self._device}
            if func is _aten.scalar_tensor.default and self._device
            else kwargs
        )
        node = self._write(func, *map_aggregate((tuple(args), written), self._node_of))
        if isinstance(found, Tensor):
            self._nodes[found] = node
        elif isinstance(found, tuple | list):
            for place, part in enumerate(found):
                if isinstance(part, Tensor):
                    self._nodes[part] = self._write(operator.getitem, (node, place), {})
        return found

    def graph_module(self, returned: Sequence[Tensor]) -> GraphModule:
        """Return the graph of what leads to some tensors."""
        self._graph.output([self._node_of(leaf) for leaf in returned])
        self._graph.eliminate_dead_code()
        return GraphModule(self._constants, self._graph)

    def _write(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
        """Write an operation down, if it is not there."""
        if target is not operator.getitem and target._schema.is_mutable:
            for about, value in zip(target._schema.arguments, args, strict=False):
                if about.alias_info is not None and about.alias_info.is_write:
                    self._check_own(value, shape=torch.Tag.inplace_view in target.tags)
            return self._graph.call_function(target, args, kwargs)
        key = target, _key(args), _key(tuple(kwargs.items()))
        if key in self._made:
            self._shared.add(self._made[key])
        else:
            self._made[key] = self._graph.call_function(target, args, kwargs)
        return self._made[key]

    def _check_own(self, node: Node, shape: bool) -> None:
        """Refuse a change in place of what is more than one result.

        `shape` if only the shape of `node` changes.
        """
        base = node if shape else _base(node)
        while node is not base and node not in self._shared:
            node = node.args[0]  # type: ignore[assignment]  # views have one first
        if node.op != "call_function" or node in self._shared:
            raise ValueError(
                "an argument, a constant or a result that is used twice is changed in place"
            )
        concerned = {
            own for own in self._graph.nodes if own is base or (not shape and _base(own) is base)
        }
        self._made = {
            key: own
            for key, own in self._made.items()
            if concerned.isdisjoint((own, *own.all_input_nodes))
        }

    def _node_of(self, value: Any) -> Any:
        """Return what stands for a tensor: a constant for one that was there before.

        Other values stay.
        """
        if not isinstance(value, Tensor):
            return value
        if not self._knows(value):
            name = f"constant_{len(self._constants)}"
            self._constants[name] = value
            self._nodes[value] = self._graph.create_node("get_attr", name)
        return self._nodes[value]

    def _knows(self, value: Tensor | float) -> bool:
        """Return whether there is a node for a tensor; there is none for a number."""
        return isinstance(value, Tensor) and value in self._nodes

    def _moved(self, constant: Tensor | float, kwargs: dict[str, Any]) -> Tensor:
        """Return a constant, or a number, on another device or in another type: one for each."""
        key = (
            id(constant) if isinstance(constant, Tensor) else _key(constant),
            _key(tuple(kwargs.items())),
        )
        if key not in self._placed:
            self._placed[key] = constant, _aten._to_copy.default(constant, **kwargs)
        return self._placed[key][1]


def _base(node: Node) -> Node:
    """Return what a node is a view of, or a change in place; itself as a rule."""
    while node.op == "call_function" and (node.target is operator.getitem or _shares(node.target)):
        node = node.args[0]  # type: ignore[assignment]  # views have one first
    return node


def _shares(target: Any) -> bool:
    return bool(target.is_view or target._schema.is_mutable)


def _key(value: Any) -> object:
    """Return what is the same for equal arguments: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if isinstance(value, tuple | list):
        return tuple(map(_key, value))
    return type(value), repr(value) if isinstance(value, float) else value
