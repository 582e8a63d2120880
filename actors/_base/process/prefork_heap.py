"""Fills the free slots of Python's and libc's allocators before the fork, so that children copy fewer pages.

A fork copies a page when either side writes to it. Imports leave a little free memory in many pages. A child allocates
there first, and copies a page for every few objects. With nothing free it allocates on pages of its own.

Measured with 15 processes: 117 MB of PSS instead of 136. The filling takes some 0.5 MB, once, and is never released. An
agent works without it: NODEVISOR_PREFORK=0 in the supervisor's environment switches it off.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, Mapping
from types import GeneratorType
from typing import Any

from proto.common.interpreter import clear_type_cache

log = logging.getLogger(__name__)

SWITCH = "NODEVISOR_PREFORK"
"""Environment variable; `0` switches the filling off."""

# pymalloc (Objects/obmalloc.c): an object of up to 512 bytes is in a pool of 16 KiB, a pool having objects of one size.
POOL_BYTES = 16 * 1024
POOL_HEADER_BYTES = 48
ALIGNMENT = 16
LARGEST_SMALL = 512
NEW_POOL_RUN = 5
"""So many objects in a row from a pool's begin show that the pool is new: no older pool had a free slot left."""
BATCH = 16
MAX_OBJECTS_PER_SIZE = 65_536
"""Ends the search in an interpreter with another allocator, which shows no such row."""

CHUNKS = (*(1024 << shift for shift in range(6, -1, -1)), *range(1008, 8, -16))
"""Bytes asked of malloc(3). Larger blocks are mapped: MALLOC_MMAP_THRESHOLD_ in forkclient.py."""
MAX_CHUNKS_PER_SIZE = 65_536

EXTRA_INTERNED = 1000
"""Strings; a child adds a few dozen. The table is 0.4 MB with up to 21,845 strings, and then 0.9 MB."""

_MALLINFO2 = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
"""The fields of mallinfo(3), glibc 2.33 and later."""

_filling: list[object] = []


def load_tls() -> None:
    """Have OpenSSL load its algorithms, and Python its codec of host names, once for all children that use TLS.

    Both are loaded by the first connection: 1.1 MB in each process with a client of the API server. A child's OpenSSL
    seeds its random numbers anew (RAND(7), fork). Nothing happens where no actor's module has imported ssl.
    """
    if os.environ.get(SWITCH) == "0" or "ssl" not in sys.modules:
        return
    import ssl  # noqa: PLC0415 - it is there already

    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        pass  # it has written its first message, and waits for the server's
    except (OSError, ValueError) as error:
        log.info("cannot load TLS before the fork: %s; each actor needs more memory", error)


def load_checks() -> None:
    """Have Python remember which common classes are mappings, once for all children.

    The first check of a class looks at all subclasses of Mapping, and so writes to 46 pages. HTTP headers and counters
    check what they are given.
    """
    if os.environ.get(SWITCH) == "0":
        return
    for kind in (dict, list, tuple, GeneratorType):
        issubclass(kind, Mapping)


def load_inotify() -> None:
    """Have inotify_simple find libc once for all children that watch files.

    The first watch runs ldconfig(8) to find it: 20 ms, and a process, at each start of eviction and config. Nothing
    happens where no actor's module has imported inotify_simple.
    """
    if os.environ.get(SWITCH) == "0" or "inotify_simple" not in sys.modules:
        return
    from inotify_simple import INotify  # noqa: PLC0415 - it is there already

    try:
        INotify().close()
    except OSError as error:
        log.info("cannot load inotify before the fork: %s; actors that watch files start later", error)


def fill() -> None:
    """Collect garbage, then fill every free slot. For the moment before the first fork, while there is one thread."""
    if os.environ.get(SWITCH) == "0":
        return
    # Imports left references in the cache of looked-up attributes. Children would release them, and so copy pages.
    clear_type_cache()
    gc.collect()  # also empties the free lists of types
    if not all(_fill_pools(size) for size in range(ALIGNMENT, LARGEST_SMALL + 1, ALIGNMENT)):
        log.info("cannot fill the interpreter's heap: its allocator is not pymalloc; each actor needs more memory")
    try:
        libc = _libc()
        _grow_interned(libc)
        _fill_malloc(libc)
    except (AttributeError, ImportError) as error:
        log.info("cannot fill the heap of libc: %s; each actor needs more memory", error)


def _maker(size: int) -> Callable[[], object]:
    """Return a function that makes objects of `size` bytes, as pymalloc rounds them up."""
    if size == object.__basicsize__:
        return object
    if size < bytes.__basicsize__:
        return lambda value=float(size): value + 0.5  # type: ignore[misc]
    return lambda content=size - bytes.__basicsize__: bytes(content)  # type: ignore[misc]


def _fill_pools(size: int) -> bool:
    """Fill the free slots of one size. False when no new pool showed up: the allocator is not pymalloc."""
    make = _maker(size)
    new_pool = [size * number for number in range(NEW_POOL_RUN)]
    offsets: list[int] = []
    for _ in range(MAX_OBJECTS_PER_SIZE // BATCH):
        made = [make() for _ in range(BATCH)]  # a batch before any id(): the integers that it returns are objects, too
        _filling.extend(made)
        offsets = offsets[-NEW_POOL_RUN:] + [id(one) % POOL_BYTES - POOL_HEADER_BYTES for one in made]
        if any(offsets[first : first + NEW_POOL_RUN] == new_pool for first in range(len(offsets))):
            return True
    return False


def _libc() -> Any:
    """Raises AttributeError with a C library without mallinfo2, ImportError without ctypes."""
    import ctypes  # noqa: PLC0415 - an interpreter may have been built without it

    libc: Any = ctypes.CDLL(None)
    fields = [(name, ctypes.c_size_t) for name in _MALLINFO2]
    libc.mallinfo2.restype = type("Mallinfo2", (ctypes.Structure,), {"_fields_": fields})
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    return libc


def _grow_interned(libc: Any) -> None:
    """Grow Python's table of interned strings if it soon would grow: a child that grows it copies it whole."""
    before = libc.mallinfo2().hblkhd
    for number in range(EXTRA_INTERNED):
        sys.intern(f"filling {number}")  # its slot stays used, even though the string is freed at once
        if libc.mallinfo2().hblkhd > before:
            return


def _fill_malloc(libc: Any) -> None:
    for size in CHUNKS:
        for _ in range(MAX_CHUNKS_PER_SIZE):
            top_bytes = libc.mallinfo2().keepcost
            chunk = libc.malloc(size)
            if libc.mallinfo2().keepcost != top_bytes:  # it came from the top of the heap: no free chunk was left
                libc.free(chunk)
                break
