"""A running guest with this checkout in it, and what tests do there.

`NODEVISOR_GUEST=root@HOST[:PORT]` names another machine that is reached by ssh, in place of a guest under qemu. It has
this machine's release and the packages of `image`. Tests leave their traces there.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from tests.guest.qemu.image import BOOT_S, CHECKOUT_SIZE, image, make_file_system, make_overlay, run
from tests.guest.qemu.machine import CannotStart, Machine
from tests.guest.qemu.shell import Shell
from tests.guest.qemu.variants import APPARMOR, Variant
from tests.ports import free_port

OTHER = "NODEVISOR_GUEST"
CHECKOUT = Path(__file__).resolve().parents[2]
_LEFT_OUT = (".git", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".import_linter_cache", ".run")
_COPY = 'tar -C "$1" --ignore-failed-read --warning=none {excluded} -cf - . | tar -C "$2" -xf -'.format(
    excluded=" ".join(f"--exclude=./{name}" for name in _LEFT_OUT)
)
"""A shell's script. Other tests write caches there meanwhile, which tar passes over."""
_SSH_S = 240.0
SWAP_BYTES = 512 << 20


class Guest:
    """A guest that runs from `with` on, in its own directory below /tmp."""

    def __init__(self, checkout: Path = CHECKOUT, variant: Variant = APPARMOR) -> None:
        """The guest has a copy of `checkout` at the same path, with its .venv; it may write there."""
        self.checkout = checkout
        self.variant = variant
        self._scratch = Path(tempfile.mkdtemp(prefix="nv-guest-"))
        self._machine: Machine | None = None
        self.shell = Shell(self._scratch, os.environ.get(OTHER, ""))

    def __enter__(self) -> Guest:
        try:
            copy = self._scratch / "copy"
            _copy_checkout(self.checkout, copy)
            if os.environ.get(OTHER):
                self._connect(copy)
            else:
                self._start(copy)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, copy: Path) -> None:
        found = image(self.variant)
        disks = found.disks(self._scratch / "root.qcow2", self._scratch / "checkout")
        make_overlay(found.root, disks.root)
        make_file_system(copy, disks.checkout, CHECKOUT_SIZE)
        shutil.rmtree(copy)
        port = free_port()
        self.shell = Shell(self._scratch, f"root@127.0.0.1:{port}", found.key)
        self._machine = machine = Machine(self._scratch, disks, found.acceleration(), port)
        machine.resume(found.snapshot)
        self.shell.connect(_SSH_S, lambda: not machine.ended)
        there = shlex.quote(str(self.checkout))
        self.run(
            f"date -s @{time.time():.3f} && blockdev --flushbufs /dev/vdb && mkdir -p {there} && "
            f"echo /dev/vdb {there} ext4 defaults{self.variant.checkout_options} 0 0 >> /etc/fstab && mount {there}"
        )

    def _connect(self, copy: Path) -> None:
        self.shell.connect(_SSH_S)
        there = shlex.quote(str(self.checkout))
        self.run(f"test ! -e {there} || test -e {there}/.nodevisor-guest")  # another's files are not ours to replace
        with tempfile.TemporaryFile() as archive:
            subprocess.run(["tar", "-C", copy, "-czf", "-", "."], stdout=archive, check=True, timeout=300)
            archive.seek(0)
            script = f"rm -rf {there} && mkdir -p {there} && tar -C {there} -xzf - && touch {there}/.nodevisor-guest"
            self.run(script, 600, stdin=archive.read())
        shutil.rmtree(copy)

    @property
    def is_ours(self) -> bool:
        """True for a guest under qemu, False for another machine by ssh."""
        return self._machine is not None

    def run(
        self, script: str, timeout_s: float = 120.0, *, check: bool = True, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell's script there to its end, with its standard error among its output.

        Raises AssertionError with the output when it fails, subprocess.TimeoutExpired.
        """
        return self.shell.run(script, timeout_s, check=check, stdin=stdin)

    def put(self, path: str, content: str | bytes) -> None:
        """Write a file there, and the directories that it is in."""
        there = shlex.quote(path)
        data = content.encode() if isinstance(content, str) else content
        self.run(f'mkdir -p "$(dirname {there})" && cat > {there}', stdin=data)

    def get(self, path: str) -> str:
        """The content of a file there."""
        return self.run(f"cat {shlex.quote(path)}").stdout

    @contextmanager
    def reaches(self, port: int) -> Iterator[None]:
        """Meanwhile 127.0.0.1:PORT there leads to the same port of this machine."""
        with self.shell.forwarded(port):
            yield

    @contextmanager
    def swap(self) -> Iterator[None]:
        """Meanwhile it has swap."""
        self.run(f"fallocate -l {SWAP_BYTES} /swap && chmod 600 /swap && mkswap /swap && swapon /swap")
        try:
            yield
        finally:
            self.run("swapoff /swap; rm -f /swap", check=False)

    def power_off_and_on(self, timeout_s: float) -> None:
        """`systemctl poweroff`, wait for the machine's end, and start it again: a guest of ours only.

        Raises subprocess.TimeoutExpired with no end, TimeoutError with no start.
        """
        machine = self._machine
        assert machine is not None
        self.run("systemctl poweroff", check=False)
        machine.wait(timeout_s)
        self.shell.close()
        machine.boot()
        self.shell.connect(BOOT_S, lambda: not machine.ended)

    def close(self) -> None:
        """End it as a power cut does, and delete its directory."""
        self.shell.close()
        if self._machine is not None:
            self._machine.kill()
        shutil.rmtree(self._scratch)


def _copy_checkout(checkout: Path, copy: Path) -> None:
    """Copy it with its .venv, for Debian's Python of the same version in place of this machine's."""
    python = checkout / ".venv/bin/python"
    version = run(python, "-c", "import sys; print(*sys.version_info[:2])") if python.exists() else ""
    if version.split() != [str(part) for part in sys.version_info[:2]]:
        raise CannotStart(f"cannot put {checkout} into a guest: no environment there; run make .venv/.ready-dev")
    copy.mkdir()
    run("sh", "-c", _COPY, "sh", checkout, copy)
    venv = copy / ".venv"
    (venv / "bin/python3").unlink()
    (venv / "bin/python3").symlink_to("/usr/bin/python3")
    config = venv / "pyvenv.cfg"
    lines = [line for line in config.read_text().splitlines() if not line.startswith("home =")]
    config.write_text("\n".join(["home = /usr/bin", *lines, ""]))
    # Under emulation the agent takes 80 s to start without these files. Templates are among the sources: no check.
    compileall = (python, "-m", "compileall", "-q", "-j", "0", "-s", copy, "-p", checkout, copy)
    subprocess.run(compileall, check=False, capture_output=True, timeout=300)
