"""Runs a target on one input within limits of time and memory, and keeps the input if it breaks one.

For a process of its own: an input past the deadline ends it, with the stacks of all threads on stderr.
"""

from __future__ import annotations

import faulthandler
import hashlib
import resource
import signal
import traceback
from pathlib import Path

from tests.fuzz.target import Target

CPU_S = 10.0
"""Processor time for one input of at most 64 KiB, however busy the machine is."""
DEADLINE_S = 60.0
"""Time for one input that waits, on a machine that runs other tests."""
MOST_GROWTH_BYTES = 64 * 1024 * 1024
"""Of resident memory, for one input."""
ADDRESS_SPACE_BYTES = 1024 * 1024 * 1024
"""On top of what the process has at its start, so that no input takes the machine's memory."""
HUNG = 1
"""faulthandler's exit code."""


class Finding(Exception):
    """An input that broke the target; the text says how and names the file that keeps it."""


class Guard:
    """Feeds inputs to one target."""

    def __init__(self, target: Target, directory: Path) -> None:
        """`directory` gets the current input, as `TARGET.current`, and the findings."""
        self._target = target
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._current = (directory / f"{target.name}.current").open("wb", buffering=0)
        _limit_address_space()
        faulthandler.register(signal.SIGPROF, chain=True)  # shows the stacks; then the signal ends the process

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, *exc: object) -> None:
        self._current.close()
        (self._directory / f"{self._target.name}.current").unlink()

    def feed(self, data: bytes) -> None:
        """Feed one input. Raises Finding."""
        self._current.truncate(0)
        self._current.seek(0)
        self._current.write(data)
        before = _reset_peak()
        faulthandler.dump_traceback_later(DEADLINE_S, exit=True)
        signal.setitimer(signal.ITIMER_PROF, CPU_S)
        try:
            self._target.feed(data)
        except MemoryError as error:
            raise self._finding(data, "takes more memory than there is") from error
        except AssertionError as error:
            raise self._finding(data, f"accepts what it must refuse: {error}") from error
        except Exception as error:
            raise self._finding(data, traceback.format_exc()) from error
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            faulthandler.cancel_dump_traceback_later()
        growth = _peak() - before
        if growth > MOST_GROWTH_BYTES:
            raise self._finding(data, f"takes {growth // 1024 // 1024} MB for {len(data)} bytes")

    def _finding(self, data: bytes, problem: str) -> Finding:
        path = self._directory / f"{self._target.name}-{hashlib.sha256(data).hexdigest()[:12]}"
        path.write_bytes(data)
        return Finding(
            f"{self._target.name}: {problem}\nThe input is in {path}. Again: python -m tests.fuzz replay "
            f"{self._target.name} {path}. Keep it in tests/fuzz/found/{self._target.name}/ with the fix."
        )


def _limit_address_space() -> None:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = size + ADDRESS_SPACE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (wanted if hard < 0 else min(wanted, hard), hard))


def _reset_peak() -> int:
    """Begin a new peak of resident memory, proc(5); its present value in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
