"""Compiled programs, called without the compiler's layers, and loaded without its import.

The compiler leaves a library with one function, from handles of tensors to handles of tensors.
What lies between that and its caller (wrappers for subclasses, views, profilers, metrics) takes
half as long as an update of a small model. The import of the compiler, and what it does before it
finds the library in its cache, take seconds. So a file beside that cache names the library of
each program by all that decides it, and later processes load it from there. It is the same
library, and so the bits are the same.
"""

import importlib.util
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from getpass import getuser
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from bdl.files import write_atomically

log = logging.getLogger(__name__)

Program = Callable[..., Sequence[Tensor]]

_FOLDER = "bdl-programs"
"""Folder in that of the compiler's cache."""

_ENTRY = "inductor_entry_cpp"
"""The function of a library."""


class ProgramCache:
    """Libraries of one graph for arguments of these shapes, types and devices.

    Parameters
    ----------
    graph, leaves
        Recorded operations, and tensors like those that they will be called with.
    options
        Settings of the compiler.
    """

    def __init__(
        self, graph: GraphModule, leaves: Sequence[Tensor], options: Mapping[str, Any]
    ) -> None:
        # the compiler puts the constants of a graph before its arguments
        self._constants = list(graph.buffers())
        self._path = program_path(_program_key(graph, leaves, options))

    def load(self) -> Program | None:
        """Load the program from disk; None if it is not there."""
        try:
            library = cache_folder() / self._path.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return None
        if not library.is_file():  # the compiler's cache has been emptied
            return None
        try:
            return _bind(load_library(library, _ENTRY), self._constants)
        except ImportError:  # it was cut off
            return None

    def store(self, compiled: Program, graph: Any, leaves: Sequence[Tensor]) -> Program:
        """Return a compiled program without the compiler's layers, and store where it is.

        `compiled` is the program with them, and `graph` what the compiler makes of the operations,
        None if it does not show that. Where the layers do anything, `compiled` is returned, and
        nothing is stored. Unless the program has constants of its own, which only the layers know,
        there is a warning: another version of PyTorch may have written it otherwise.
        """
        entry = _find_entry(graph, len(self._constants) + len(leaves))
        if entry is None:
            if not getattr(graph, "constants", None):
                warn_slower("a compiled update", KEEPS_LAYERS, "its source is not of a known form")
            return compiled
        program = _bind(entry, self._constants)
        if not has_same_bits(program(*leaves), compiled(*leaves)):
            warn_slower("a compiled update", KEEPS_LAYERS, "without them it has other bits")
            return compiled
        library = name_in_cache(Path(entry.__self__.__file__), "a compiled update")
        if library is not None:
            # a full disk, or one that cannot be written to: later processes compile
            with suppress(OSError, ValueError), write_atomically(self._path) as path:
                path.write_text(library, "utf-8")
        return program


def _bind(entry: Any, constants: Sequence[Tensor]) -> Program:
    """Return the function of a library as one from tensors to tensors."""
    to_handles = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors
    to_tensors = torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs

    def program(*leaves: Tensor) -> Sequence[Tensor]:
        # the library frees the handles of its arguments
        results: Sequence[Tensor] = to_tensors(entry(to_handles([*constants, *leaves])))
        return results

    return program


def _find_entry(graph: Any, n_arguments: int) -> Any:
    """Return the function of the library of a compiled graph.

    None if there is none that takes so many tensors and nothing else, and returns tensors alone.
    """
    source = getattr(graph, "source_code", "")
    cells: Sequence[Any] = (
        getattr(getattr(graph, "current_callable", None), "__closure__", None) or ()
    )
    is_plain = (
        len(cells) == 1
        and not graph.constants
        and "return output_tensors\n" in source
        and f"arg{n_arguments - 1}_1 = rand_strided" in source
        and f"arg{n_arguments}_1 = " not in source
    )
    entry = cells[0].cell_contents if is_plain else None
    return entry if getattr(entry, "__name__", "") == _ENTRY else None


KEEPS_LAYERS = "is called through the compiler's layers, and every process compiles it"
"""Loss of time where a program could not be taken out of the compiler's layers."""


@cache  # once in a process, however many programs there are
def warn_slower(program: str, loss: str, reason: str) -> None:
    """Warn that a program takes more time than it did under an earlier version of PyTorch."""
    log.warning("PyTorch %s: %s %s (slower): %s", torch.__version__, program, loss, reason)


def name_in_cache(library: Path, program: str) -> str | None:
    """Return the path of a program's library in the compiler's cache.

    None, with a warning, if it is elsewhere: another version of PyTorch may have another folder.
    """
    if library.is_relative_to(cache_folder()):
        return str(library.relative_to(cache_folder()))
    warn_slower(program, "is compiled by every process", f"its library is not in {cache_folder()}")
    return None


def has_same_bits(results: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    """Return whether tensors have the same bits, types, shapes and strides."""
    return len(results) == len(expected) and all(map(_is_same, results, expected))


def _is_same(result: Any, expected: Any) -> bool:
    return (
        isinstance(result, Tensor)
        and isinstance(expected, Tensor)
        and result.dtype == expected.dtype
        and result.shape == expected.shape
        and result.stride() == expected.stride()
        and result.numpy().tobytes() == expected.numpy().tobytes()
    )


def load_library(path: Path, entry: str) -> Any:
    """Load a library, and return its function of this name."""
    # under the name that the compiler gives it: a process that has it need not load it again
    name = f"{path.name.partition('.')[0]}.{entry}"
    if name not in sys.modules:
        # by this address the library gets at the data of Python's tensors
        guards: Any = torch._C._dynamo.guards
        address = guards._torchinductor_pyobject_tensor_data_ptr
        os.environ["_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"] = str(address)
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} is no library")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return getattr(sys.modules[name], entry)


def program_path(key: str) -> Path:
    """Return the file that names the library of a program."""
    return cache_folder() / _FOLDER / key


def cache_folder() -> Path:
    """Return the folder of the compiler's cache, by its own rule."""
    if folder := os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
        return Path(folder).absolute()
    try:
        user = getuser()
    except (KeyError, OSError):
        user = f"uid_{os.getuid()}"
    name = re.sub(r'[\\/:*?"<>|]', "_", user)
    return Path(tempfile.gettempdir(), f"torchinductor_{name}").absolute()


def _program_key(graph: GraphModule, leaves: Sequence[Tensor], options: Mapping[str, Any]) -> str:
    """Return a digest of all that decides a program: operations, arguments, compiler, machine."""
    constants = [
        (name, _layout(constant), constant.detach().contiguous().numpy().tobytes())
        for name, constant in graph.named_buffers()
    ]
    layouts = [_layout(leaf) for leaf in leaves]
    return digest_conditions(
        graph.code, constants, layouts, sorted(options.items()), build_conditions()
    )


def digest_conditions(*conditions: object) -> str:
    """Return a digest of what decides a program."""
    return sha256(repr(conditions).encode()).hexdigest()


def build_conditions() -> tuple[object, ...]:
    """Return what decides all programs: versions, processor, threads, compiler and its settings."""
    compiler = Path(shutil.which(os.environ.get("CXX", "g++")) or "none").resolve()
    settings = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("TORCHINDUCTOR_") and name != "TORCHINDUCTOR_CACHE_DIR"
    }
    return (
        sorted(settings.items()),
        torch.__version__,
        torch.version.git_version,
        sys.implementation.cache_tag,
        torch.backends.cpu.get_cpu_capability(),
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        str(compiler),
        compiler.stat().st_mtime_ns if compiler.is_file() else 0,
    )


def _layout(tensor: Tensor) -> tuple[object, ...]:
    return tuple(tensor.shape), tensor.stride(), tensor.dtype, str(tensor.device)
