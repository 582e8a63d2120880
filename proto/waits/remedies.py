"""The remedy for a wait, from the reason and the error of its record. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from proto.waits.chain import Link

PULLING = ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError", "SignatureValidationFailed")
IMPORT = "supervisor images import FILE"


class PullProblem(NamedTuple):
    """Why a registry does not give an image, and the remedy."""

    what: str
    do: str


_REGISTRY = (
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
    (r"toomanyrequests|too many requests|\b429\b", "its registry limits pulls", "wait, or log in to it"),
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
    (r"non-root", "give the container another runAsUser, or an image with another user"),
    (r"executable file not found|unable to start container process", "correct the container's command, or its image"),
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
    "Evicted": "free memory or disk on this machine",
}
"""Reason of a part that is held back, or of a rejection, and its remedy."""
_SHORTAGE = re.compile(r"\(res: ([^,]+), q: (\d+)\)")
"""A resource that preemption cannot free, and how much of it: of cpu in thousandths (the kubelet's message)."""


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
    for reason in (first, second.partition(": ")[0]):
        if reason in _REASONS:
            return _REASONS[reason]
    if link.kind == "admission":
        return _of_shortage(link.what)
    if second in PULLING or link.waiter.startswith("image/"):
        problem = pull_problem(link.error)
        return problem.do if problem is not None else ""
    return next((do for pattern, do in _ERRORS if re.search(pattern, link.error)), "")


def _of_shortage(what: str) -> str:
    """The remedy for a pod that asks for more than the node has free."""
    lacks = [_amount(name, int(amount)) for name, amount in _SHORTAGE.findall(what)]
    if lacks:
        return f"ask for less: this node lacks {' and '.join(lacks)}"
    return "ask for less, or free resources of this node" if what.startswith("OutOf") else ""


def _amount(resource: str, amount: int) -> str:
    if resource == "cpu":
        return f"{amount / 1000:g} of cpu"
    return f"{amount / (1 << 20):.0f}Mi of memory" if resource == "memory" else f"{amount} of {resource}"


def _of_hook(link: Link) -> str:
    """The kubelet sets no deadline for a postStart hook. The grace period ends a preStop hook."""
    if link.what.startswith("postStart"):
        return "nothing else ends it: end its command in the container, or correct the hook"
    if link.what.startswith("preStop"):
        return "the grace period ends it"
    return ""
