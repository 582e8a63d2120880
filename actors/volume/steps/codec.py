"""The protocol between the actor and its helper processes: batches of steps, and an outcome for each step.

Records are msgpack. Their types are in `volumes.py` and `csi.py`.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from actors.volume.steps import csi, volumes
from actors.volume.steps.record import Record, Tagged
from proto.pods.volume import VolumeUsage

SetUp: TypeAlias = (
    volumes.EmptyDir | volumes.Files | volumes.HostPath | volumes.Mount | volumes.Local | volumes.Block | csi.CsiMount
)
_Staging: TypeAlias = csi.CsiStaged | csi.CsiUnstage
CsiStep: TypeAlias = (
    csi.Register | csi.Describe | csi.CsiMount | csi.CsiFind | csi.CsiUnmount | csi.CsiMeasure | _Staging
)
_Use: TypeAlias = volumes.ReleaseDevice | volumes.SubPath | volumes.ReadFile | volumes.Measure | volumes.MeasureMount
Step: TypeAlias = SetUp | _Use | volumes.TearDown | CsiStep


def step_name(step: Step) -> str:
    """Name of the volume, socket or driver that the step concerns; empty for several volumes."""
    return "" if isinstance(step, volumes.TearDown | volumes.Measure | csi.CsiFind | csi.CsiStaged) else step.name


class Outcome(Record, frozen=True):
    """Result of one step. `error` is Go's text, as the kubelet shows it; empty on success."""

    error: str = ""
    stage: str = ""
    """The operation that failed, as in CannotMount; empty for the usual one."""
    warning: str = ""
    """For the pod's events, after a success."""
    grown: csi.Growth = ""
    seclabel: bool = False
    """The CSI volume's files have SELinux labels of their own, which the container runtime may set."""
    refusal: str = ""
    """Why the driver refused to grow the volume, which is mounted all the same."""
    mismatch: bool = False
    """The disk has another file system than the volume says."""
    more: bool = False
    path: str = ""
    stuck_pid: int = 0
    """PID of a child of the helper that did not return and cannot be killed."""
    stuck_since: float = 0.0
    """Unix seconds."""
    usages: tuple[VolumeUsage, ...] = ()
    walks: dict[str, volumes.LongWalk] = {}
    """By volume, for the next Measure step of the pod."""
    csi_volumes: tuple[csi.Volume, ...] = ()
    staged: tuple[csi.Staged, ...] = ()
    unused: tuple[csi.Staged, ...] = ()
    """Staged volumes that no pod has."""
    unreadable: tuple[str, ...] = ()
    """Errors of records of staged volumes."""
    driver: csi.DriverInfo | None = None
    data: bytes = b""

    def __repr__(self) -> str:
        return f"Outcome(error={self.error!r}, more={self.more}, path={self.path!r}, {len(self.data)} bytes)"


class Unexpected(Tagged, frozen=True):
    """The traceback of an unexpected exception. The helper ends after it."""

    traceback: str


class Outcomes(Tagged, frozen=True):
    """One outcome for each step, in order."""

    outcomes: tuple[Outcome, ...]


_steps = msgspec.msgpack.Decoder(tuple[Step, ...])
_answers = msgspec.msgpack.Decoder(Outcomes | Unexpected)
encode = msgspec.msgpack.encode
decode_steps = _steps.decode


def decode_answer(packet: bytes) -> Outcomes | Unexpected:
    """Decode a helper's answer. Raises msgspec.DecodeError."""
    answer: Outcomes | Unexpected = _answers.decode(packet)
    return answer
