"""Measures the writable directories of containers, one walk at a time for each, in threads of its own.

A request waits for a walk for a short time only: one container with millions of files must not delay the figures of all
others. Until its walk has ended, its figures are the last ones, or the count so far.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from actors._host.files.disk_use import DiskUse, Walk

AGE_S = 15.0
"""Time from the end of a walk to the next one of the layer, at least."""
PATIENCE_S = 2.0
"""A request waits for a walk until it has taken this long. Some 500,000 files take it."""
WALK_S = 60.0
"""After this long a walk ends with the count so far: other containers wait for its thread."""
WALKERS = 2
log = logging.getLogger(__name__)


class _Stopped(Exception):
    """The runtime stops."""


class _Layer:
    """The figures of one layer, and the walk under way."""

    def __init__(self) -> None:
        self.use = DiskUse()
        self.ended = -AGE_S
        """Monotonic time of the last walk's end."""
        self.walk: tuple[DiskUse, Walk] | None = None
        """The directories measured before, and the walk under way, from its start on."""
        self.work: Future[None] | None = None
        """The walk under way, also while it waits for a thread."""
        self.patience_until = 0.0


class WrittenLayers:
    """Measures on request. Safe from any thread."""

    def __init__(self, places: Callable[[str], Sequence[Path]]) -> None:
        """`places` returns the directories that a container writes to, of its layer and its volumes."""
        self._places = places
        self._lock = threading.Lock()
        self._layers: dict[str, _Layer] = {}
        self._walkers = ThreadPoolExecutor(WALKERS, thread_name_prefix="disk-usage")
        self._stopped = False

    def refresh(self, ids: Iterable[str]) -> None:
        """Measure the layers of these containers whose figures are too old. Waits PATIENCE_S at most, altogether."""
        now = patience_until = time.monotonic()
        awaited = []
        with self._lock:
            if self._stopped:
                return
            for id_ in ids:
                layer = self._layers.setdefault(id_, _Layer())
                if layer.work is None and now - layer.ended >= AGE_S:
                    layer.patience_until = now + PATIENCE_S
                    layer.work = self._walkers.submit(self._measure, id_, layer)
                if layer.work is not None and layer.patience_until > now:
                    awaited.append(layer.work)
                    patience_until = max(patience_until, layer.patience_until)
        wait(awaited, patience_until - now)

    def use(self, id_: str) -> DiskUse:
        """Bytes and inodes of a container's layer, as last measured or counted so far. Does not wait."""
        layer = self._layers.get(id_)
        if layer is None:
            return DiskUse()
        walk = layer.walk
        return layer.use if walk is None else _most(layer.use, walk[0].plus(walk[1].use))

    def forget(self, id_: str) -> None:
        """Drop the figures of a removed container."""
        with self._lock:
            self._layers.pop(id_, None)

    def keep_only(self, ids: Iterable[str]) -> None:
        """Drop the figures of all other containers: one may have been removed while it was asked for."""
        known = set(ids)
        with self._lock:
            for id_ in [one for one, layer in self._layers.items() if one not in known and layer.work is None]:
                del self._layers[id_]

    def close(self) -> None:
        """Stop walks under way, and begin none."""
        with self._lock:
            self._stopped = True
        self._walkers.shutdown(wait=False, cancel_futures=True)

    def _measure(self, id_: str, layer: _Layer) -> None:
        try:
            use, deadline, cut_short = DiskUse(), time.monotonic() + WALK_S, False
            for directory in self._places(id_):
                walk = Walk(deadline, sys.maxsize, self._go_on)
                layer.walk = (use, walk)
                use = use.plus(walk.measure(str(directory)))
                cut_short = cut_short or walk.cut_short
            if cut_short:
                log.warning("cannot measure all that container %s has written", id_)
                use = _most(layer.use, use)
            layer.use = use
        except _Stopped:
            return
        except Exception:
            log.exception("cannot measure what container %s has written", id_)
        finally:
            with self._lock:
                layer.walk = layer.work = None
                layer.ended = time.monotonic()

    def _go_on(self) -> None:
        if self._stopped:
            raise _Stopped


def _most(one: DiskUse, other: DiskUse) -> DiskUse:
    return DiskUse(max(one.bytes, other.bytes), max(one.inodes, other.inodes))
