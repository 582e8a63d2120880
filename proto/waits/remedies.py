"""The remedy for a wait, from the reason and the error of its record. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from proto.waits.chain import Link, seconds

PULLING = ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError", "SignatureValidationFailed")
IMPORT = "supervisor images import FILE"


class PullProblem(NamedTuple):
    """Why a registry does not give an image, and the remedy."""

    what: str
    do: str


_REGISTRY = (
    (r"toomanyrequests|too many requests|status 429\b", "its registry limits pulls", "wait, or log in to it"),
    (r"status 5\d\d\b", "its registry has an error of its own", f"see that registry, or bring the image in: {IMPORT}"),
    (
        r"x509|certificate",
        "its registry's certificate is not trusted here",
        "have this machine trust its authority, or name another registry",
    ),
    (
        r"cannot reach|name resolution|no such host|connection refused|unreachable|timeout|timed out|deadline exceeded|"
        r"no route to host|code = Unavailable",
        "its registry cannot be reached",
        f"connect to the network, or bring the image in: {IMPORT}",
    ),
    (
        r"unauthorized|denied|forbidden|authorization|\b401\b|\b403\b",
        "its registry refuses it",
        "correct the image's name, or give the pod imagePullSecrets",
    ),
    (r"\b429\b", "its registry limits pulls", "wait, or log in to it"),
    (
        r"no image for|no match for platform|no matching manifest",
        "it is not made for this machine's processor",
        "name an image for it",
    ),
    (
        r"not found|manifest unknown|name unknown|\b404\b",
        "its registry does not have it",
        "correct the image's name and tag",
    ),
)
"""Pattern in the message of a failed pull, cause, remedy. The first match counts."""
_NAMES = re.compile(
    r'(?<=image )"[^"]*"'  # the image, as the kubelet quotes it
    r"|(?<![\w.:@%/-])(?:[\w.:@%-]*(?:/[\w.:@%?=&~+-]*)+|[\w-]+(?:\.[\w-]+)+(?::\d+)?)"  # references, URLs, hosts
)
"""Names in such a message. They are chosen by authors of pods, and may hold any of the patterns' words."""
_ERRORS = (
    (r"device or resource busy", "end the processes that use it"),
    (
        r'\b(configmap|secret|persistentvolumeclaims|runtimeclass\S*) "[^"]*" not found',
        "create it, or correct its name",
    ),
    (r"couldn't find key|references non-existent", "add the key, or correct its name"),
    (r"hostPath type check failed", "make it on this machine, or correct the volume's path and type"),
    (r"list of registered CSI drivers", "install this CSI driver on this machine, or correct its name"),
    (r"non-root|runAsNonRoot", "give the container another runAsUser, or an image with another user"),
    (r"set sysctl|write /proc/sys/", "correct the pod's sysctls"),
    (r"OOM-killed", "raise limits.memory"),
    (r"error mounting", "correct the container's volumeMounts: what is mounted does not fit its mountPath"),
    (
        r"conflicting SELinux labels of volume",
        "give the pods that use the volume the same seLinuxOptions, or each of them seLinuxChangePolicy: Recursive",
    ),
    (
        r"already mounted to a different pod with a different SELinux label",
        "end the volume's other pods on this node, or give each of them seLinuxChangePolicy: Recursive",
    ),
    (r"multiple SELinux labels found", "give the containers that mount the volume the same seLinuxOptions"),
    (r"construct SELinux label", "correct the user and the level of the pod's seLinuxOptions"),
    (r"seccomp", "put the profile there, or correct the pod's seccompProfile"),
    (
        r"failed to prepare subPath",
        "correct the subPath: something is in its way; the agent's log tells what",
    ),
    (r"^missing value for ", "define this variable in the container's env, or correct the subPathExpr"),
    (r"unknown filesystem type|helper program", "install this file system's tools and kernel module on this machine"),
    (r"executable file not found|unable to start container process", "correct the container's command, or its image"),
    (r"no such file or directory", "make it on this machine, or correct the path in the manifest"),
)
"""Pattern in a record's error, remedy. The first match counts."""
_REASONS = {
    "ErrImageNeverPull": f"bring the image in: {IMPORT}",
    "InvalidImageName": "correct the image's name",
    "NodeAffinity": "correct its nodeSelector and affinity, or this node's labels",
    "NodePorts": "free the port, or give the pod another hostPort",
    "NodeName": "correct its nodeName",
    "SysctlForbidden": "remove the sysctl from the pod, or allow it with --allowed-unsafe-sysctls",
    "DeadlineExceeded": "raise its activeDeadlineSeconds",
    "AppArmor": "remove its appArmorProfile, or load that profile on this machine",
    "NodeShutdown": "it starts when this machine is up again",
}
"""Reason of a part that is held back, or of a rejection, and its remedy."""
_EVICTIONS = (
    (r"EmptyDir volume .* exceeds", "have it write less, or raise the volume's sizeLimit"),
    (r"ephemeral (local )?storage", "have it write less, or raise its limits.ephemeral-storage"),
    (r"low on resource: memory", "free memory on this machine, or raise the pod's requests.memory"),
)
"""Pattern in the message of an eviction, remedy. The first match counts."""
_ENDS_SLOWLY_S = 5.0
"""After SIGTERM, a container that still runs seems to ignore it."""
_TIMEOUT = re.compile(r"timed out|timeout|deadline exceeded", re.IGNORECASE)
THROTTLED = re.compile(r"\bthrottled in \d+ of ")
"""In the words of `proto.node.stats.Throttling`."""
_SHORTAGE = re.compile(r"\(res: ([^,]+), q: (\d+)\)")
"""A resource that preemption cannot free, and how much of it: of cpu in thousandths (the kubelet's message)."""


def is_timeout(message: str) -> bool:
    """True for the message of a probe that has timed out."""
    return _TIMEOUT.search(message) is not None


def pull_problem(message: str) -> PullProblem | None:
    """The problem that the message of a failed pull tells; None for an unknown one."""
    text = _NAMES.sub("", message)
    for pattern, what, do in _REGISTRY:
        if re.search(pattern, text, re.IGNORECASE):
            return PullProblem(what, do)
    return None


def remedy(link: Link) -> str:
    """The remedy that the record tells; empty without one."""
    if link.kind == "hook":
        return _of_hook(link)
    first, _, second = link.what.partition(": ")
    if first == "Evicted":
        return of_eviction(second)
    for reason in (first, second.partition(": ")[0]):
        if reason in _REASONS:
            return _REASONS[reason]
    if link.kind == "admission":
        return _of_shortage(link.what)
    if second in PULLING or link.waiter.startswith("image/"):
        problem = pull_problem(link.error)
        return problem.do if problem is not None else ""
    return of_error(link.error)


def of_error(error: str) -> str:
    """The remedy that an error of a part of a pod tells; empty without one."""
    return next((do for pattern, do in _ERRORS if re.search(pattern, error)), "")


def of_eviction(message: str) -> str:
    """The remedy for an evicted pod, by its message."""
    return next(
        (do for pattern, do in _EVICTIONS if re.search(pattern, message)), "free memory or disk on this machine"
    )


def _of_shortage(what: str) -> str:
    """The remedy for a pod that asks for more than the node has free."""
    lacks = [_amount(name, int(amount)) for name, amount in _SHORTAGE.findall(what)]
    if lacks:
        return f"ask for less: this node lacks {' and '.join(lacks)}"
    return "ask for less, or free resources of this node" if what.startswith("OutOf") else ""


def _amount(resource: str, amount: int) -> str:
    if resource == "cpu":
        return f"{amount / 1000:g} of cpu"
    is_bytes = resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")
    return f"{amount / (1 << 20):.0f}Mi of {resource}" if is_bytes else f"{amount} of {resource}"


def _of_hook(link: Link) -> str:
    """The kubelet sets no deadline for a postStart hook. The grace period ends a preStop hook."""
    if link.what.startswith("postStart"):
        return "nothing else ends it: end its command in the container, or correct the hook"
    if link.what.startswith("preStop"):
        return "the grace period ends it" + (f" in {seconds(link.deadline_in_s)}" if link.deadline_in_s > 0 else "")
    slow = link.what.startswith("container ") and link.age_s >= _ENDS_SLOWLY_S
    return "SIGTERM has not ended it: have its command handle that signal" if slow else ""
