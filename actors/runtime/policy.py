"""Pure decisions: the isolation level of this machine, and states, reasons and signals as CRI names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from actors.runtime.helper.plan import PLAIN, ROOT, USER
from proto.cri import api_pb2 as pb
from proto.node.runtime import OCI_PROGRAMS

START_ERROR_CODE = 128
"""Exit code of a container that failed to start, the same as containerd's."""

_UID_DIGITS, _MOST_UID = 19, 2**63 - 1
"""CRI's UID is an int64."""
_NAME_CHARACTERS = 256
"""Kept of an image's user: one image must not fill the list of all. Linux has names of 32."""
_LAST_SIGNAL = 64


@dataclass(frozen=True, slots=True)
class Isolation:
    """The way in which containers are isolated from the machine."""

    level: int
    """1: an OCI runtime. 2: our helper as root. 3: our helper without privileges. 0: no usable level."""
    programs: tuple[str, ...] = ()
    """Paths of the OCI runtimes, at level 1, in the order of OCI_PROGRAMS."""
    offered: tuple[str, ...] = ()
    """Names of the OCI runtimes that new pods may have."""
    mode: str = ""
    """The helper's mode (actors/runtime/helper), at levels 2 and 3."""
    why: str = ""
    """Reason for not having a higher level, and what containers lack without it; for people."""


@dataclass(frozen=True, slots=True)
class MachineFeatures:
    """Features of a machine that decide its isolation level."""

    found: Mapping[str, str]
    """Path of each OCI runtime found, by program name."""
    root: bool
    split_cgroups: bool
    """Controllers are divided between cgroup v1 and v2, which crun refuses to work with."""
    mount: bool = False
    """This process may mount in a mount namespace of its own."""
    user: bool = False
    """This process may create a user namespace and mount in it."""


def choose_isolation(offers: MachineFeatures, asked: int = 0, program: str = "") -> Isolation:
    """The best level that the machine offers, or the level `asked` for; level 0 when it does not offer that one.

    `program`: the OCI runtime that was asked for, which takes level 1. The others stay for the pods that have them.
    """
    usable = [name for name in OCI_PROGRAMS if name in offers.found and not (offers.split_cgroups and name == "crun")]
    if program and not (program in usable and offers.root and asked in (0, 1)):
        return Isolation(0, why=_why_not(program, offers, asked))
    if offers.root and usable and asked in (0, 1):
        offered = (program,) if program else tuple(usable)
        return Isolation(1, programs=tuple(offers.found[name] for name in usable), offered=offered)
    lacking = "no crun or runc"
    if offers.split_cgroups and "crun" in offers.found:
        lacking = "no runc, and crun does not work with cgroup v1 and v2 mixed"
    if offers.root and offers.mount and asked in (0, 2):
        return Isolation(2, mode=ROOT, why="as asked for" if asked else lacking)
    if asked in (0, 3):
        return _unprivileged(offers, asked)
    missing = "not root" if not offers.root else lacking if asked == 1 else "root may not mount here"
    return Isolation(0, why=f"isolation level {asked} was asked for, which this machine does not offer: {missing}")


def _why_not(program: str, offers: MachineFeatures, asked: int) -> str:
    """Why the OCI runtime that was asked for cannot be used."""
    if program not in OCI_PROGRAMS:
        why = f"there are {' and '.join(OCI_PROGRAMS)}"
    elif program not in offers.found:
        why = "it is not installed"
    elif not offers.root:
        why = "not root"
    else:
        split = "it does not work with cgroup v1 and v2 mixed"
        why = f"isolation level {asked} was asked for, too, which has none" if asked > 1 else split
    return f"the OCI runtime {program} was asked for, which cannot be used here: {why}"


class OciChoice(NamedTuple):
    """The OCI runtime of a new pod."""

    name: str
    problem: str = ""
    """Why it cannot give the pod users of its own, which the pod asks for."""


def choose_oci(offered: Mapping[str, str], handler: str, *, users: bool) -> OciChoice:
    """The OCI runtime of a new pod: the handler's, else the first that can do it.

    `offered`: why each of them cannot give pods users of their own, or an empty text; by name, the preferred first.
    `handler`: CRI's runtime_handler, one of these names or empty. `users`: the pod asks for users of its own.
    """
    names = [handler] if handler else list(offered)
    able = [name for name in names if not (users and offered[name])]
    if able:
        return OciChoice(able[0])
    return OciChoice(names[0], "; ".join(dict.fromkeys(offered[name] for name in names)))


def _unprivileged(offers: MachineFeatures, asked: int) -> Isolation:
    reason = "as asked for" if asked else "root may not mount here" if offers.root else "not root"
    lost = "no limits of CPU and memory, the machine's network"
    if offers.user:
        return Isolation(3, mode=USER, why=f"{reason}: containers are in user namespaces with {lost}, one user each")
    return Isolation(
        3,
        mode=PLAIN,
        why=f"{reason}, and there are no user namespaces: containers are plain processes that see the whole machine as "
        f"this user does, with {lost}; volumes are at their paths below the working directory only",
    )


def reason_of(code: int, oom_kills: int) -> str:
    """CRI's reason of an ended container, in the kubelet's words."""
    if oom_kills and code != 0:
        return "OOMKilled"
    return "Completed" if code == 0 else "Error"


def matches_labels(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    """Return True when the labels contain every key and value of the selector."""
    return all(labels.get(key) == value for key, value in selector.items())


def matches_id(id_: str, asked: str) -> bool:
    """CRI filters may give the first characters of an ID; an empty filter matches any."""
    return id_.startswith(asked)


def signal_number(wanted: int, image: str, by_name: Mapping[str, int]) -> int:
    """The signal that stops a container: CRI's (a number of its enum), else the image's STOPSIGNAL, else SIGTERM."""
    if wanted:
        return _by_name(pb.Signal.Name(pb.Signal.ValueType(wanted)).removeprefix("SIGNAL_"), by_name)
    return _by_name(image, by_name) if image else by_name["SIGTERM"]


def signal_of(number: int, by_name: Mapping[str, int]) -> pb.Signal.ValueType:
    """CRI's enum value of a signal number; SIGNAL_RUNTIME_DEFAULT for a signal that CRI does not name.

    CRI counts real-time signals from either end: SIGRTMIN to SIGRTMIN+15, then SIGRTMAX-14 to SIGRTMAX.
    """
    above, below = number - by_name["SIGRTMIN"], by_name["SIGRTMAX"] - number
    counted = (f"SIGRTMINPLUS{above}", f"SIGRTMAXMINUS{below}") if above >= 0 else ()
    for name in (*(one for one, value in by_name.items() if value == number), *counted):
        if f"SIGNAL_{name}" in pb.Signal.keys():  # noqa: SIM118 - an enum wrapper, no mapping
            return pb.Signal.Value(f"SIGNAL_{name}")
    return pb.SIGNAL_RUNTIME_DEFAULT


def user_of(text: str) -> int | str:
    """An image's user, without group, as CRI has it: the UID, or a name. The image is hostile."""
    if _is_number(text, _UID_DIGITS) and (uid := int(text)) <= _MOST_UID:
        return uid
    return text[:_NAME_CHARACTERS]


def _by_name(text: str, by_name: Mapping[str, int]) -> int:
    if _is_number(text, 2) and 0 < int(text) <= _LAST_SIGNAL:
        return int(text)
    name = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    for anchor, sign in (("SIGRTMINPLUS", 1), ("SIGRTMIN+", 1), ("SIGRTMAXMINUS", -1), ("SIGRTMAX-", -1)):
        distance = name.removeprefix(anchor)
        if name.startswith(anchor) and _is_number(distance, 2):
            found = by_name["SIGRTMIN" if sign > 0 else "SIGRTMAX"] + sign * int(distance)
            return found if 0 < found <= _LAST_SIGNAL else by_name["SIGTERM"]
    return by_name.get(name, by_name["SIGTERM"])


def _is_number(text: str, digits: int) -> bool:
    # str.isdigit takes digits that int() refuses, such as a superscript two; int() refuses numbers of 4,301 digits.
    return len(text) <= digits and text.isascii() and text.isdigit()
