"""Traces: the recorded operations of functions of tensors that are called again and again.

Of a small model's update, `vmap` and `grad` take most of the time: they find out anew which
operations it is made of. A trace keeps the list, less what is computed twice, and makes the same
operations on the same shapes and strides, which give the same bits. PyTorch's interpreter of
recorded operations makes them without Python. The compiler fuses them: other bits, within
rounding. On a GPU a chain of calls launches the operations of each as one graph.
"""

import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.utils._pytree import tree_map

from bdl.training import graphs
from bdl.training.compiler import compile_graph, first_line, warn_uncompiled
from bdl.training.graphs import LaunchGraph
from bdl.training.recording import record_operations

log = logging.getLogger(__name__)

TRACE_AFTER_CALLS = 20
"""Calls of a kind from which a trace is repaid.

It is made after so many, or before the first of so many to come.
"""

_MAX_KINDS = 64
"""Kinds of calls of one function that are traced; further ones are made as they are."""

CallKind = tuple[object, ...]
"""Structure of arguments, and shapes, strides, types and devices of their tensors."""

_NOT_TRACED_YET: Any = object()


@contextmanager
def trace_immediately() -> Iterator[None]:
    """Trace functions at their first call in a block, to time their traces."""
    global TRACE_AFTER_CALLS
    normal_threshold, TRACE_AFTER_CALLS = TRACE_AFTER_CALLS, 1
    try:
        yield
    finally:
        TRACE_AFTER_CALLS = normal_threshold


class TracedFunction:
    """A function that is traced when `TRACE_AFTER_CALLS` calls of a kind have been made or are
    announced, or is compiled at the first call.

    Calls are of a kind if their arguments, trees of tensors, have the same structure, shapes,
    strides, types and devices. A function that cannot be traced, because numbers decide which
    operations it makes, is called as it is. If the compiler fails, a warning says so once, and
    traces run without it.
    """

    def __init__(self, function: Callable[..., Any], compile: bool = False) -> None:
        self._function, self._compile = function, compile
        self._calls: Counter[CallKind] = Counter()
        self._traces: dict[CallKind, _Trace | None] = {}
        self._chained_kinds: set[CallKind] = set()

    def __call__(self, *args: Any) -> Any:
        """Call the function, or its trace."""
        return self._call(args, *flatten(args))

    def chain(
        self,
        state: Any,
        call_arguments: Sequence[tuple[Any, ...]],
        *shared_arguments: Any,
        calls_factor: float = 1,
    ) -> Any:
        """Call again and again, each time with the result of the last call as the first argument.

        For the first call that is `state`. Then come its `call_arguments`, all of one kind, and
        `shared_arguments`. A trace goes on from tensors to tensors, without rebuilding the trees
        between. `calls_factor` says how many times as many calls of each kind there will be in the
        end as there are after the first of these.
        """
        previous_kind: CallKind = ()
        for position, arguments in enumerate(call_arguments):
            args = (state, *arguments, *shared_arguments)
            leaves, kind = flatten(args)
            trace = self._traces.get(kind)
            # the same kind twice: a result is of the kind that the function takes
            if kind == previous_kind:
                self._chained_kinds.add(kind)
            if trace and kind in self._chained_kinds:
                return trace.chain(state, call_arguments[position:], shared_arguments)
            state = self._call(args, leaves, kind, calls_factor)
            previous_kind = kind
        return state

    def _call(
        self, args: tuple[Any, ...], leaves: list[Tensor], kind: CallKind, calls_factor: float = 1
    ) -> Any:
        trace = self._traces.get(kind, _NOT_TRACED_YET)
        if trace is _NOT_TRACED_YET and len(self._traces) < _MAX_KINDS:
            self._calls[kind] += 1
            if self._compile or calls_factor * self._calls[kind] >= TRACE_AFTER_CALLS:
                trace = self._traces[kind] = self._trace(leaves, args)
        if trace is None or trace is _NOT_TRACED_YET:
            return self._function(*args)
        return trace(leaves)

    def _trace(self, leaves: list[Tensor], args: tuple[Any, ...]) -> "_Trace | None":
        """Record the operations of one call; None if that fails."""
        returned: list[Any] = []

        def operations(*leaves: Tensor) -> list[Tensor]:
            returned.append(self._function(*rebuild(args, iter(leaves))))
            return flatten(returned[0])[0]

        try:
            graph = record_operations(operations, leaves)
        except TimeoutError:  # the fit's time is over
            raise
        except Exception as error:  # of whatever kind, and the function itself works
            log.info("not traced: %s", first_line(error))
            return None
        run = self._compiled(graph, leaves) if self._compile else _interpret(graph, leaves)
        records = graphs.recorder.records(leaves) and not graphs.has_waiting_operations(graph)
        return _Trace(run, rebuild(returned[0], repeat(None)), records)

    def _compiled(self, graph: GraphModule, leaves: list[Tensor]) -> Callable[..., Any]:
        try:
            return compile_graph(graph, leaves)
        except TimeoutError:
            raise
        except Exception as error:  # a compiler's, of whatever kind
            warn_uncompiled(error)
            self._compile = False
            return _interpret(graph, leaves)


class _Trace:
    """The recorded operations of one kind of call.

    Parameters
    ----------
    run
        From tensors to tensors.
    returned
        What the function returns, less its tensors.
    records_launches
        Whether a chain launches them as a graph.
    """

    def __init__(
        self, run: Callable[..., Sequence[Tensor]], returned: Any, records_launches: bool
    ) -> None:
        self.run, self._returned = run, returned
        self._records_launches = records_launches
        self._launch_graph: LaunchGraph | None = None

    def __call__(self, leaves: Sequence[Tensor]) -> Any:
        with torch.no_grad():
            return rebuild(self._returned, iter(self.run(*leaves)))

    def chain(
        self,
        state: Any,
        call_arguments: Sequence[tuple[Any, ...]],
        shared_arguments: tuple[Any, ...],
    ) -> Any:
        state_leaves: Sequence[Tensor] = list_tensors(state)
        shared_leaves = list_tensors(shared_arguments)
        argument_leaves = [list_tensors(arguments) for arguments in call_arguments]
        with torch.no_grad():
            if self._records_launches:
                self._records_launches = False  # once, whether it succeeds or not
                self._launch_graph = graphs.record_launches(
                    self.run, state_leaves, argument_leaves[0], shared_leaves
                )
            if self._launch_graph:
                state_leaves = self._launch_graph.chain(
                    state_leaves, argument_leaves, shared_leaves
                )
            else:
                for leaves in argument_leaves:
                    state_leaves = self.run(*state_leaves, *leaves, *shared_leaves)
        return rebuild(self._returned, iter(state_leaves))


def _interpret(graph: GraphModule, leaves: Sequence[Tensor]) -> Callable[..., Any]:
    """Return a function that makes the operations of a graph without Python.

    Python takes longer for each operation than small tensors do. TorchScript is deprecated, and
    still the only interpreter of PyTorch's that makes operations one after the other as they are.
    Where it is gone, Python makes them.
    """
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # strict: only a list of outputs whose length may change would be refused
            run: Callable[..., Any] = torch.jit.trace(
                graph, (*leaves,), check_trace=False, strict=False
            )  # type: ignore[no-untyped-call]
    except TimeoutError:
        raise
    except Exception as error:  # of whatever kind, and the graph itself works
        log.info("operations are made by Python: %s", first_line(error))
        return graph.forward
    return _without_fusion(run) if any(leaf.is_cuda for leaf in leaves) else run


def _without_fusion(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that makes the operations of TorchScript's one by one.

    From the second call on TorchScript fuses operations on a GPU, which rounds otherwise.
    """

    optimized_execution: Any = torch.jit.optimized_execution  # type: ignore[attr-defined]

    def run_one_by_one(*leaves: Tensor) -> Any:
        with optimized_execution(False):
            return run(*leaves)

    return run_one_by_one


# ---- trees of tensors: PyTorch's own functions for them take longer than a small update


def flatten(tree: Any) -> tuple[list[Tensor], CallKind]:
    """Return the tensors of a tree, and its kind."""
    leaves, kind = list[Tensor](), list[object]()
    _flatten(tree, leaves, kind)
    return leaves, tuple(kind)


def _flatten(tree: Any, leaves: list[Tensor], kind: list[object]) -> None:
    """Append the tensors of tuples, lists and mappings to `leaves`, and their kind to `kind`."""
    if isinstance(tree, Tensor):
        leaves.append(tree)
        kind.append((tree.shape, tree.stride(), tree.dtype, tree.device))
    elif isinstance(tree, dict):
        kind.append(tuple(tree))
        for subtree in tree.values():
            _flatten(subtree, leaves, kind)
    else:
        kind.append((type(tree), len(tree)))
        for subtree in tree:
            _flatten(subtree, leaves, kind)


def list_tensors(tree: Any) -> list[Tensor]:
    """Return the tensors of tuples, lists and mappings in their order."""
    leaves = list[Tensor]()
    _append_tensors(tree, leaves)
    return leaves


def _append_tensors(tree: Any, leaves: list[Tensor]) -> None:
    if isinstance(tree, Tensor):
        leaves.append(tree)
        return
    for subtree in tree.values() if isinstance(tree, dict) else tree:
        _append_tensors(subtree, leaves)


def rebuild(tree: Any, leaves: Iterator[Any]) -> Any:
    """Put leaves where the tensors of a tree are, or the Nones that stand for them."""
    if tree is None or isinstance(tree, Tensor):
        return next(leaves)
    if isinstance(tree, dict):
        return {name: rebuild(subtree, leaves) for name, subtree in tree.items()}
    subtrees = [rebuild(subtree, leaves) for subtree in tree]
    return type(tree)(*subtrees) if hasattr(tree, "_fields") else type(tree)(subtrees)


def with_canonical_strides(state: Any) -> Any:
    """Return a state whose dimensions of size one have the strides that go with the shape.

    Any stride does for them, and a trace would be made anew for each that comes along. The numbers
    stay where they are if they lie in the order of the shape; else they are copied into it.
    Tensors without such dimensions stay as they are.
    """
    return tree_map(_with_canonical_strides, state)


def _with_canonical_strides(leaf: Tensor) -> Tensor:
    if 1 not in leaf.shape:
        return leaf
    strides = [prod(leaf.shape[axis:]) for axis in range(1, leaf.ndim + 1)]
    return leaf.contiguous().as_strided(leaf.shape, strides)
