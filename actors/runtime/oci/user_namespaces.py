"""Makes a pod's user namespace and the namespaces that it owns, in a short-lived process of the helper.

The caller pins them while that process lives. It ends with the caller, at any step.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from actors.runtime.model.user_mapping import UserMapping
from actors.runtime.oci.helper import helper_command

HOLD_S = 30.0
"""Time limit of a process that usually lives 40 ms."""


@contextlib.contextmanager
def held(ids: UserMapping, kinds: Sequence[str]) -> Iterator[int]:
    """Yields the pid of a process in new namespaces of these kinds and in their user namespace. Raises OSError."""
    with subprocess.Popen(
        [*helper_command(""), "hold-namespaces", *kinds],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        cwd="/",
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        limit = threading.Timer(HOLD_S, process.kill)
        limit.daemon = True
        limit.start()
        try:
            _expect(process)
            for name in ("uid_map", "gid_map"):
                Path(f"/proc/{process.pid}/{name}").write_text(f"0 {ids.first} {ids.length}\n")
            process.stdin.write(b".")
            _expect(process)
            yield process.pid
        finally:
            process.kill()
            limit.cancel()


def _expect(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert process.stderr is not None
    if not process.stdout.read(1):
        said = process.stderr.read().decode(errors="replace").strip() or f"no answer within {HOLD_S:g} s"
        raise OSError(0, f"cannot make a user namespace: {said}")
