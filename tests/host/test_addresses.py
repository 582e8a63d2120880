"""The node's addresses."""

from __future__ import annotations

import pytest

from actors._host.node.addresses import configured_ips


@pytest.mark.parametrize(
    ("flag", "wanted"),
    [
        ("", ()),
        ("0.0.0.0", ()),
        ("::", ()),
        ("0::0", ()),
        ("192.0.2.7", ("192.0.2.7",)),
        (" 192.0.2.7, 2001:DB8:0::1 ", ("192.0.2.7", "2001:db8::1")),
        ("::ffff:192.0.2.7", ("192.0.2.7",)),
        ("::ffff:0:102:304", ("::ffff:0:102:304",)),
    ],
)
def test_node_ip_has_addresses_or_names_a_family(flag: str, wanted: tuple[str, ...]) -> None:
    assert configured_ips(flag) == wanted
