"""Directories that take long to make, kept in /var/cache/nodevisor/fresh by a hash of their recipe.

A directory older than MAX_AGE_DAYS is made again, because Debian and the package index change. A directory that was
not used for that long is deleted. Several test processes may ask at once: the first makes it, the others wait.
"""

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path("/var/cache/nodevisor/fresh")
MAX_AGE_DAYS = 7.0
_DAY_S = 86400.0


def cached(kind: str, recipe: str, make: Callable[[Path], None], root: Path = ROOT) -> Path:
    """The directory KIND-HASH that `make` fills. A recipe's text names everything that its content depends on.

    What `make` raises is passed on, and then nothing is kept.
    """
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:16]
    directory = root / f"{kind}-{digest}"
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / f".{kind}.lock"):
        if not directory.exists() or _age_days(directory / "made") > MAX_AGE_DAYS:
            partial = root / f".{kind}-{digest}.partial"
            _delete(partial)
            _delete(directory)
            content = partial / "content"
            content.mkdir(parents=True)
            content.chmod(0o755)
            make(content)
            (partial / "made").touch()
            partial.rename(directory)
        (directory / "used").touch()
        for other in root.glob(f"{kind}-*"):
            if _age_days(other / "used") > MAX_AGE_DAYS:
                _delete(other)
    return directory / "content"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _age_days(path: Path) -> float:
    """Since its last change; without end where there is no such file."""
    try:
        return (time.time() - path.stat().st_mtime) / _DAY_S
    except OSError:
        return float("inf")


def _delete(directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)
