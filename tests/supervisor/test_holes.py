"""Holes: after they are filled, what is allocated lands elsewhere. Each in a process of its own, which it changes."""

import subprocess
import sys

import pytest

from supervisor.process import prefork_heap
from supervisor.process.forkclient import ENVIRONMENT

_PYMALLOC = """
import gc
from supervisor.process import prefork_heap as holes
from supervisor.process.forkclient import ENVIRONMENT

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
from supervisor.process import prefork_heap as holes
from supervisor.process.forkclient import ENVIRONMENT

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
_INTERNED = """
import os, sys
from supervisor.process import prefork_heap as holes
from supervisor.process.forkclient import ENVIRONMENT

def until_it_grows(most):
    before = libc.mallinfo2().hblkhd
    for number in range(most):
        KEPT[NEXT[0]] = sys.intern(f"of the test {NEXT[0]}")
        NEXT[0] += 1
        if libc.mallinfo2().hblkhd > before:
            return number
    return most

KEPT, NEXT = [None] * 100_000, [0]
libc = holes._libc()
readable, writable = os.pipe()
if os.fork() == 0:
    os.write(writable, str(until_it_grows(50_000)).encode())
    os._exit(0)
os.wait()
until_it_grows(int(os.read(readable, 100)) - 50)
if FILL:
    holes.fill()
print(until_it_grows(500) < 500)
"""


def _landed_in_holes(script: str, fill: bool) -> int:
    return int(_python(script, fill))


def _python(script: str, fill: bool = True, **environment: str) -> str:
    environment["PYTHONPATH"] = ":".join(sys.path)
    argv = [sys.executable, "-c", f"FILL = {fill}\n{script}"]
    run = subprocess.run(argv, env=environment, check=False, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("script", [_PYMALLOC, _MALLOC], ids=["pymalloc", "malloc"])
def test_nothing_lands_where_something_was_free(script: str) -> None:
    assert _landed_in_holes(script, fill=False) > 100
    assert _landed_in_holes(script, fill=True) <= 5  # what fill itself has given back since


@pytest.mark.parametrize("allocator", ["malloc", "pymalloc_debug"])
def test_another_allocator_of_the_interpreter_only_costs_memory(allocator: str) -> None:
    taken = _python(
        "from supervisor.process import prefork_heap as holes; holes.fill(); print(len(holes._taken))",
        PYTHONMALLOC=allocator,
    )
    assert int(taken) <= prefork_heap.MOST_OF_A_SIZE


def test_a_child_does_not_copy_the_table_of_interned_strings() -> None:
    environment = {"MALLOC_MMAP_THRESHOLD_": ENVIRONMENT["MALLOC_MMAP_THRESHOLD_"]}
    assert _python(_INTERNED, fill=False, **environment) == "True\n"
    assert _python(_INTERNED, fill=True, **environment) == "False\n"
