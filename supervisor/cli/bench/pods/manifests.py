"""Files in the agent's manifest directory: made with O_EXCL, and removed only while they are the benchmark's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType

from supervisor.cli.bench.pods.plan import PREFIX
from supervisor.cli.errors import CommandError

SUFFIX = ".json"


class Manifests:
    """Files in one directory, which is opened once: a link that takes its place later changes nothing."""

    def __init__(self, path: str) -> None:
        """Open the directory. Raises CommandError with the reason when it cannot be used."""
        self.path = path
        self._made: dict[str, tuple[int, int]] = {}
        if not path:
            raise CommandError(
                "cannot start pods: the agent has no staticPodPath; start it with --pod-manifest-path DIR"
            )
        try:
            self._directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise CommandError(
                f"cannot start pods: staticPodPath {path}: {error.strerror}; it must be a directory"
            ) from error
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=self._directory, effective_ids=True):
            os.close(self._directory)
            raise CommandError(f"cannot start pods: staticPodPath {path} is not writable for you; run it as root")

    def __enter__(self) -> Manifests:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._directory)

    def of_another(self) -> list[str]:
        """Paths of the files of benchmarks that run now, or were killed."""
        names = os.listdir(self._directory)
        return [os.path.join(self.path, name) for name in sorted(names) if name.startswith(PREFIX)]

    def add(self, name: str, content: bytes) -> None:
        """Write NAME.json. Raises CommandError."""
        file = name + SUFFIX
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(file, flags, 0o644, dir_fd=self._directory)
            try:
                status = os.fstat(descriptor)
                self._made[file] = (status.st_dev, status.st_ino)
                if os.write(descriptor, content) != len(content):
                    raise OSError(0, "the disk is full")
            finally:
                os.close(descriptor)
        except OSError as error:
            raise CommandError(f"cannot write {os.path.join(self.path, file)}: {error.strerror}") from error

    def remove_all(self, failed: Callable[[str], object]) -> None:
        """Remove the files that `add` made; `failed` gets a line for each that stays."""
        for file, identity in list(self._made.items()):
            path = os.path.join(self.path, file)
            try:
                status = os.stat(file, dir_fd=self._directory, follow_symlinks=False)
                if (status.st_dev, status.st_ino) != identity:
                    failed(f"cannot remove {path}: another file has taken its place; look at it")
                    continue
                os.unlink(file, dir_fd=self._directory)
            except FileNotFoundError:
                pass
            except OSError as error:
                failed(f"cannot remove {path}: {error.strerror}; do `rm {path}`")
                continue
            del self._made[file]
