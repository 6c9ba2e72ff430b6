"""Where the memory of large tensors comes from."""

import ctypes
import os
import sys

_KEPT = 2**31 - 1
_OPTIONS = {-4: 0, -1: _KEPT}  # M_MMAP_MAX and M_TRIM_THRESHOLD of glibc's malloc.h
_VARIABLES = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(_KEPT), "THP_MEM_ALLOC_ENABLE": "1"}
"""The same for processes to come; the last makes torch ask for pages of 2 MB."""


def keep_pages() -> None:
    """Let large tensors take the memory that others left, where glibc allocates; for before torch is imported.

    By itself glibc gets the memory of each tensor above 32 MB from the system and hands it back, and the system clears
    it page by page: half of an update of a network with ten million parameters. What is kept is what was needed at
    once, and more for the gaps: mostly up to a fifth, but up to three times as much in the worst case measured. An
    environment that says something of it is left alone.
    """
    told = any(name.startswith("MALLOC_") for name in os.environ) or "glibc.malloc" in os.getenv("GLIBC_TUNABLES", "")
    if told or not sys.platform.startswith("linux"):
        return
    os.environ.update({name: os.environ.get(name, value) for name, value in _VARIABLES.items()})
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        for option, value in _OPTIONS.items():
            library.mallopt(option, value)
