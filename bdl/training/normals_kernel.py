"""The compiled kernel of the generator of normals, called and loaded without the compiler.

The compiler makes one kernel of the generator, for any number of trials and normals, and calls it
through Python. Later processes load its library from the compiler's cache, as in `programs`: the
same kernel, and so the same bits.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bdl.files import write_atomically
from bdl.training.compiler import compile_function, is_running_eagerly
from bdl.training.programs import (
    KEEPS_LAYERS,
    build_conditions,
    cache_folder,
    digest_conditions,
    has_same_bits,
    load_library,
    name_in_cache,
    program_path,
    warn_slower,
)

Generator = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]

_ENTRY = "kernel"
"""The function of the library."""

_DESCRIPTION = "the generator of normals"

_VERSION = 1
"""Raised when the generator's operations change: its graph is not known without the compiler."""

_OPTIONS = {"realize_opcount_threshold": 28}
"""Settings of the compiler.

Four rounds of the cipher are 28 operations. If the compiler keeps the result of so many, the
numbers take a quarter of the time; by default it repeats rounds within rounds.
"""


def compile_normals(normals: Generator, dtype: torch.dtype) -> Generator:
    """Compile the generator of normals, or load its kernel where it has been compiled before.

    Parameters
    ----------
    normals
        From keys (R, 2), steps (R, 1) or a scalar, and n, to two tensors (R, n).
    dtype
        Type of the normals.
    """
    inner_graphs = list[Any]()
    compiled = compile_function(normals, _OPTIONS, inner_graphs)
    kernels: dict[object, Generator | None] = {}

    def generate(keys: Tensor, steps: Tensor, n: int) -> tuple[Tensor, Tensor]:
        # the compiler has programs of their own for sizes of one
        is_usual = keys.is_cpu and steps.shape == (len(keys), 1) and min(len(keys), n) > 1
        if is_running_eagerly() or not (is_usual and keys.is_contiguous()):
            results: tuple[Tensor, Tensor] = compiled(keys, steps, n)
            return results
        # by sizes, to a factor of two, and threads the compiler decides what runs in parallel
        kind = len(keys).bit_length(), n.bit_length(), torch.get_num_threads()
        if kind not in kernels:
            path = _path(dtype, kind)
            kernels[kind] = _load(path, dtype)
            if kernels[kind] is None:
                count = len(inner_graphs)
                results = compiled(keys, steps, n)
                if len(inner_graphs) > count:  # it has been compiled just now
                    kernels[kind] = _store(path, inner_graphs[-1], compiled, (keys, steps, n))
                return results
        kernel = kernels[kind]
        results = kernel(keys, steps, n) if kernel else compiled(keys, steps, n)
        return results

    return generate


def _path(dtype: torch.dtype, kind: object) -> Path:
    return program_path(digest_conditions("normals", _VERSION, dtype, kind, build_conditions()))


def _load(path: Path, dtype: torch.dtype) -> Generator | None:
    """Load the kernel from disk; None if it is not there."""
    try:
        stored = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    library = cache_folder() / stored["library"]
    if not library.is_file():  # the compiler's cache has been emptied
        return None
    try:
        return _bind(load_library(library, _ENTRY), stored["arguments"], dtype)
    except ImportError:  # it was cut off
        return None


def _store(
    path: Path, graph: Any, compiled: Generator, arguments: tuple[Tensor, Tensor, int]
) -> Generator | None:
    """Return the kernel of a compiled graph, and store where it is.

    None, with a warning, if there is not one: another version of PyTorch may write it otherwise.
    """
    keys, steps, n = arguments
    source = getattr(graph, "source_code", "")
    names = _name_arguments(source)
    kernel_name = re.search(r"^ +(cpp_fused\w+)\(", source, re.MULTILINE)
    call = getattr(graph, "current_callable", None)
    variables = getattr(getattr(call, "__func__", call), "__globals__", {})
    kernel: Any = variables.get(kernel_name[1]) if kernel_name else None
    if names is None or getattr(kernel, "__name__", "") not in (_ENTRY, f"{_ENTRY}_py"):
        warn_slower(_DESCRIPTION, KEEPS_LAYERS, "its source is not of a known form")
        return None
    first_results = compiled(keys, steps, n)
    generate = _bind(kernel, names, first_results[0].dtype)
    more = keys.repeat(2, 1), steps.repeat(2, 1), n + 5
    if not (
        has_same_bits(generate(keys, steps, n), first_results)
        and has_same_bits(generate(*more), compiled(*more))
    ):
        warn_slower(_DESCRIPTION, KEEPS_LAYERS, "without them it has other bits")
        return None
    library = name_in_cache(Path(kernel.__self__.__file__), _DESCRIPTION)
    if library is not None:
        # a full disk, or one that cannot be written to: later processes compile
        with suppress(OSError, ValueError), write_atomically(path) as new_path:
            new_path.write_text(json.dumps({"library": library, "arguments": names}), "utf-8")
    return generate


def _name_arguments(source: str) -> list[str] | None:
    """Return the names of the kernel's arguments, of those that `_bind` has.

    None if the compiler's program is not one call of one kernel with such arguments.
    """
    keys = re.search(r"assert_size_stride\((\w+), \((s\d+), (s\d+)\), \(\3, 1\)", source)
    calls = re.findall(r"^ +cpp_fused\w+\((.*)\)$", source, re.MULTILINE)
    if keys is None or len(calls) != 1:
        return None
    rows = keys[2]
    steps = re.search(rf"assert_size_stride\((\w+), \({rows}, 1\), \(1, 1\)", source)
    number = re.search(r"assert_size_stride\((\w+), \(\), \(\)", source)
    results = re.search(r"return \((buf\d+), (buf\d+), \)", source)
    buffer = rf"(buf\d+) = empty_strided_cpu\(\({rows}, (s\d+)\), \(max\(1, \2\), 1\), torch"
    buffers = re.findall(buffer, source)
    if steps is None or results is None or {name for name, _ in buffers} != {*results.groups()}:
        return None
    names = {
        keys[1]: "keys",
        steps[1]: "steps",
        rows: "rows",
        keys[3]: "words",
        buffers[0][1]: "n",
        results[1]: "cosines",
        results[2]: "sines",
    }
    if number is not None:
        names[number[1]] = "pi"  # to the compiler a number of a module is an argument
    arguments = calls[0].split(", ")
    return [names[name] for name in arguments] if {*arguments} <= {*names} else None


def _bind(kernel: Any, names: Sequence[str], dtype: torch.dtype) -> Generator:
    """Return a kernel as a generator."""
    pi = torch.tensor(math.pi, dtype=torch.float64)

    def generate(keys: Tensor, steps: Tensor, n: int) -> tuple[Tensor, Tensor]:
        rows, words = keys.shape
        cosines = torch.empty(rows, n, dtype=dtype)
        sines = torch.empty(rows, n, dtype=dtype)
        values = {
            "keys": keys,
            "steps": steps.contiguous(),
            "rows": rows,
            "words": words,
            "n": n,
            "cosines": cosines,
            "sines": sines,
            "pi": pi,
        }
        kernel(*[values[name] for name in names])
        return cosines, sines

    return generate
