"""The types that a process's memory consists of, in a process of its own: a test's may hold more of other tests."""

from __future__ import annotations

import subprocess
import sys

from actors._base import heap

KIB = 1024


class Leaked:
    """A type that only this test has, of half a KiB."""

    __slots__ = ("payload", *(f"field_{number}" for number in range(60)))

    def __init__(self, number: int) -> None:
        self.payload = bytearray(3 * KIB) + bytes([number % 256])


def test_leaked_objects_and_their_bytes_come_first() -> None:
    look = f"import {__name__} as this; this.look_at_leaked()"
    subprocess.run([sys.executable, "-P", "-c", look], check=True, timeout=100)


def look_at_leaked() -> None:
    leaked = [Leaked(number) for number in range(40_000)]
    use = heap.use()
    types = {one.type: one for one in use.types}
    assert types["bytearray"].kib == max(one.kib for one in use.types)
    share = use.examined / use.objects
    assert types["bytearray"].count >= 0.5 * share * len(leaked)
    assert f"{__name__}.Leaked" in types
    assert len(use.types) <= heap.MOST_TYPES
    assert use.examined <= heap.MOST_EXAMINED
