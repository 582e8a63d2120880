"""Steps for CSI drivers and their volumes. Secrets never show in a repr."""

from __future__ import annotations

from typing import Literal

from actors.volume.steps.record import Record, Tagged

Growth = Literal["", "done", "refused", "uncertain", "failed", "infeasible"]
"""Result of growing a driver's volume; empty: no growth was wanted, or the driver has nothing to do for it.

`refused`: not while the volume is in use, and the pod may use it all the same. `uncertain`: the driver may still be at
it. `failed` is retried, `infeasible` never.
"""


class Register(Tagged, frozen=True):
    """Ask the plugin behind a socket for its identity, and tell it the result of its registration."""

    socket: str
    highest: dict[str, str] = {}
    """Version of each driver that is registered behind another socket."""

    @property
    def name(self) -> str:
        """Socket path; a registration concerns no volume."""
        return self.socket


class DriverInfo(Record, frozen=True):
    """A registered CSI driver."""

    name: str
    endpoint: str
    """Path of the socket of its service."""
    version: str
    node_id: str
    max_volumes: int = 0
    """0: the driver states no limit."""
    topology: dict[str, str] = {}


class Describe(Tagged, frozen=True):
    """Ask a registered driver again about this node (NodeGetInfo)."""

    driver: DriverInfo

    @property
    def name(self) -> str:
        """Driver name; the call concerns no volume."""
        return self.driver.name


class Volume(Record, frozen=True):
    """A CSI volume of a pod."""

    uid: str
    spec_name: str
    """Name of the PersistentVolume, or of the pod's volume for an ephemeral one."""
    driver: str
    handle: str
    block: bool = False
    """A raw device (volumeMode Block)."""


class Secrets(Record, frozen=True):
    """Secrets of each call, as the Secret objects hold them."""

    stage: dict[str, str] = {}
    publish: dict[str, str] = {}
    expand: dict[str, str] = {}
    attributes: dict[str, str] = {}
    """Secret attributes of the publication: the pod's tokens."""
    stage_error: str = ""
    """Reason why the Secret of the staging is not known; it fails a volume that has to be staged."""
    expand_error: str = ""
    """Reason why the Secret of the growth is not known; it fails the growth."""

    def __repr__(self) -> str:
        return f"Secrets({len(self.stage)}, {len(self.publish)}, {len(self.expand)} keys)"


class FsGroup(Record, frozen=True):
    """The group that owns a volume's files."""

    group: int
    change_policy: str = "Always"
    """The pod's fsGroupChangePolicy."""
    driver_policy: str = "ReadWriteOnceWithFSType"
    """The CSIDriver's fsGroupPolicy."""


class CsiMount(Tagged, frozen=True):
    """Stage the volume if the driver stages, publish it to the pod, give it to its group, and mark it as ready."""

    volume: Volume
    name: str
    """Volume name in the pod."""
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
    """Attributes that CSIDriver.podInfoOnMount adds for the publication."""
    publish_context: dict[str, str] = {}
    """Attributes from the VolumeAttachment."""
    fs_group: FsGroup | None = None
    expand_bytes: int = 0
    """Size to which the driver grows the volume's file system; 0: no growth."""
    secrets: Secrets = Secrets()
    selinux_label: str = ""
    """Label of all files of the volume (`context=`); empty: the mount gives none."""
    republish: bool = False
    """The driver wants repeated calls while the pod lives (CSIDriver.requiresRepublish)."""


class Grown(Record, frozen=True):
    """Result of growing a volume that the driver has published."""

    result: Growth = ""
    refusal: str = ""
    """Why the driver refused."""


class CsiFind(Tagged, frozen=True):
    """List a pod's CSI volumes, and unbind its sub paths, which would keep the volumes busy."""

    uid: str


class CsiUnmount(Tagged, frozen=True):
    """Unpublish a pod's volume, and remove its files in the pod's directory. It stays staged."""

    volume: Volume
    socket: str
    """Empty when the driver is not registered."""

    @property
    def name(self) -> str:
        """Name of the volume, see Volume.spec_name."""
        return self.volume.spec_name


class Staged(Record, frozen=True):
    """A volume that its driver has staged on this node, or may have."""

    driver: str
    handle: str
    device: str = ""
    """Directory name of a raw device; empty for a file system."""


class CsiStaged(Tagged, frozen=True):
    """List the staged volumes of this node, and those of them that no pod has."""


class CsiUnstage(Tagged, frozen=True):
    """Unstage a volume and remove its staging directory, unless a pod has the volume or may have it."""

    staged: Staged
    socket: str

    @property
    def name(self) -> str:
        """The volume's handle; its name is not known here."""
        return self.staged.handle


class CsiMeasure(Tagged, frozen=True):
    """Ask the driver for a volume's figures (NodeGetVolumeStats)."""

    volume: Volume
    name: str
    socket: str
