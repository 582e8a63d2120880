"""The little of rtnetlink that a bridge with pods on it takes. rtnetlink(7).

Each function is one request, in the network namespace of the calling thread; what is there already is no error.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct

_NEWLINK, _DELLINK, _NEWADDR, _NEWROUTE = 16, 17, 20, 24
_REQUEST, _ACK, _EXCL, _CREATE = 1, 4, 0x200, 0x400
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_MASTER, _IFLA_LINKINFO, _IFLA_NET_NS_FD = 1, 3, 4, 10, 18, 28
_INFO_KIND, _INFO_DATA = 1, 2
_VETH_PEER = 1
_IFA_LOCAL, _IFA_ADDRESS = 2, 1
_RTA_GATEWAY = 5
_UP = 1
_NESTED = 0x8000
_ANSWER_BYTES = 65536
_RT_TABLE_MAIN, _RTPROT_BOOT, _RT_SCOPE_UNIVERSE, _RTN_UNICAST = 254, 3, 0, 1


def add_bridge(name: str) -> None:
    """A bridge; up. Raises OSError."""
    info = _attribute(_INFO_KIND, b"bridge\0")
    _send(_NEWLINK, _CREATE, _link() + _text(_IFLA_IFNAME, name) + _attribute(_IFLA_LINKINFO | _NESTED, info))


def add_veth(name: str, peer: str, netns: str, mtu: int = 1500) -> None:
    """A pair: `name` here, `peer` in the namespace pinned at `netns`. Raises OSError."""
    fd = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
    try:
        inside = _link() + _text(_IFLA_IFNAME, peer) + _number(_IFLA_NET_NS_FD, fd) + _number(_IFLA_MTU, mtu)
        data = _attribute(_INFO_DATA | _NESTED, _attribute(_VETH_PEER | _NESTED, inside))
        info = _attribute(_IFLA_LINKINFO | _NESTED, _attribute(_INFO_KIND, b"veth\0") + data)
        _send(_NEWLINK, _CREATE | _EXCL, _link() + _text(_IFLA_IFNAME, name) + _number(_IFLA_MTU, mtu) + info)
    finally:
        os.close(fd)


def set_up(name: str, master: str = "") -> None:
    """Bring a link up, and make it a port of the bridge `master`. Raises OSError."""
    payload = _link(socket.if_nametoindex(name), _UP)
    if master:
        payload += _number(_IFLA_MASTER, socket.if_nametoindex(master))
    _send(_NEWLINK, 0, payload)


def delete(name: str) -> None:
    """Delete a link; gone already is done. Raises OSError."""
    if name not in (known for _, known in socket.if_nameindex()):
        return
    try:
        _send(_DELLINK, 0, _link(socket.if_nametoindex(name)))
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise


def add_address(name: str, address: str) -> None:
    """An address with its prefix length. Raises OSError."""
    interface = ipaddress.ip_interface(address)
    family = socket.AF_INET if interface.version == 4 else socket.AF_INET6
    head = struct.pack("=BBBBI", family, interface.network.prefixlen, 0, 0, socket.if_nametoindex(name))
    packed = interface.ip.packed
    _send(_NEWADDR, _CREATE, head + _attribute(_IFA_LOCAL, packed) + _attribute(_IFA_ADDRESS, packed))


def add_default_route(gateway: str) -> None:
    """Everything else goes there. Raises OSError."""
    address = ipaddress.ip_address(gateway)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    head = struct.pack("=BBBBBBBBI", family, 0, 0, 0, _RT_TABLE_MAIN, _RTPROT_BOOT, _RT_SCOPE_UNIVERSE, _RTN_UNICAST, 0)
    _send(_NEWROUTE, _CREATE, head + _attribute(_RTA_GATEWAY, address.packed))


def _link(index: int = 0, flags: int = 0) -> bytes:
    return struct.pack("=BBHiII", socket.AF_UNSPEC, 0, 0, index, flags, flags)


def _attribute(kind: int, value: bytes) -> bytes:
    padding = -len(value) % 4
    return struct.pack("=HH", len(value) + 4, kind) + value + bytes(padding)


def _text(kind: int, value: str) -> bytes:
    return _attribute(kind, value.encode() + b"\0")


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack("=I", value))


def _send(kind: int, flags: int, payload: bytes) -> None:
    """One request and its acknowledgement. Raises OSError."""
    message = struct.pack("=IHHII", 16 + len(payload), kind, flags | _REQUEST | _ACK, 1, 0) + payload
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock:
        sock.bind((0, 0))
        sock.send(message)
        answer = sock.recv(_ANSWER_BYTES)
    (code,) = struct.unpack_from("=i", answer, 16)
    if code not in (0, -errno.EEXIST) or (code == -errno.EEXIST and flags & _EXCL):
        raise OSError(-code, os.strerror(-code))
