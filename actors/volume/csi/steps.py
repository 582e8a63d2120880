"""What a helper is asked to do with CSI drivers and their volumes. See actors/volume/steps.py.

Secrets never show in a repr.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value inside steps."""


class Register(Record, frozen=True, tag=True, tag_field="step"):
    """Meet the plugin behind a socket and tell it what came of it."""

    socket: str
    highest: dict[str, str] = {}
    """The version of each driver that is registered behind another socket."""

    @property
    def name(self) -> str:
        """Of no volume."""
        return self.socket


class DriverInfo(Record, frozen=True):
    """A CSI driver as it registered."""

    name: str
    endpoint: str
    """Path of the socket its service is at."""
    version: str
    node_id: str
    max_volumes: int = 0
    """0: it does not say."""
    topology: dict[str, str] = {}


class Volume(Record, frozen=True):
    """Where a volume of a pod is, and whose."""

    uid: str
    spec_name: str
    """Of the PersistentVolume, or of the pod's volume for one that lives with the pod."""
    driver: str
    handle: str


class Secrets(Record, frozen=True):
    """Of each call, as the Secret has them."""

    stage: dict[str, str] = {}
    publish: dict[str, str] = {}
    expand: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Secrets({len(self.stage)}, {len(self.publish)}, {len(self.expand)} keys)"


class FsGroup(Record, frozen=True):
    """The group a volume is to belong to."""

    group: int
    change_policy: str = "Always"
    """The pod's fsGroupChangePolicy."""
    driver_policy: str = "ReadWriteOnceWithFSType"
    """The CSIDriver's fsGroupPolicy."""


class CsiMount(Record, frozen=True, tag=True, tag_field="step"):
    """Stage the volume if the driver stages, publish it to the pod, give it to its group, and mark it as ready."""

    volume: Volume
    name: str
    """In the pod."""
    socket: str
    node: str
    ephemeral: bool = False
    fs_type: str = ""
    access_modes: tuple[str, ...] = ()
    mount_options: tuple[str, ...] = ()
    read_only: bool = False
    context: dict[str, str] = {}
    """The volume's attributes."""
    pod_info: dict[str, str] = {}
    """What CSIDriver.podInfoOnMount adds to them for the publishing."""
    publish_context: dict[str, str] = {}
    """What the attachment gave."""
    fs_group: FsGroup | None = None
    expand_bytes: int = 0
    """Have the driver grow the volume's file system to this; 0 for no need."""
    secrets: Secrets = Secrets()
    republish: bool = False
    """The driver wants to be called again and again while the pod lives (CSIDriver.requiresRepublish)."""


class CsiFind(Record, frozen=True, tag=True, tag_field="step"):
    """Say which CSI volumes a pod has, and let go what containers mount of parts of its volumes."""

    uid: str

    @property
    def name(self) -> str:
        """Of no one volume."""
        return ""


class CsiUnmount(Record, frozen=True, tag=True, tag_field="step"):
    """Unpublish a pod's volume; unstage it when no other pod of the node has it; remove what is on disk about it."""

    volume: Volume
    socket: str
    """Empty when the driver is not registered."""

    @property
    def name(self) -> str:
        """Of the volume."""
        return self.volume.spec_name


class CsiMeasure(Record, frozen=True, tag=True, tag_field="step"):
    """Ask the driver for a volume's figures (NodeGetVolumeStats)."""

    volume: Volume
    name: str
    socket: str


CsiStep: TypeAlias = Register | CsiMount | CsiFind | CsiUnmount | CsiMeasure
