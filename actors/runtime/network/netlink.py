"""The requests of rtnetlink(7) that a bridge with pods needs.

Each function is one request, in the network namespace of the calling thread. An object that exists already is no error.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct

from actors.runtime.network.wire import CREATE, EXCL, attribute, dump, nested, number, parse, request, text

_NEWLINK, _DELLINK, _GETLINK, _SETLINK, _NEWADDR, _GETADDR, _NEWROUTE = 16, 17, 18, 19, 20, 22, 24
_IFLA_ADDRESS = 1
_IFLA_IFNAME, _IFLA_MTU, _IFLA_MASTER, _IFLA_PROTINFO, _IFLA_LINKINFO, _IFLA_NET_NS_FD = 3, 4, 10, 12, 18, 28
_IFLA_BRPORT_MODE = 4
_INFO_KIND, _INFO_DATA = 1, 2
_VETH_PEER = 1
_IFA_LOCAL, _IFA_ADDRESS = 2, 1
_RTA_GATEWAY = 5
_UP = 1
_LINK_BYTES, _ADDRESS_BYTES = 16, 8
_RT_TABLE_MAIN, _RTPROT_BOOT, _RT_SCOPE_UNIVERSE, _RTN_UNICAST = 254, 3, 0, 1


def add_bridge(name: str, mac: bytes) -> None:
    """Create a bridge. Without a fixed MAC address it would take one of a port, and change it. Raises OSError."""
    info = nested(_IFLA_LINKINFO, attribute(_INFO_KIND, b"bridge\0"))
    _send(_NEWLINK, CREATE, _link() + text(_IFLA_IFNAME, name) + attribute(_IFLA_ADDRESS, mac) + info)


def add_veth(name: str, peer: str, netns: str, mac: bytes = b"", mtu: int = 1500) -> None:
    """Create a veth pair: `name` here, `peer` with address `mac` in the namespace pinned at `netns`. Raises OSError."""
    fd = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
    try:
        inside = _link() + text(_IFLA_IFNAME, peer) + number(_IFLA_NET_NS_FD, fd) + number(_IFLA_MTU, mtu)
        if mac:
            inside += attribute(_IFLA_ADDRESS, mac)
        data = nested(_INFO_DATA, nested(_VETH_PEER, inside))
        info = nested(_IFLA_LINKINFO, attribute(_INFO_KIND, b"veth\0"), data)
        _send(_NEWLINK, CREATE | EXCL, _link() + text(_IFLA_IFNAME, name) + number(_IFLA_MTU, mtu) + info)
    finally:
        os.close(fd)


def set_up(name: str, master: str = "") -> None:
    """Bring a link up, as a port of the bridge `master` if given. Raises OSError."""
    payload = _link(socket.if_nametoindex(name), _UP)
    if master:
        payload += number(_IFLA_MASTER, socket.if_nametoindex(master))
    _send(_NEWLINK, 0, payload)


def set_hairpin(name: str) -> None:
    """Allow a bridge port to send a frame back to its sender. Raises OSError."""
    head = _link(socket.if_nametoindex(name), family=socket.AF_BRIDGE)
    _send(_SETLINK, 0, head + nested(_IFLA_PROTINFO, attribute(_IFLA_BRPORT_MODE, b"\1")))


def exists(name: str) -> bool:
    """Return True when a link has this name."""
    return any(known == name for _, known in socket.if_nameindex())


def ports_of(bridge: str) -> list[str]:
    """The links that are ports of the bridge. Raises OSError."""
    if not exists(bridge):
        return []
    index = struct.pack("=I", socket.if_nametoindex(bridge))
    links = [parse(one[_LINK_BYTES:]) for one in dump(socket.NETLINK_ROUTE, _GETLINK, _link())]
    return [one[_IFLA_IFNAME].rstrip(b"\0").decode() for one in links if one.get(_IFLA_MASTER) == index]


def local_addresses() -> set[str]:
    """The machine's own IPv4 addresses. Raises OSError."""
    head = struct.pack("=BBBBI", socket.AF_INET, 0, 0, 0, 0)
    addresses = [parse(one[_ADDRESS_BYTES:]) for one in dump(socket.NETLINK_ROUTE, _GETADDR, head)]
    return {str(ipaddress.ip_address(one[_IFA_LOCAL])) for one in addresses if _IFA_LOCAL in one}


def delete(name: str) -> None:
    """Delete a link. Idempotent. Raises OSError."""
    try:
        _send(_DELLINK, 0, _link(socket.if_nametoindex(name)))
    except OSError as error:
        if exists(name) and error.errno != errno.ENODEV:
            raise


def add_address(name: str, address: str) -> None:
    """Add an address with its prefix length. Raises OSError."""
    interface = ipaddress.ip_interface(address)
    family = socket.AF_INET if interface.version == 4 else socket.AF_INET6
    head = struct.pack("=BBBBI", family, interface.network.prefixlen, 0, 0, socket.if_nametoindex(name))
    packed = interface.ip.packed
    _send(_NEWADDR, CREATE, head + attribute(_IFA_LOCAL, packed) + attribute(_IFA_ADDRESS, packed))


def add_default_route(gateway: str) -> None:
    """Add the default route. Raises OSError."""
    address = ipaddress.ip_address(gateway)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    head = struct.pack("=BBBBBBBBI", family, 0, 0, 0, _RT_TABLE_MAIN, _RTPROT_BOOT, _RT_SCOPE_UNIVERSE, _RTN_UNICAST, 0)
    _send(_NEWROUTE, CREATE, head + attribute(_RTA_GATEWAY, address.packed))


def _link(index: int = 0, flags: int = 0, family: int = socket.AF_UNSPEC) -> bytes:
    return struct.pack("=BBHiII", family, 0, 0, index, flags, flags)


def _send(kind: int, flags: int, payload: bytes) -> None:
    """Send a request and wait for its acknowledgement. Raises OSError."""
    try:
        request(socket.NETLINK_ROUTE, kind, flags, payload)
    except OSError as error:
        if error.errno != errno.EEXIST or flags & EXCL:
            raise
