"""Record the operations of one call of a function of tensors, each computed once.

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


def record_operations(
    function: Callable[..., Sequence[Tensor]], leaves: Sequence[Tensor]
) -> GraphModule:
    """Record the operations that a function makes of tensors.

    Constants are put on the device, and in the type, that they are used with, so that no call
    copies them. `ValueError` if the function asks for a number, on which its operations may
    depend, or changes a tensor in place that it did not make.
    """
    # detached, so that each is one argument even where the same tensor is passed twice
    arguments = [leaf.detach() for leaf in leaves]
    recorder = _Recorder(arguments)
    with recorder:
        returned = function(*arguments)
    return recorder.graph_module(returned)


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Record operations as they are made, below `vmap` and derivatives.

    `leaves` are arguments of the graph.
    """

    def __init__(self, leaves: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = leaves[0].device if leaves else None
        self._graph = Graph()
        self._constants: dict[str, Tensor] = {}
        # weak: results that nobody needs are freed meanwhile
        self._nodes = WeakTensorKeyDictionary()
        self._operations: dict[object, Node] = {}
        self._reused: set[Node] = set()
        # keeps the constants themselves as well, since an `id` in a key must not be used again
        self._converted: dict[object, tuple[Tensor | float, Tensor]] = {}
        for number, leaf in enumerate(leaves):
            self._nodes[leaf] = self._graph.placeholder(f"leaf_{number}")

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Make an operation and record it."""
        kwargs = dict(kwargs or {})
        with self:
            decomposition = func.decompose(*args, **kwargs)
        if decomposition is not NotImplemented:
            return decomposition
        if torch.Tag.data_dependent_output in func.tags:
            raise ValueError(f"{func} asks for a number")
        if func is _aten._to_copy.default and not self._has_node(args[0]):
            return self._convert_constant(args[0], kwargs)
        output = func(*args, **kwargs)
        if func is _aten.detach.default:
            self._nodes[output] = self._node_of(args[0])
            return output
        if func is _aten.lift_fresh.default:
            # a tensor written as a number is made anew in each call
            func = _aten.lift_fresh_copy.default
        if func is _aten.scalar_tensor.default and self._device:
            kwargs["device"] = self._device
        node_arguments, node_kwargs = map_aggregate((tuple(args), kwargs), self._node_of)
        node = self._add_operation(func, node_arguments, node_kwargs)
        if isinstance(output, Tensor):
            self._nodes[output] = node
        elif isinstance(output, tuple | list):
            for position, element in enumerate(output):
                if isinstance(element, Tensor):
                    element_node = self._add_operation(operator.getitem, (node, position), {})
                    self._nodes[element] = element_node
        return output

    def graph_module(self, returned: Sequence[Tensor]) -> GraphModule:
        """Return the graph of the operations that these tensors depend on."""
        self._graph.output([self._node_of(leaf) for leaf in returned])
        self._graph.eliminate_dead_code()
        return GraphModule(self._constants, self._graph)

    def _add_operation(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
        """Record an operation, unless an equal one is recorded."""
        if target is not operator.getitem and target._schema.is_mutable:
            for schema_argument, value in zip(target._schema.arguments, args, strict=False):
                if schema_argument.alias_info is not None and schema_argument.alias_info.is_write:
                    self._check_in_place(value, shape=torch.Tag.inplace_view in target.tags)
            return self._graph.call_function(target, args, kwargs)
        key = target, _comparison_key(args), _comparison_key(tuple(kwargs.items()))
        if key in self._operations:
            self._reused.add(self._operations[key])
        else:
            self._operations[key] = self._graph.call_function(target, args, kwargs)
        return self._operations[key]

    def _check_in_place(self, node: Node, shape: bool) -> None:
        """Refuse to change a tensor in place that is more than one result.

        `shape` if only the shape of `node` changes.
        """
        base = node if shape else _base_node(node)
        while node is not base and node not in self._reused:
            node = node.args[0]  # type: ignore[assignment]  # views have one first
        if node.op != "call_function" or node in self._reused:
            raise ValueError(
                "an argument, a constant or a result that is used twice is changed in place"
            )
        # operations on the changed tensor, and on views of it, are not equal to later ones any
        # more
        changed_nodes = {base}
        if not shape:
            changed_nodes |= {view for view in self._graph.nodes if _base_node(view) is base}
        self._operations = {
            key: operation
            for key, operation in self._operations.items()
            if changed_nodes.isdisjoint((operation, *operation.all_input_nodes))
        }

    def _node_of(self, value: Any) -> Any:
        """Return the node of a tensor, a constant if it was made before the recording.

        Other values stay.
        """
        if not isinstance(value, Tensor):
            return value
        if not self._has_node(value):
            name = f"constant_{len(self._constants)}"
            self._constants[name] = value
            self._nodes[value] = self._graph.create_node("get_attr", name)
        return self._nodes[value]

    def _has_node(self, value: Tensor | float) -> bool:
        """Return whether there is a node for a tensor; there is none for a number."""
        return isinstance(value, Tensor) and value in self._nodes

    def _convert_constant(self, constant: Tensor | float, kwargs: dict[str, Any]) -> Tensor:
        """Return a constant, or a number, on another device or in another type.

        Each is converted once.
        """
        key = (
            id(constant) if isinstance(constant, Tensor) else _comparison_key(constant),
            _comparison_key(tuple(kwargs.items())),
        )
        if key not in self._converted:
            self._converted[key] = constant, _aten._to_copy.default(constant, **kwargs)
        return self._converted[key][1]


def _base_node(node: Node) -> Node:
    """Return the node that a node is a view of, or a change in place; itself as a rule."""
    while node.op == "call_function":
        if node.target is not operator.getitem and not _is_view_or_write(node.target):
            break
        node = node.args[0]  # type: ignore[assignment]  # views have one first
    return node


def _is_view_or_write(target: Any) -> bool:
    return bool(target.is_view or target._schema.is_mutable)


def _comparison_key(value: Any) -> object:
    """Return a key that is the same for equal arguments.

    1, 1.0 and True differ, and so do 0.0 and -0.0.
    """
    if isinstance(value, tuple | list):
        return tuple(map(_comparison_key, value))
    return type(value), repr(value) if isinstance(value, float) else value
