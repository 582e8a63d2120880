"""Makes the environment `.venv` of this clone: `python3 .ci/setup.py run`, `dev` for tests, `fuzz` for `make long`.

`make` calls it. It uses the standard library only, since nothing else is there yet. One set-up at a time works on a
clone; a second one waits. A set-up that was broken off is begun anew. What goes wrong is said in one line.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

NEEDED = (3, 11)
CLONE = Path(__file__).resolve().parents[1]
VENV = CLONE / ".venv"
UNFINISHED = VENV / ".unfinished"
"""There while packages are installed: with it the environment is not to be trusted."""
TEMPORARY = VENV / ".tmp"
"""The temporary files of pip, which are many and stay in /tmp when it is killed."""
GROUPS = {"dev": "the development tools, some 60 MB the first time", "fuzz": "the fuzzer, some 20 MB"}
"""Dependency groups of pyproject.toml."""
COMPILED = ("supervisor", "actors", "proto")
SMALL_BYTES = 20_000_000
"""A file system with less room than this is taken for full when a program fails without a reason."""
PIP = ("-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--retries=2")
NO_VENV = (
    "this Python cannot make virtual environments; on Debian and Ubuntu: apt-get install -y python3-venv, elsewhere "
    "install Python's venv and ensurepip"
)
NO_SPACE = "No space left on device{full}: the disk is full; make room, some 300 MB, and run make again"
REASONS = (
    (r"No space left on device|Disk quota exceeded", NO_SPACE),
    (r"Read-only file system", "{clone} is on a read-only file system; clone to a directory that you may write to"),
    (
        r"Permission denied: '(?P<found>[^']+)'",
        "cannot write {found}: permission denied; clone to a directory that you may write to",
    ),
    (
        r"NewConnectionError|ConnectTimeout|ConnectionError|Read timed out|ReadTimeout|ProxyError|SSLError|"
        r"Failed to establish a new connection|Temporary failure in name resolution|Max retries exceeded",
        "no package index answers; connect to the network, or name an index that can be reached: "
        "PIP_INDEX_URL=https://... make (a proxy: HTTPS_PROXY=http://...)",
    ),
    (
        r"No matching distribution found for (?P<found>.+)",
        "the package index has no {found} for Python {version} on this machine; name another index or Python",
    ),
)
"""Pattern in the output of a failed step, and the message for people. The first match counts."""
STEP = re.compile(r"\s*(?P<what>Collecting|Downloading|Installing|Building|Preparing|Getting)\b.*")


class CannotSetUp(Exception):
    """The message says in one line what is wrong and what to do."""


def main(arguments: Sequence[str]) -> int:
    """Set up `run` or `dev`; the exit code."""
    if sys.version_info < NEEDED or sys.maxsize < 1 << 32:
        print(too_old(sys.version_info[:2]) if sys.version_info < NEEDED else too_narrow(), file=sys.stderr)
        return 1
    kind = arguments[0] if len(arguments) == 1 else ""
    if kind not in ("run", *GROUPS):
        print("usage: setup.py run|dev|fuzz", file=sys.stderr)
        return 2
    try:
        with only_one() as lock:
            if not is_ready(kind):
                set_up(kind, lock)
    except CannotSetUp as error:
        print(f"cannot set up: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"cannot set up: {reason(str(error), full_file_systems())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nThe set-up is broken off; the next make begins it anew.", file=sys.stderr)
        return 130
    return 0


def too_old(version: Sequence[int]) -> str:
    """The message for a Python that can read this file but not run the agent."""
    found = ".".join(map(str, version))
    better = [name for minor in range(19, 10, -1) if shutil.which(name := f"python3.{minor}")]
    how = f"run make PYTHON={better[0]}" if better else "install one, then name it: make PYTHON=python3.11"
    return f"cannot set up: {sys.executable} is Python {found}, and 3.11 or later is needed; {how}"


def too_narrow() -> str:
    """The message for a Python of 32 bits, for which the package index lacks packages and the agent is not made."""
    return (
        f"cannot set up: {sys.executable} is of 32 bits, and 64 are needed; install a 64-bit system "
        "(Raspberry Pi OS (64-bit), Debian arm64 or amd64)"
    )


def is_ready(kind: str) -> bool:
    """True when another set-up has finished meanwhile."""
    ready = VENV / f".ready-{kind}"
    with contextlib.suppress(FileNotFoundError):
        return not UNFINISHED.exists() and ready.stat().st_mtime >= (CLONE / "pyproject.toml").stat().st_mtime
    return False


def set_up(kind: str, lock: int) -> None:
    """Make the environment, or add to it. Raises CannotSetUp, OSError."""
    new = not is_usable()
    said: list[str] = []
    try:
        if new:
            make_environment(lock)
        UNFINISHED.touch()
        install(kind, lock, said)
    except KeyboardInterrupt:
        keep_unless_begun(new, said)
        raise
    except (CannotSetUp, OSError):
        if new and UNFINISHED.exists():  # a full disk has room again
            shutil.rmtree(VENV, ignore_errors=True)
        keep_unless_begun(new, said)
        raise
    UNFINISHED.unlink()
    (VENV / f".ready-{kind}").touch()


def install(kind: str, lock: int, said: list[str]) -> None:
    """Install what `kind` needs; `said` gets what the steps say. Raises CannotSetUp."""
    python = str(VENV / "bin" / "python")
    if kind == "run":
        say("Setting up .venv: downloading and installing packages, some 40 MB the first time ...")
        run([python, *PIP, "--editable", "."], lock, said)
        # Ahead, since a process that compiles what it imports is larger for as long as it lives.
        run([python, "-m", "compileall", "-q", *(name for name in COMPILED if (CLONE / name).exists())], lock, said)
        return
    import tomllib  # noqa: PLC0415 - an older Python than is needed does not have it

    say(f"Setting up .venv: adding {GROUPS[kind]} ...")
    project = tomllib.loads((CLONE / "pyproject.toml").read_text())
    # Named one by one, because pip knows dependency groups from 25.1 on only.
    run([python, *PIP, *project["dependency-groups"][kind]], lock, said)


def keep_unless_begun(new: bool, said: Sequence[str]) -> None:
    """An environment that was whole is still good when pip has not begun to change it."""
    if not new and not any(line.startswith("Installing collected packages") for line in said):
        UNFINISHED.unlink(missing_ok=True)


def is_usable() -> bool:
    """True for a complete environment whose Python runs."""
    if UNFINISHED.exists() or not (VENV / "bin" / "python").exists():
        return False
    command = [str(VENV / "bin" / "python"), "-c", "import pip"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def make_environment(lock: int) -> None:
    """Make .venv with pip in it, in place of what is left of one. Raises CannotSetUp, OSError."""
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise CannotSetUp(NO_VENV)
    say("Setting up .venv: making the environment ...")
    if VENV.exists() and not (VENV / "pyvenv.cfg").exists() and any(VENV.iterdir()) and not UNFINISHED.exists():
        raise CannotSetUp(f"{VENV} is there and is no virtual environment; move it away")
    if VENV.exists():
        shutil.rmtree(VENV)
    VENV.mkdir()
    UNFINISHED.touch()
    run([sys.executable, "-m", "venv", str(VENV)], lock, [])


def run(command: Sequence[str], lock: int, said: list[str]) -> None:
    """Run a step; `said` gets its output, a terminal what it is at. Raises CannotSetUp with what is wrong.

    It holds the lock too: when this process is killed, the next set-up waits for the end of the step.
    """
    TEMPORARY.mkdir(exist_ok=True)
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=CLONE,
        env={**os.environ, "PIP_USER": "0", "PYTHONUNBUFFERED": "1", "TMPDIR": str(TEMPORARY)},
        pass_fds=[lock],
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            said.append(line)
            show_step(line)
        code = process.wait()
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    finally:
        show_step("")
        shutil.rmtree(TEMPORARY, ignore_errors=True)
    if code:
        raise CannotSetUp(reason("".join(said), full_file_systems()))


def show_step(line: str) -> None:
    """One line of a terminal that changes: what pip is at. Empty: take it away."""
    found = STEP.match(line)
    if sys.stdout.isatty() and (found or not line):
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[K{line.strip()[:width]}", end="", flush=True)


def reason(said: str, full: Sequence[str]) -> str:
    """Say what is wrong and what to do, from the output of a failed step and the full file systems."""
    words = {
        "full": f" ({', '.join(full)})" if full else "",
        "clone": str(CLONE),
        "version": ".".join(map(str, sys.version_info[:2])),
    }
    for pattern, text in REASONS:
        if found := re.search(pattern, said):
            return text.format(**words, **found.groupdict())
    if full:  # venv, for one, does not tell why it failed
        return NO_SPACE.format(**words)
    lines = [line.rstrip() for line in said.splitlines() if line.strip()]
    return "\n".join(["a step failed; the end of its output:", *(f"  {line}" for line in lines[-12:])])


def full_file_systems() -> list[str]:
    """The clone's directory when it has hardly any room."""
    free = os.statvfs(CLONE)
    full = free.f_bavail * free.f_frsize < SMALL_BYTES or (free.f_files and not free.f_favail)
    return [str(CLONE)] if full else []


@contextlib.contextmanager
def only_one() -> Iterator[int]:
    """Hold the lock on this clone; its descriptor. It is on the directory, so that no file is left."""
    lock = os.open(CLONE, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("Another set-up works on .venv of this clone: waiting for its end ...")
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield lock
    finally:
        os.close(lock)


def say(line: str) -> None:
    """Tell the person what is waited for."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
