"""Holes: after they are filled, what is allocated lands elsewhere. Each in a process of its own, which it changes."""

import subprocess
import sys

import pytest

from supervisor import holes

_PYMALLOC = """
import gc
from supervisor import holes

def made(count):
    return [make() for make in MAKERS for _ in range(count)]

MAKERS = [object, lambda: float(len(KEPT)), *(lambda size=size: bytes(size) for size in range(2, 470, 16))]
KEPT = []
KEPT = made(2000)
freed = {id(one) for one in KEPT[::7]}
del KEPT[::7]
if FILL:
    holes.fill()
again = sum(id(one) in freed for one in made(200))
print(again)
"""
_MALLOC = """
import ctypes
from supervisor import holes

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
SIZES = [*range(40, 1000, 40), 3000, 9000]
chunks = [(size, libc.malloc(size)) for _ in range(300) for size in SIZES]
freed = {chunk for _, chunk in chunks[::5]}
for chunk in freed:
    libc.free(chunk)
if FILL:
    holes.fill()
print(sum(libc.malloc(size) in freed for _ in range(30) for size in SIZES))
"""


def _landed_in_holes(script: str, fill: bool) -> int:
    return int(_python(f"FILL = {fill}\n{script}"))


def _python(script: str, **environment: str) -> str:
    environment["PYTHONPATH"] = ":".join(sys.path)
    argv = [sys.executable, "-c", script]
    run = subprocess.run(argv, env=environment, check=False, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("script", [_PYMALLOC, _MALLOC], ids=["pymalloc", "malloc"])
def test_nothing_lands_where_something_was_free(script: str) -> None:
    assert _landed_in_holes(script, fill=False) > 100
    assert _landed_in_holes(script, fill=True) <= 5  # what fill itself has given back since


@pytest.mark.parametrize("allocator", ["malloc", "pymalloc_debug"])
def test_another_allocator_of_the_interpreter_only_costs_memory(allocator: str) -> None:
    taken = _python("from supervisor import holes; holes.fill(); print(len(holes._taken))", PYTHONMALLOC=allocator)
    assert int(taken) <= holes.MOST_OF_A_SIZE
