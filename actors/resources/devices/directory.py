"""The directory ROOT_DIR/device-plugins: sockets of plugins, the kubelet's socket and the checkpoint. Blocks."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress

from actors._host import selinux
from actors._host.files.numbered_file import NumberedFile
from actors._host.files.untrusted_files import read_regular
from actors.resources.devices import checkpoint
from actors.resources.devices.holdings import Holding

log = logging.getLogger(__name__)

SOCKET = "kubelet.sock"


class Directory:
    """Reads and writes the directory. Every method may be called from any thread."""

    def __init__(self, path: str, boot_id: str) -> None:
        self.path, self._boot_id = path, boot_id
        self._checkpoint = NumberedFile(f"{path}/{checkpoint.FILE}", checkpoint.MOST_BYTES)

    @property
    def socket(self) -> str:
        """Path of the socket that plugins register at."""
        return f"{self.path}/{SOCKET}"

    def read_checkpoint(self) -> tuple[list[Holding], tuple[str, ...]]:
        """(holdings, registered resources); nothing without the file. A damaged file is renamed to *.damaged.

        As in the kubelet, the agent then goes on without it. Raises OSError.
        """
        path = self._checkpoint.path
        try:
            return checkpoint.decode(read_regular(path, checkpoint.MOST_BYTES), self._boot_id)
        except FileNotFoundError:
            return [], ()
        except checkpoint.DamagedError as error:
            log.error(
                "%s is damaged (%s) and now %s.damaged; devices of running pods may be given to others",
                path, error, path,
            )  # fmt: skip
            os.replace(path, f"{path}.damaged")
            return [], ()

    def write_checkpoint(
        self, number: int, holdings: Iterable[Holding], registered: Mapping[str, Iterable[str]]
    ) -> None:
        """Replace the checkpoint. A lower `number` than that of a write before changes nothing. Raises OSError."""
        held = tuple(holdings)
        # Until the plugins have allocated again what is of an earlier boot, a restart must not take it for new.
        boot_id = "" if any(one.earlier_boot for one in held) else self._boot_id
        content = checkpoint.encode(held, registered, boot_id)
        self._checkpoint.write(number, content)

    def prepare(self) -> None:
        """Make the directory with its SELinux label, and remove all sockets in it: plugins register again then.

        Of a link to a socket the link is removed, as in the kubelet. Raises OSError.
        """
        os.makedirs(self.path, mode=0o750, exist_ok=True)
        if selinux.read().enabled:
            selinux.share_with_plugins(self.path)
        with os.scandir(self.path) as entries:
            for entry in entries:
                with suppress(OSError):  # a link to nothing, or a file that has gone
                    if stat.S_ISSOCK(entry.stat().st_mode):
                        os.unlink(entry.path)


def is_socket(path: str) -> bool:
    """True for a socket, not a link."""
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
