"""Messages that the certificates actor receives: the Node's addresses, from node."""

from __future__ import annotations

from proto.wire.message import Message, Record


class NodeAddress(Record, frozen=True, kw_only=True):
    """An entry of status.addresses."""

    type: str
    """InternalIP, ExternalIP, InternalDNS, ExternalDNS or Hostname."""
    address: str


class SetNodeAddresses(Message, frozen=True, kw_only=True):
    """From node, once it has read its Node, and with every change: status.addresses. Idempotent.

    No serving certificate is requested before.
    """

    addresses: tuple[NodeAddress, ...]
