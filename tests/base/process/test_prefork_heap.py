"""After free slots are filled, objects are allocated elsewhere. Each test changes a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from actors._base.process import prefork_heap as heap
from supervisor.process import forkserver
from supervisor.process.forkclient import ENVIRONMENT
from tests.harness import wait_for

_PYMALLOC = """
import gc
from actors._base.process import prefork_heap as heap
from supervisor.process.forkclient import ENVIRONMENT

def made(count):
    return [make() for make in MAKERS for _ in range(count)]

MAKERS = [object, lambda: float(len(KEPT)), *(lambda size=size: bytes(size) for size in range(2, 470, 16))]
KEPT = []
KEPT = made(2000)
freed = {id(one) for one in KEPT[::7]}
del KEPT[::7]
if FILL:
    heap.fill()
again = sum(id(one) in freed for one in made(200))
print(again)
"""
_MALLOC = """
import ctypes
from actors._base.process import prefork_heap as heap
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
    heap.fill()
print(sum(libc.malloc(size) in freed for _ in range(30) for size in SIZES))
"""
_INTERNED = """
import os, sys
from actors._base.process import prefork_heap as heap
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
libc = heap._libc()
readable, writable = os.pipe()
if os.fork() == 0:
    os.write(writable, str(until_it_grows(50_000)).encode())
    os._exit(0)
os.wait()
until_it_grows(int(os.read(readable, 100)) - 50)
if FILL:
    heap.fill()
print(until_it_grows(500) < 500)
"""
_TLS = """
import os, sys
from actors._base.process import prefork_heap as heap
if SSL:
    import ssl
if FILL:
    heap.load_tls()

def private_kib():
    with open("/proc/self/smaps_rollup") as rollup:
        return next(int(line.split()[1]) for line in rollup if line.startswith("Private_Dirty:"))

if os.fork() == 0:
    import ssl
    before = private_kib()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="x")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        print(private_kib() - before)
else:
    os.wait()
    if not SSL:
        print("ssl" in sys.modules)
"""
_INOTIFY = """
import os, sys
from actors._base.process import prefork_heap as heap
import inotify_simple
if FILL:
    heap.load_inotify()

commands = []
sys.addaudithook(lambda event, args: commands.append(args[0]) if event == "subprocess.Popen" else None)
if os.fork() == 0:
    inotify_simple.INotify().close()
    print(len(commands), flush=True)
    os._exit(0)
os.wait()
"""
_CHECKS = """
from _abc import _get_dump
from collections.abc import Mapping
from actors._base.process import prefork_heap as heap
if FILL:
    heap.load_checks()

_, cache, negative, _ = _get_dump(Mapping)
remembered = {one() for one in (*cache, *negative)}
print({dict, list, tuple, type(one for one in ())} <= remembered)
"""


def _landed_in_free_slots(script: str, fill: bool) -> int:
    return int(_python(script, fill))


def _python(script: str, fill: bool = True, **environment: str) -> str:
    environment["PYTHONPATH"] = ":".join(sys.path)
    argv = [sys.executable, "-c", f"FILL = {fill}\n{script}"]
    run = subprocess.run(argv, env=environment, check=False, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("script", [_PYMALLOC, _MALLOC], ids=["pymalloc", "malloc"])
def test_filled_heap_has_no_free_slot(script: str) -> None:
    assert _landed_in_free_slots(script, fill=False) > 100
    assert _landed_in_free_slots(script, fill=True) <= 5  # `fill` itself has released a few since


@pytest.mark.parametrize("allocator", ["malloc", "pymalloc_debug"])
def test_heap_filling_ends_with_another_allocator(allocator: str) -> None:
    script = "from actors._base.process import prefork_heap as heap; heap.fill(); print(len(heap._filling))"
    assert int(_python(script, PYTHONMALLOC=allocator)) <= heap.MAX_OBJECTS_PER_SIZE


def test_child_does_not_copy_the_table_of_interned_strings() -> None:
    environment = {"MALLOC_MMAP_THRESHOLD_": ENVIRONMENT["MALLOC_MMAP_THRESHOLD_"]}
    assert _python(_INTERNED, fill=False, **environment) == "True\n"
    assert _python(_INTERNED, fill=True, **environment) == "False\n"


def test_heap_filling_leaves_neither_thread_nor_descriptor() -> None:
    threads, fds = set(threading.enumerate()), set(os.listdir("/proc/self/fd"))
    heap.fill()
    # Threads that other tests have left may start others, or open something for a moment.
    wait_for(lambda: set(threading.enumerate()) <= threads, what="no thread is left")
    wait_for(lambda: set(os.listdir("/proc/self/fd")) <= fds, what="nothing is left open")


@pytest.mark.parametrize("switch", ["0", "1"])
def test_switch_leaves_heap_filling_out(switch: str) -> None:
    script = "from actors._base.process import prefork_heap as heap; heap.fill(); print(len(heap._filling))"
    assert (_python(script, NODEVISOR_PREFORK=switch) == "0\n") == (switch == "0")


@pytest.mark.parametrize("entry", ["no.such.module:main", "tests.base.process.test_prefork_heap:main", "json:main"])
def test_failing_preparation_is_logged_and_stops_nothing(entry: str, caplog: pytest.LogCaptureFixture) -> None:
    forkserver.prepare(entry, ())
    assert len(caplog.records) == (0 if entry == "json:main" else 1)


def prepare(_listeners: object) -> None:
    """Fails, in the place of an entry module's own function."""
    raise RuntimeError("not today")


def test_child_does_not_load_the_algorithms_of_tls_again() -> None:
    loaded, again = (int(_python(f"SSL = True\n{_TLS}", fill=fill)) for fill in (False, True))
    assert again < loaded / 2, "KiB of its own for a context and the first message"


def test_tls_is_not_loaded_where_no_actor_uses_it() -> None:
    assert _python(f"SSL = False\n{_TLS}").splitlines()[-1] == "False"


def test_child_that_watches_files_runs_no_command() -> None:
    assert int(_python(_INOTIFY, fill=False)) > 0, "ldconfig or another command that finds libc"
    assert int(_python(_INOTIFY, fill=True)) == 0


def test_child_does_not_look_for_mappings_again() -> None:
    assert _python(_CHECKS, fill=False) == "False\n"
    assert _python(_CHECKS, fill=True) == "True\n"


def test_inotify_is_not_loaded_where_no_actor_uses_it() -> None:
    script = "import sys; from actors._base.process import prefork_heap as heap; heap.load_inotify(); "
    assert _python(script + "print('inotify_simple' in sys.modules)") == "False\n"
