"""Errors of the steps that helper processes carry out, with their texts in Go's form."""

from __future__ import annotations

from actors.volume.steps.csi import Growth

MOUNT_DEVICE_FAILED = "MountVolume.MountDevice failed"
SET_UP_DEVICE_FAILED = "MapVolume.SetUpDevice failed"
"""The same of a raw device."""


class VolumeError(Exception):
    """A volume cannot be set up or removed now; the message is Go's, as the kubelet shows it.

    `stage`: see CannotMount; empty for the usual operation.
    """

    def __init__(self, message: str, stage: str = "") -> None:
        super().__init__(message)
        self.stage = stage
        self.grown: Growth = ""
        """Result for a growth that was wanted."""
        self.mismatch = False
        """The disk has another file system than the volume says."""


class ChildStuck(Exception):
    """The kernel keeps a child process that does not return; nothing may touch the volume until `pid` has ended.

    `since`: Unix seconds of its start.
    """

    def __init__(self, pid: int, since: float) -> None:
        super().__init__(f"process {pid} did not return")
        self.pid, self.since = pid, since


def go_text(call: str, path: str, error: OSError) -> str:
    """An OSError as Go's *PathError prints it: `mkdir /x: permission denied`."""
    return shown(f"{call} {path}: {(error.strerror or str(error)).lower()}")


def shown(text: str) -> str:
    """The text with escapes for bytes that are not UTF-8: containers choose names, and a message has to be UTF-8."""
    return text.encode(errors="backslashreplace").decode()


def tear_down_message(name: str, error: str) -> str:
    """The kubelet's FailedUnMount message for one volume."""
    return f'UnmountVolume.TearDown failed for volume "{name}" : {error}'
