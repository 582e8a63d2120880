"""Tables of replacement times, requests and their outcomes."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors._pki.pki import Certificate, Names
from actors.certificates import policy
from actors.certificates.policy import CLIENT, SERVER, Issued, Receipt, Rejected
from proto.node.certificates import NodeAddress

DAY_S = 86_400.0


@pytest.mark.parametrize(("chance", "at"), [(0, 1700), (0.5, 1800), (1, 1900)])
def test_certificate_is_replaced_between_0_7_and_0_9_of_its_life(chance: float, at: float) -> None:
    for now in (1000, 1600, 2500):
        assert now + policy.due_in_s(1000, 2000, chance, now) == pytest.approx(at)


@pytest.mark.parametrize(
    ("embedded", "stored", "replaced"),
    [
        ((0, 900), (100, 1000), False),  # kubeadm init: its own first certificate was replaced long ago
        ((100, 1000), (0, 900), True),  # the node has joined another cluster
        ((100, 400), (0, 900), False),  # later, but expired
        ((600, 1000), (0, 900), False),  # not valid yet
        ((0, 900), (0, 300), True),
        ((0, 300), (0, 400), False),  # both have expired
        ((0, 400), (0, 300), True),
    ],
)
def test_embedded_certificate_goes_before_the_stored_one_if_it_is_later_and_good(
    embedded: tuple[float, float], stored: tuple[float, float], replaced: bool
) -> None:
    read = [
        Certificate(names=Names(common_name="node"), not_before=begin, not_after=end)
        for begin, end in (embedded, stored)
    ]
    assert policy.replaces(*read, now=500) is replaced


def test_backdated_certificate_is_not_replaced_at_once() -> None:
    assert policy.due_in_s(0, 320, 0.0, 300, Receipt(left_s=20, age_s=0)) == 10
    assert policy.due_in_s(0, 320, 0.0, 306, Receipt(left_s=20, age_s=6)) == 4
    assert policy.due_in_s(0, 320, 0.0, 300) == pytest.approx(-76)
    assert policy.due_in_s(0, DAY_S, 0.5, 300, Receipt(left_s=DAY_S - 300, age_s=0)) == pytest.approx(69_120 - 300)


@pytest.mark.parametrize(
    ("now", "receipt", "left_s"),
    [
        (600, None, 400),
        (1200, None, -200),
        (600, Receipt(left_s=400, age_s=0), 400),
        (600, Receipt(left_s=400, age_s=500), -100),
        (5000, Receipt(left_s=-4000, age_s=0), 1000),  # the clock is ahead: its whole life is left
        (5100, Receipt(left_s=-4000, age_s=100), 900),
        (-500, Receipt(left_s=1500, age_s=100), 900),  # the clock is behind
    ],
)
def test_end_of_a_certificate_counts_from_its_receipt(now: float, receipt: Receipt | None, left_s: float) -> None:
    assert policy.end_in_s(0, 1000, now, receipt) == left_s


@given(
    life_s=st.floats(60, 400 * DAY_S), chance=st.floats(0, 1), age_s=st.floats(0, 400 * DAY_S),
    got=st.floats(-1000 * DAY_S, 1000 * DAY_S), jump_s=st.floats(-1000 * DAY_S, 1000 * DAY_S),
)  # fmt: skip
def test_any_clock_uses_a_certificate_a_while_within_its_life(
    life_s: float, chance: float, age_s: float, got: float, jump_s: float
) -> None:
    """`got`: the machine's clock as the certificate came, which by its signer's began at 0."""
    receipt = Receipt(left_s=life_s - got, age_s=age_s)
    due_s = policy.due_in_s(0, life_s, chance, got + age_s + jump_s, receipt)
    assert age_s + due_s <= max(0.9 * life_s, 300) + 1e-3
    if 0 <= got < life_s:
        assert age_s + due_s >= min((life_s - got) / 2, 300) - 1e-3
    else:
        assert age_s + due_s >= min(life_s / 2, 300) - 1e-3


def test_corrected_clock_replaces_a_due_certificate() -> None:
    """It was a day behind when the certificate of twenty hours came."""
    life_s = 20 * 3600.0
    receipt = Receipt(left_s=life_s + DAY_S, age_s=3600)
    assert policy.due_in_s(0, life_s, 0.5, 3600 - DAY_S, receipt) == pytest.approx(0.8 * life_s - 3600)
    assert policy.due_in_s(0, life_s, 0.5, life_s + 1, receipt) < 0


def test_failures_are_tried_again_as_the_kubelet_does() -> None:
    assert [policy.RETRY.delay_s(failures) for failures in range(1, 9)] == [2, 4, 8, 16, 32, 32, 32, 32]
    assert policy.RETRY.delay_s(1, lambda: 1) == pytest.approx(2.2)
    assert policy.RETRY.delay_s(10_000) == 32


def node_addresses(*pairs: tuple[str, str]) -> list[NodeAddress]:
    return [NodeAddress(type=kind, address=address) for kind, address in pairs]


def server_names(*ips: str) -> Names:
    found = policy.server_names("n", node_addresses(*(("InternalIP", ip) for ip in ips)))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("pairs", "dns", "ips"),
    [
        ([("Hostname", "n"), ("InternalIP", "10.0.0.9"), ("InternalIP", "10.0.0.1")], ("n",), ("10.0.0.1", "10.0.0.9")),
        ([("InternalIP", "FD00::0:1"), ("ExternalIP", "203.0.113.9")], (), ("203.0.113.9", "fd00::1")),
        ([("Hostname", "192.0.2.1"), ("ExternalDNS", "b.test"), ("InternalDNS", "a")], ("a", "b.test"), ("192.0.2.1",)),
        ([("InternalIP", "192.0.2.1"), ("InternalIP", "n"), ("Hostname", ""), ("Other", "x")], (), ("192.0.2.1",)),
    ],
)
def test_serving_certificate_has_all_names_of_the_node(
    pairs: list[tuple[str, str]], dns: tuple[str, ...], ips: tuple[str, ...]
) -> None:
    found = policy.server_names("n", node_addresses(*pairs))
    assert found is not None
    assert (found.common_name, found.dns_names, found.addresses) == ("system:node:n", dns, ips)


def test_serving_certificate_needs_an_ip_address() -> None:
    assert policy.server_names("n", ()) is None
    assert policy.server_names("n", node_addresses(("Hostname", "n"), ("InternalDNS", "192.0.2.1"))) is None


def test_dns_name_alone_suffices_with_the_gate() -> None:
    found = policy.server_names("n", node_addresses(("Hostname", "n"), ("ExternalDNS", "b.test")), dns_suffices=True)
    assert found is not None
    assert (found.dns_names, found.addresses) == (("b.test", "n"), ())
    assert policy.server_names("n", (), dns_suffices=True) is None
    both = node_addresses(("Hostname", "n"), ("InternalIP", "10.0.0.1"))
    assert policy.server_names("n", both, dns_suffices=True) == policy.server_names("n", both)


def test_certificate_with_missing_names_is_replaced() -> None:
    has = server_names("192.0.2.1", "192.0.2.3")
    assert policy.covers(has, server_names("192.0.2.1"))
    assert not policy.covers(has, server_names("192.0.2.1", "192.0.2.2"))
    assert not policy.covers(has, policy.client_names("m"))


def test_request_name_depends_on_key_names_and_purpose() -> None:
    names = policy.client_names("n")
    one = policy.request_name("csr-", "key", names, CLIENT)
    assert one == policy.request_name("csr-", "key", names, CLIENT)
    others = {
        policy.request_name("csr-", "other", names, CLIENT),
        policy.request_name("csr-", "key", policy.client_names("m"), CLIENT),
        policy.request_name("csr-", "key", names, SERVER),
    }
    assert len(others | {one}) == 4
    assert one.removeprefix("csr-").isalnum()
    assert one.islower()


def test_request_has_usages_that_all_controllers_approve() -> None:
    assert policy.request_object("r", "PEM", CLIENT) == {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "r"},
        "spec": {
            "request": base64.b64encode(b"PEM").decode(),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["key encipherment", "digital signature", "client auth"],
        },
    }
    assert policy.client_names("n") == Names(common_name="system:node:n", organizations=("system:nodes",))


@pytest.mark.parametrize(
    ("status", "found"),
    [
        ({}, None),
        ({"conditions": [{"type": "Approved"}]}, None),
        ({"certificate": base64.b64encode(b"PEM").decode()}, Issued(b"PEM")),
        ({"certificate": "!"}, Rejected("its certificate is no base64: Only base64 data is allowed")),
        (
            {"certificate": "\u00e9"},
            Rejected("its certificate is no base64: string argument should contain only ASCII characters"),
        ),
        (
            {"certificate": 4},
            Rejected("its status cannot be read: Expected `str | null`, got `int` - at `$.certificate`"),
        ),
        (
            {"conditions": 4},
            Rejected("its status cannot be read: Expected `array | null`, got `int` - at `$.conditions`"),
        ),
        ({"conditions": [{"type": "Denied", "message": "no"}]}, Rejected("denied: no")),
        (
            {"conditions": [{"type": "Approved"}, {"type": "Failed", "reason": "SignerValidationFailure"}]},
            Rejected("failed: SignerValidationFailure"),
        ),
    ],
)
def test_a_request_is_signed_refused_or_still_waits(status: dict[str, Any], found: object) -> None:
    assert policy.outcome({"status": status}) == found


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"certificate": "\u00e9"}, "its certificate is no base64: "),
        ({"certificate": 4}, "its status cannot be read: Expected `str | null`, got `int` - at `$.certificate`"),
        ({"conditions": 4}, "its status cannot be read: Expected `array | null`, got `int` - at `$.conditions`"),
    ],
)
def test_a_status_of_another_shape_is_a_rejection(status: dict[str, Any], why: str) -> None:
    found = policy.outcome({"status": status})
    assert isinstance(found, Rejected)
    assert found.why.startswith(why)
