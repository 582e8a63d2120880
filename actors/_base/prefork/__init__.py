"""Prepares the forkserver's heap before its first fork, so that children share its pages for longer.

A fork copies a page when either side writes to it. Two steps keep children from writing to inherited pages:

- `cache_warmup` runs an actor's life once, so that the caches of Python and msgspec are full. It saves 1 MB a child.
- `heap` fills the free slots of the allocators, so that children allocate on new pages. It saves another MB a child.

With 14 processes they take 128 MB of PSS instead of 154. They cost some 60 ms and 0.5 MB, once. Neither is needed for
an agent to work: NODEVISOR_PREFORK=0 in the supervisor's environment leaves both out.
"""

from __future__ import annotations

import logging
import os
import sys

from actors._base.prefork import cache_warmup, heap
from proto.agent.settings import Settings
from proto.wire.message import prepare_types

log = logging.getLogger(__name__)

SWITCH = "NODEVISOR_PREFORK"
"""Environment variable; `0` leaves the preparation out."""


def prepare(settings: Settings) -> None:
    """Prepare message types and, unless switched off, the heap. For the forkserver, while it has one thread."""
    prepare_types()  # always: msgspec crashes when two threads are the first to read one type
    if os.environ.get(SWITCH) == "0":
        return
    # Imports left references in the cache of looked-up attributes. Children would release them, and so copy pages.
    sys._clear_type_cache()
    try:
        cache_warmup.run(settings)
    except Exception:
        log.exception("cannot warm up caches before the fork; each actor needs 1 MB more")
    heap.fill()
