"""Functions of tensors that are called again and again: the operations of one call, recorded, and perhaps compiled.

Of a small model's update, `vmap` and `grad` take most of the time: they find out anew which
operations it is made of. A trace keeps the list, less what is computed twice, and makes the same
operations on the same shapes and strides, which give the same bits. PyTorch's interpreter of
recorded operations makes them without Python. The compiler fuses them: other bits, within
rounding.
"""

import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.utils._pytree import tree_map

from bdl.training.compiler import compiled_graph, complain, line
from bdl.training.recording import recorded

log = logging.getLogger(__name__)

AFTER = 20
"""Calls of a kind from which a trace is repaid: it is made after so many, or before the first of
so many to come.
"""

_KINDS = 64
"""Kinds of calls of one function that are traced; further ones are made as they are."""

Kind = tuple[object, ...]
"""Structure of arguments, and shapes, strides, types and devices of their tensors."""

_UNKNOWN: Any = object()


@contextmanager
def at_once() -> Iterator[None]:
    """Trace functions when they are first called, to find out how long they take so."""
    global AFTER
    before, AFTER = AFTER, 1
    try:
        yield
    finally:
        AFTER = before


class Repeated:
    """A function that is called by its trace where a kind of call is made twenty times, or compiled from the first.

    Calls are of a kind if their arguments, trees of tensors, have the same structure, shapes,
    strides, types and devices. A function that cannot be traced, because numbers decide which
    operations it makes, is called as it is. If the compiler fails, that is said once, and traces
    run without it.
    """

    def __init__(self, function: Callable[..., Any], compile: bool = False) -> None:
        self._function, self._compile = function, compile
        self._calls: Counter[Kind] = Counter()
        self._traces: dict[Kind, _Trace | None] = {}

    def __call__(self, *args: Any) -> Any:
        """Call the function, or its trace."""
        return self._call(args, *flat(args))

    def chain(
        self, state: Any, each: Sequence[tuple[Any, ...]], *rest: Any, multiple: float = 1
    ) -> Any:
        """Call again and again, each time with what the last call returned in front.

        That is `state` for the first call; then come the arguments of `each` call, all of one
        kind, and `rest`. A trace goes on from tensors to tensors, without a look at what they are
        parts of. `multiple` says how many times as many calls of each kind there will be in the
        end as there are after the first of these.
        """
        before: Kind = ()
        for place, own in enumerate(each):
            args = (state, *own, *rest)
            leaves, kind = flat(args)
            trace = self._traces.get(kind)
            if trace and kind == before:  # what it returns is of the kind that it takes
                return trace.chain(state, each[place:], rest)
            state, before = self._call(args, leaves, kind, multiple), kind
        return state

    def _call(
        self, args: tuple[Any, ...], leaves: list[Tensor], kind: Kind, multiple: float = 1
    ) -> Any:
        trace = self._traces.get(kind, _UNKNOWN)
        if trace is _UNKNOWN and len(self._traces) < _KINDS:
            self._calls[kind] += 1
            if self._compile or multiple * self._calls[kind] >= AFTER:
                trace = self._traces[kind] = self._trace(leaves, args)
        return self._function(*args) if trace is None or trace is _UNKNOWN else trace(leaves)

    def _trace(self, leaves: list[Tensor], args: tuple[Any, ...]) -> "_Trace | None":
        """Record the operations of one call; None if that fails."""
        returned: list[Any] = []

        def operations(*leaves: Tensor) -> list[Tensor]:
            returned.append(self._function(*rebuilt(args, iter(leaves))))
            return flat(returned[0])[0]

        try:
            graph = recorded(operations, leaves)
        except TimeoutError:  # the fit's time is over
            raise
        except Exception as error:  # of whatever kind, and the function itself works
            log.info("not traced: %s", line(error))
            return None
        run = self._compiled(graph, leaves) if self._compile else _interpreted(graph, leaves)
        return _Trace(run, rebuilt(returned[0], repeat(None)))

    def _compiled(self, graph: GraphModule, leaves: list[Tensor]) -> Callable[..., Any]:
        try:
            return compiled_graph(graph, leaves)
        except TimeoutError:
            raise
        except Exception as error:  # a compiler's, of whatever kind
            complain(error)
            self._compile = False
            return _interpreted(graph, leaves)


class _Trace(NamedTuple):
    """What makes the operations of one kind of call."""

    run: Callable[..., Sequence[Tensor]]  # From tensors to tensors
    returned: Any  # What the function returns, less its tensors

    def __call__(self, leaves: Sequence[Tensor]) -> Any:
        with torch.no_grad():
            return rebuilt(self.returned, iter(self.run(*leaves)))

    def chain(self, state: Any, each: Sequence[tuple[Any, ...]], rest: tuple[Any, ...]) -> Any:
        now, last = tensors(state), tensors(rest)
        with torch.no_grad():
            for own in each:
                now = self.run(*now, *tensors(own), *last)
        return rebuilt(self.returned, iter(now))


def _interpreted(graph: GraphModule, leaves: Sequence[Tensor]) -> Callable[..., Any]:
    """Return what makes the operations of a graph without Python, which takes longer for small tensors than they do.

    TorchScript is deprecated, and still the only interpreter of PyTorch's that makes operations
    one after the other as they are. Where it is gone, Python makes them.
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
        log.info("operations are made by Python: %s", line(error))
        return graph.forward
    return run


# ---- trees of tensors: PyTorch's own functions for them take longer than a small update


def flat(tree: Any) -> tuple[list[Tensor], Kind]:
    """Return the tensors of a tree, and its kind."""
    leaves, kind = list[Tensor](), list[object]()
    _flatten(tree, leaves, kind)
    return leaves, tuple(kind)


def _flatten(tree: Any, leaves: list[Tensor], kind: list[object]) -> None:
    """Append the tensors of tuples, lists and mappings to `leaves`, and what makes a kind of them to `kind`."""
    if isinstance(tree, Tensor):
        leaves.append(tree)
        kind.append((tree.shape, tree.stride(), tree.dtype, tree.device))
    elif isinstance(tree, dict):
        kind.append(tuple(tree))
        for part in tree.values():
            _flatten(part, leaves, kind)
    else:
        kind.append((type(tree), len(tree)))
        for part in tree:
            _flatten(part, leaves, kind)


def tensors(tree: Any) -> Sequence[Tensor]:
    """Return the tensors of tuples, lists and mappings in their order."""
    if isinstance(tree, Tensor):
        return (tree,)
    return [
        leaf
        for part in (tree.values() if isinstance(tree, dict) else tree)
        for leaf in tensors(part)
    ]


def rebuilt(tree: Any, leaves: Iterator[Any]) -> Any:
    """Put leaves where the tensors of a tree are, or the Nones that stand for them."""
    if tree is None or isinstance(tree, Tensor):
        return next(leaves)
    if isinstance(tree, dict):
        return {name: rebuilt(part, leaves) for name, part in tree.items()}
    parts = [rebuilt(part, leaves) for part in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)


def settled(state: Any) -> Any:
    """Return dimensions of size one the strides that go with the shape.

    Any stride does for them, and a trace would be made anew for each that comes along. The numbers
    stay where they are if they lie in the order of the shape; else they are copied into it.
    Tensors without such dimensions stay as they are.
    """
    return tree_map(_settled, state)


def _settled(leaf: Tensor) -> Tensor:
    if 1 not in leaf.shape:
        return leaf
    strides = [prod(leaf.shape[after:]) for after in range(1, leaf.ndim + 1)]
    return leaf.contiguous().as_strided(leaf.shape, strides)
