"""Tables: the claims that a pod needs and may use, and its containers' devices. The messages are the kubelet's."""

from __future__ import annotations

from typing import Any

import pytest

from actors.resources.dra import policy
from actors.resources.dra.claims import Claim, Claims, Device, Key
from actors.resources.dra.policy import ClaimError, PodClaim
from proto.v1 import Pod
from proto.v1.cluster import ResourceClaim
from proto.v1.codec import from_dict
from tests.resources.dra.pods import claim, pod

NAMED = PodClaim(Key("default", "gpu"), must_own=False)


def from_template(statuses: list[dict[str, Any]]) -> Pod:
    document = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
            "containers": [{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}],
        },
        "status": {"resourceClaimStatuses": statuses},
    }
    return from_dict(Pod, document)


def extended() -> Pod:
    """A pod whose container gets an extended resource from a claim (KEP-5004)."""
    mapping = {"containerName": "c", "resourceName": "a.test/gpu", "requestName": "container-0-request-0"}
    document = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"containers": [{"name": "c"}, {"name": "other"}]},
        "status": {"extendedResourceClaimStatus": {"resourceClaimName": "made", "requestMappings": [mapping]}},
    }
    return from_dict(Pod, document)


def record(document: dict[str, Any]) -> ResourceClaim:
    return from_dict(ResourceClaim, document)


def test_names_of_claims() -> None:
    assert policy.claims_of(pod("u", "gpu")) == [NAMED]
    made = from_template([{"name": "gpu", "resourceClaimName": "p-gpu-1"}])
    assert policy.claims_of(made) == [PodClaim(Key("default", "p-gpu-1"), must_own=True)]
    assert policy.claims_of(extended()) == [PodClaim(Key("default", "made"), must_own=False)]
    assert policy.claims_of(pod("u")) == []


def test_a_template_may_need_no_claim() -> None:
    none = from_template([{"name": "gpu"}])
    assert policy.claims_of(none) == []
    assert policy.cdi_names(none, none.spec.containers[0], Claims()) == ()


def test_a_claim_of_a_template_is_made_later() -> None:
    with pytest.raises(ClaimError, match=r'^pod "default/p": ResourceClaim not created yet$'):
        policy.claims_of(from_template([]))


def test_drivers_of_an_allocated_claim() -> None:
    found = record(claim("gpu", "other", "u", drivers=("a", "b")))
    assert policy.drivers_of(pod("u", "gpu"), NAMED, found) == {"a", "b"}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (None, 'fetch ResourceClaim gpu: resourceclaims.resource.k8s.io "gpu" not found'),
        (claim("gpu"), "pod u (u) is not allowed to use ResourceClaim gpu (uid-gpu)"),
        (claim("gpu", "u", allocation=None), "ResourceClaim gpu: not allocated"),
    ],
)
def test_claims_that_cannot_be_used(document: dict[str, Any] | None, problem: str) -> None:
    with pytest.raises(ClaimError) as caught:
        policy.drivers_of(pod("u", "gpu"), NAMED, None if document is None else record(document))
    assert str(caught.value) == problem


def test_a_claim_of_a_template_is_its_pods_alone() -> None:
    document = claim("gpu", "u")
    wanted = PodClaim(Key("default", "gpu"), must_own=True)
    with pytest.raises(ClaimError, match="ResourceClaim default/gpu was not created for pod default/u"):
        policy.drivers_of(pod("u", "gpu"), wanted, record(document))
    document["metadata"]["ownerReferences"] = [{"uid": "u", "controller": True}]
    assert policy.drivers_of(pod("u", "gpu"), wanted, record(document))


def test_a_claim_is_entered_once_for_each_pod() -> None:
    claims = Claims()
    first = policy.entered(claims, "u", NAMED.key, "uid", frozenset({"a"}))
    first.prepared = True
    again = policy.entered(claims, "v", NAMED.key, "uid", frozenset({"a"}))
    assert again is first
    assert (first.pod_uids, first.prepared) == ({"u", "v"}, True)
    policy.entered(claims, "u", NAMED.key, "uid", frozenset({"b"}))
    assert (first.devices, first.prepared) == ({"a": (), "b": ()}, False)
    with pytest.raises(ClaimError, match="old ResourceClaim with same name gpu and different UID uid still exists"):
        policy.entered(claims, "u", NAMED.key, "other", frozenset({"a"}))
    assert claims.by_driver() == {"a": 1, "b": 1}


DEVICES = (
    Device("p", "1", None, ("one",), ("v/c=1",)),
    Device("p", "2", None, ("two",), ("v/c=2",)),
    Device("p", "3", None, ("sub/first",), ("v/c=3",)),
    Device("p", "4", None, (), ("v/c=4a", "v/c=4b")),
)


@pytest.mark.parametrize(
    ("request_name", "names"),
    [
        ("", ("v/c=1", "v/c=2", "v/c=3", "v/c=4a", "v/c=4b")),
        ("one", ("v/c=1", "v/c=4a", "v/c=4b")),
        ("sub", ("v/c=3", "v/c=4a", "v/c=4b")),
        ("none", ("v/c=4a", "v/c=4b")),
    ],
)
def test_a_container_gets_the_devices_of_its_request(request_name: str, names: tuple[str, ...]) -> None:
    claims = Claims([Claim(NAMED.key, "uid", {"u"}, {"driver": DEVICES})])
    subject = pod("u", "gpu", requests={"gpu": request_name})
    assert policy.cdi_names(subject, subject.spec.containers[0], claims) == names


def test_a_container_gets_what_stands_behind_extended_resources() -> None:
    device = Device("p", "1", None, ("container-0-request-0",), ("v/c=1",))
    claims = Claims([Claim(Key("default", "made"), "uid", {"u"}, {"driver": (device,)})])
    subject = extended()
    assert [policy.cdi_names(subject, one, claims) for one in subject.spec.containers] == [("v/c=1",), ()]


def test_no_container_starts_without_its_devices() -> None:
    subject = pod("u", "gpu")
    for claims in (Claims(), Claims([Claim(NAMED.key, "uid", {"another"}, {})])):
        with pytest.raises(ClaimError, match="unable to get claim info for ResourceClaim gpu"):
            policy.cdi_names(subject, subject.spec.containers[0], claims)
