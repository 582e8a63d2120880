"""Messages that the resources actor receives: pods to assign CPUs, memory, devices and claims to, and pods' ends.

All are from pod_workers, except CheckDevicePlugins, which is from server. The actor tells pod_workers by ResourcesState
which kinds of resources it assigns.
"""

from __future__ import annotations

from proto.resources.grants import Grant
from proto.v1 import Pod
from proto.wire.message import Done, Message, Record, Request


class AdmitPod(Request[Done], frozen=True, kw_only=True):
    """Assign resources to all containers of a pod. The assignments are on disk before the answer.

    Refused with `retry`: it may be possible later, as when a device plugin has not registered again; the message says
    what is missing. Refused without `retry`: the pod is rejected, with the kubelet's reason and message. A repeat
    changes nothing.
    """

    pod: Pod
    running: bool = False
    """It runs already, and may have begun before the policies: assign CPUs and memory that it lacks, no devices."""
    trial: bool = False
    """The pod does not fit: decide and count in metrics, but assign nothing. No device plugin is asked to allocate."""


class PrepareClaims(Request[Done], frozen=True, kw_only=True):
    """Have DRA drivers prepare the pod's resource claims, before its sandbox is created.

    Refused with `retry`, with the kubelet's message: a claim is not there, or a driver is not, or it fails. A repeat
    prepares nothing twice while this actor lives.
    """

    pod: Pod


class UnprepareClaims(Request[Done], frozen=True, kw_only=True):
    """Have DRA drivers unprepare the claims that only this pod uses. None of its processes runs any more.

    Refused with `retry`, as PrepareClaims. A repeat is harmless.
    """

    pod_uid: str


class ContainerGrant(Message, frozen=True, kw_only=True):
    """Answers GetGrant."""

    grant: Grant


class GetGrant(Request[ContainerGrant], frozen=True, kw_only=True):
    """Ask what a container gets when it is created. An empty grant: nothing is assigned to it. A repeat is harmless."""

    pod: Pod
    container: str


class ExclusiveCpus(Message, frozen=True, kw_only=True):
    """Answers HasExclusiveCpus."""

    exclusive: bool


class HasExclusiveCpus(Request[ExclusiveCpus], frozen=True, kw_only=True):
    """Ask if a container of the pod has exclusive CPUs: its pod then has no CFS quota. A repeat is harmless."""

    pod: Pod


class CheckDevicePlugins(Request[Done], frozen=True, kw_only=True):
    """Ask if device plugins can register, for the server's /healthz. Refused, with the kubelet's message, while they
    cannot. A repeat is harmless."""


class ReleasePod(Message, frozen=True, kw_only=True):
    """Free the resources of a pod of which no process runs any more. A repeat changes nothing."""

    pod_uid: str


class SetPods(Message, frozen=True, kw_only=True):
    """Pods that run or start here, with their allocated resources. Idempotent."""

    pods: tuple[Pod, ...]
    full: bool = False
    """These are all pods of the node that may have processes; free the resources of all others.

    The sender lists pods that it has asked AdmitPod for, too. Admissions of others are refused when they end.
    """


class ListedPod(Record, frozen=True, kw_only=True):
    """A pod of the sources, as the pod resources API names it."""

    uid: str
    namespace: str
    name: str
    containers: tuple[str, ...]
    sidecars: tuple[str, ...] = ()
    """Restartable init containers."""
    active: bool = False
    """Its processes may run, or its admission waits for its resources."""


class SetListedPods(Message, frozen=True, kw_only=True):
    """Pods that the pod resources API names. Idempotent; the last message counts."""

    pods: tuple[ListedPod, ...] = ()
    gone: tuple[str, ...] = ()
    """UIDs of pods that no source has any more."""
    full: bool = False
    """These are all pods: forget every other one. Until the first such message the API refuses to name pods."""
