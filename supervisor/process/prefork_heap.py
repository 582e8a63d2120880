"""What allocators have free in pages that are about to be shared is taken, so that no child ever puts anything there.

A process that forks shares its pages with its children until one of them writes. Imports leave pages with a little free
in each; a child that allocates is given that first, and so copies a page for every few objects. With nothing free it
begins on pages of its own, and fills those. Measured with 14 processes: 128 MB instead of 140. What is taken is some
0.5 MB, once, and is never given back.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)

# pymalloc (Objects/obmalloc.c): an object of up to 512 bytes is in a pool of 16 KiB, a pool having objects of one size.
POOL_BYTES = 16 * 1024
POOL_HEADER_BYTES = 48
ALIGNMENT = 16
LARGEST_SMALL = 512
IN_A_ROW = 5
"""Objects that follow each other from a pool's begin: it was an empty one, so none had a hole any more."""
BATCH = 16
MOST_OF_A_SIZE = 65_536
"""Objects; in an interpreter with another allocator there is no such row."""

CHUNKS = (*(1024 << shift for shift in range(6, -1, -1)), *range(1008, 8, -16))
"""Bytes asked of malloc(3). What is larger is mapped: MALLOC_MMAP_THRESHOLD_ in forkclient.py."""
MOST_OF_A_CHUNK = 65_536

INTERNED_AHEAD = 1000
"""Strings; a child adds a few dozen. The table is 0.4 MB with up to 21,845 of them, and then 0.9 MB."""

_MALLINFO2 = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
"""The fields of mallinfo(3), glibc 2.33 and later."""

_taken: list[object] = []


def fill() -> None:
    """Collect garbage, then take every hole. For the moment before a process's first fork, while it has one thread."""
    gc.collect()  # with it go the free lists of types, which are holes too
    if not all(_fill_pools(size) for size in range(ALIGNMENT, LARGEST_SMALL + 1, ALIGNMENT)):
        log.info("the interpreter has not pymalloc's pools: what is free stays free, and children are larger")
    try:
        libc = _libc()
        _grow_interned(libc)
        _fill_malloc(libc)
    except (AttributeError, ImportError) as error:
        log.info("what malloc has free stays free, and children are larger: %s", error)


def _maker(size: int) -> Callable[[], object]:
    """Of objects that take just so many bytes, as pymalloc rounds them up."""
    if size == object.__basicsize__:
        return object
    if size < bytes.__basicsize__:
        return lambda value=float(size): value + 0.5  # type: ignore[misc]
    return lambda content=size - bytes.__basicsize__: bytes(content)  # type: ignore[misc]


def _fill_pools(size: int) -> bool:
    """Have objects in every hole of that size; whether there was an end to it."""
    make = _maker(size)
    empty_pool = [size * number for number in range(IN_A_ROW)]
    offsets: list[int] = []
    for _ in range(MOST_OF_A_SIZE // BATCH):
        made = [make() for _ in range(BATCH)]  # at once: the numbers that their places are told by are objects, too
        _taken.extend(made)
        offsets = offsets[-IN_A_ROW:] + [id(one) % POOL_BYTES - POOL_HEADER_BYTES for one in made]
        if any(offsets[first : first + IN_A_ROW] == empty_pool for first in range(len(offsets))):
            return True
    return False


def _libc() -> Any:
    """Raises AttributeError with a C library that cannot say what it has free, ImportError without ctypes."""
    import ctypes  # noqa: PLC0415 - an interpreter may have been built without it

    libc: Any = ctypes.CDLL(None)
    fields = [(name, ctypes.c_size_t) for name in _MALLINFO2]
    libc.mallinfo2.restype = type("Mallinfo2", (ctypes.Structure,), {"_fields_": fields})
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    return libc


def _grow_interned(libc: Any) -> None:
    """Let Python's table of interned strings grow here if it soon would: in each child it would be copied whole."""
    before = libc.mallinfo2().hblkhd
    for number in range(INTERNED_AHEAD):
        sys.intern(f"hole {number}")  # its place is used up, even though it is gone at once
        if libc.mallinfo2().hblkhd > before:
            return


def _fill_malloc(libc: Any) -> None:
    for size in CHUNKS:
        for _ in range(MOST_OF_A_CHUNK):
            at_the_end = libc.mallinfo2().keepcost
            chunk = libc.malloc(size)
            if libc.mallinfo2().keepcost != at_the_end:  # there was no hole for it
                libc.free(chunk)
                break
