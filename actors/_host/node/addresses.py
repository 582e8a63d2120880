"""Finds the node's addresses, which are reported as hostIP and probed for host-network pods.

Source: NodeAddress in pkg/kubelet/nodestatus, validateNodeIP in pkg/kubelet, and ResolveBindAddress in
apimachinery/pkg/util/net of Kubernetes 1.36.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
import time
from collections.abc import Iterable

log = logging.getLogger(__name__)

LOOKUP_S = 2.0
"""Longest wait of one search for the node's name."""
ANSWER_S = 20.0
"""Time from the first search for which the resolver's answer is awaited. Then the search goes on without it, as after a
name that does not exist."""
LOOPBACK = "127.0.0.1"
# TEST-NET-1 and its IPv6 counterpart. No host has these addresses, so only the default route leads to them.
_NOWHERE = {4: (socket.AF_INET, "192.0.2.1"), 6: (socket.AF_INET6, "2001:db8::1")}

IP = ipaddress.IPv4Address | ipaddress.IPv6Address


class NoAddressError(Exception):
    """The node has no address that others can reach; the message says why."""


def parsed(text: str) -> IP | None:
    """The address in a text; None for other texts. ::ffff:192.0.2.1 stands for 192.0.2.1, as in Go."""
    try:
        found = ipaddress.ip_address(text.strip())
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, ipaddress.IPv6Address) else found


def configured_ips(text: str) -> tuple[str, ...]:
    """The addresses of --node-ip: one, or two with a comma. None for 0.0.0.0 and ::, which name a family."""
    given = [found for part in text.split(",") if (found := parsed(part)) is not None]
    return () if given and given[0].is_unspecified else tuple(map(str, given))


def primary_ips(addresses: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The IP addresses that pods report, of (type, address) of a Node: the first, and the first of the other family.

    Internal ones come before external ones (GetNodeHostIPs of component-helpers/node/util).
    """
    pairs = list(addresses)
    ips = [ip for kind in ("InternalIP", "ExternalIP") for one, text in pairs if one == kind and (ip := parsed(text))]
    others = [ip for ip in ips if ip.version != ips[0].version]
    return tuple(map(str, (*ips[:1], *others[:1])))


def node_ips(name: str, configured: str, *, wait: bool = True) -> tuple[str, ...]:
    """The node's addresses: those of --node-ip, or one of its name, or the source address of the default route.

    `name` may be an address. IPv4 is preferred, unless --node-ip is ::. Blocks for LOOKUP_S at most. Without `wait` a
    resolver that has not answered counts as a name without addresses. Raises NoAddressError.
    """
    given, named = configured_ips(configured), parsed(name)
    for one in given:
        if problem := _problem(one):
            raise NoAddressError(f"cannot use --node-ip {one}: {problem}; give an address of this machine")
    if given or named is not None:
        return given or (str(named),)
    wanted = parsed(configured)
    families = (6, 4) if wanted is not None and wanted.version == 6 else (4, 6)
    named_ips = _resolver.addresses(name)
    if named_ips is None and wait:
        raise NoAddressError(f"the resolver has not answered yet for {name}; check the name servers")
    usable = [one for one in named_ips or () if not _problem(one)]
    usable = usable or [found for family in families if (found := default_address(family))]
    usable.sort(key=lambda one: families.index(6 if ":" in one else 4))  # stable
    if not usable:
        raise NoAddressError(f"the name {name} has no address of this machine, and there is no default route")
    return (usable[0],)


def host_ips(name: str, configured: str) -> tuple[str, ...]:
    """Return the addresses of pods on the host's network without a Node: any --node-ip, else the result of `node_ips`.

    Blocks as that does. Pods run on a machine without a network, too: at 127.0.0.1.
    """
    if given := configured_ips(configured):
        return given
    try:
        return node_ips(name, configured, wait=False)
    except NoAddressError as error:
        log.warning("%s: hostIP is %s", error, LOOPBACK)
        return (LOOPBACK,)


def default_address(family: int) -> str:
    """The source address of the default route, for 4 or 6; empty if it is missing or others cannot reach it."""
    found = parsed(_source_address(*_NOWHERE[family]))
    return "" if found is None or _kind(found) else str(found)


def _problem(address: str) -> str:
    """Why this is no address of the node; empty when it is one."""
    found = parsed(address)
    if found is None:
        return "it is no IP address"
    if kind := _kind(found):
        return f"it is {kind} address"
    return "" if _is_own(found) else "no interface has it"


def _is_own(address: IP) -> bool:
    """True when an interface of this machine has the address: a socket can be bound to it."""
    family, _ = _NOWHERE[address.version]
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    # If any address can be bound, the kernel's choice decides: it sends to an own address from that address.
    return not _binds_any(address.version) or _source_address(family, str(address)) == str(address)


def _binds_any(version: int) -> bool:
    """True with the sysctl ip_nonlocal_bind."""
    try:
        with open(f"/proc/sys/net/ipv{version}/ip_nonlocal_bind") as file:
            return file.read().strip() != "0"
    except OSError:
        return False


def _kind(address: IP) -> str:
    """The kind of an address that is no node's; empty for others."""
    kinds = {
        "a loopback": address.is_loopback,
        "a multicast": address.is_multicast,
        "a link-local": address.is_link_local,
        "an unspecified": address.is_unspecified,
    }
    return next((kind for kind, holds in kinds.items() if holds), "")


def _source_address(family: socket.AddressFamily, destination: str) -> str:
    # The kernel chooses the source address on connect. Connecting a datagram socket sends nothing.
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((destination, 9))
            address: str = probe.getsockname()[0]
    except OSError:
        return ""
    return address


class _Resolver:
    """Looks the node's name up in a thread of its own, as getaddrinfo has no deadline. Usable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._found: tuple[str, ...] | None = None
        """None until a lookup has been answered."""
        self._began: float | None = None
        """Of the first search. The forkserver imports this module long before."""

    def addresses(self, name: str) -> tuple[str, ...] | None:
        """Return the addresses of the name. While the resolver is silent or fails, return the last ones found.

        None while there are none yet, for ANSWER_S; then no address.
        """
        if self._began is None:
            self._began = time.monotonic()
        found = self._look(name)
        return () if found is None and time.monotonic() - self._began > ANSWER_S else found

    def _look(self, name: str) -> tuple[str, ...] | None:
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return self._found  # another thread waits for it, or it hangs
            self._thread = thread = threading.Thread(target=self._look_up, args=(name,), name="lookup", daemon=True)
            thread.start()
        if thread.ident is not None:  # a replay starts no thread
            thread.join(LOOKUP_S)
        return self._found

    def _look_up(self, name: str) -> None:
        try:
            # bytes: for a str Python imports its IDNA codec, 0.6 MB of memory that no other process shares
            answers = socket.getaddrinfo(name.encode(), None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that is no UTF-8
            if not isinstance(error, socket.gaierror) or error.errno != socket.EAI_AGAIN:
                self._found = ()
            return
        self._found = tuple(str(answer[4][0]) for answer in answers)


_resolver = _Resolver()
