"""What a helper is asked to do with CSI drivers and their volumes. See actors/volume/steps/codec.py.

Secrets never show in a repr.
"""

from __future__ import annotations

from typing import TypeAlias

from actors.volume.steps.record import Record, Tagged


class Register(Tagged, frozen=True):
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


class Describe(Tagged, frozen=True):
    """Have a driver that is registered say anew what it is to this node (NodeGetInfo)."""

    driver: DriverInfo

    @property
    def name(self) -> str:
        """Of no volume."""
        return self.driver.name


class Volume(Record, frozen=True):
    """Where a volume of a pod is, and whose."""

    uid: str
    spec_name: str
    """Of the PersistentVolume, or of the pod's volume for one that lives with the pod."""
    driver: str
    handle: str
    block: bool = False
    """A raw device (volumeMode Block)."""


class Secrets(Record, frozen=True):
    """Of each call, as the Secret has them."""

    stage: dict[str, str] = {}
    publish: dict[str, str] = {}
    expand: dict[str, str] = {}
    attributes: dict[str, str] = {}
    """What is secret among the attributes of the publication: the pod's tokens."""

    def __repr__(self) -> str:
        return f"Secrets({len(self.stage)}, {len(self.publish)}, {len(self.expand)} keys)"


class FsGroup(Record, frozen=True):
    """The group a volume is to belong to."""

    group: int
    change_policy: str = "Always"
    """The pod's fsGroupChangePolicy."""
    driver_policy: str = "ReadWriteOnceWithFSType"
    """The CSIDriver's fsGroupPolicy."""


class CsiMount(Tagged, frozen=True):
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


class CsiFind(Tagged, frozen=True):
    """Say which CSI volumes a pod has, and let go what containers mount of parts of its volumes."""

    uid: str

    @property
    def name(self) -> str:
        """Of no one volume."""
        return ""


class CsiUnmount(Tagged, frozen=True):
    """Unpublish a pod's volume; unstage it when no other pod of the node has it; remove what is on disk about it."""

    volume: Volume
    socket: str
    """Empty when the driver is not registered."""

    @property
    def name(self) -> str:
        """Of the volume."""
        return self.volume.spec_name


class CsiMeasure(Tagged, frozen=True):
    """Ask the driver for a volume's figures (NodeGetVolumeStats)."""

    volume: Volume
    name: str
    socket: str


CsiStep: TypeAlias = Register | Describe | CsiMount | CsiFind | CsiUnmount | CsiMeasure
