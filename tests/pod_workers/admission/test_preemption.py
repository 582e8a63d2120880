"""A critical pod makes room for itself: it evicts few pods, and first those of a low QoS class."""

from __future__ import annotations

import pytest

from actors.pod_workers.admission import Admitted, Preempt, Rejection, Share, admit, preemption
from actors.pod_workers.admission.resources import Shortage
from actors.pod_workers.model.allocation import resources_of
from tests.pod_workers.admission.pods import (
    GI,
    NO_APP_ARMOR,
    NODE,
    OK,
    REFUSED,
    guaranteed,
    judged,
    pod,
    profile,
    shares,
)

NOBODY = (
    "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to "
    "preempt: no set of running pods found to reclaim resources: [{}]"
)


@pytest.mark.parametrize(
    ("wanted", "others", "expected"),
    [
        # no pod to evict
        ({"cpu": "64"}, [], ("UnexpectedAdmissionError", NOBODY.format("(res: cpu, q: 62000), "))),
        ({"cpu": "3", "memory": "5Gi"}, [],
         ("UnexpectedAdmissionError", NOBODY.format(f"(res: cpu, q: 1000), (res: memory, q: {GI}), "))),
        ({"cpu": "2"}, [pod("s", static=True, requests={"cpu": "1"})],
         ("UnexpectedAdmissionError", NOBODY.format("(res: cpu, q: 1000), "))),
        # enough free resources
        ({"cpu": "1"}, [pod("a", requests={"cpu": "1"})], OK),
        # BestEffort pods only count as pods
        ({"cpu": "2"}, [pod("b"), pod("a", requests={"cpu": "1"})], ("Preempt", "a")),
        ({}, [pod("b"), pod("a", requests={"cpu": "1m"}), pod("c"), guaranteed("g", "1m")], ("Preempt", "c")),
        # a Burstable one rather than a Guaranteed one, even a larger
        ({"cpu": "1"}, [guaranteed("g", "500m"), pod("a", requests={"cpu": "1500m"})], ("Preempt", "a")),
        ({"cpu": "1500m"}, [guaranteed("g", "1"), pod("a", requests={"cpu": "500m"})], ("Preempt", "g")),
        # one pod that covers the need, rather than two
        ({"cpu": "1"}, [pod("a", requests={"cpu": "500m"}), pod("b", requests={"cpu": "500m"}),
                        pod("c", requests={"cpu": "1"})], ("Preempt", "c")),
        # among pods that cover the need, the smallest: memory first, then cpu
        ({"cpu": "1"}, [pod("a", requests={"cpu": "1", "memory": "2Gi"}),
                        pod("b", requests={"cpu": "1", "memory": "1Gi"})], ("Preempt", "b")),
        ({"cpu": "1", "memory": "1Gi"}, [pod("a", requests={"cpu": "2", "memory": "4Gi"})], ("Preempt", "a")),
        # both resources weigh the same
        ({"cpu": "2", "memory": "4Gi"}, [pod("a", requests={"cpu": "1"}), pod("b", requests={"memory": "2Gi"})],
         ("Preempt", "a b")),
        # a critical API pod is spared as well as a static one
        ({"cpu": "2"}, [pod("k", requests={"cpu": "1"}, priority=2_000_001_000), pod("a", requests={"cpu": "1"})],
         ("UnexpectedAdmissionError", NOBODY.format("(res: cpu, q: 1000), "))),
    ],
)  # fmt: skip
def test_a_critical_pod_makes_itself_room(wanted, others, expected):
    assert judged(pod(static=True, requests=wanted), *others) == expected


def test_a_pod_is_evicted_for_what_its_containers_still_have():
    shrinks = Share.of(pod("a", requests={"cpu": "500m"}), resources_of(pod("a", requests={"cpu": "2"})))
    (victim,) = preemption.victims(pod(static=True), [shrinks], [Shortage("cpu", 1500, 2000, 2000)])
    assert victim is shrinks


def test_between_critical_pods_priority_decides():
    low = pod("low", static=True, requests={"cpu": "2"}, priority=5)
    assert judged(pod(static=True, requests={"cpu": "1"}, priority=6), low) == ("Preempt", "low")
    assert judged(pod(static=True, requests={"cpu": "1"}, priority=5), low)[0] == "UnexpectedAdmissionError"
    assert judged(pod(static=True, requests={"cpu": "1"}), low)[0] == "UnexpectedAdmissionError"
    assert judged(pod(requests={"cpu": "1"}, priority=6), low)[0] == "OutOfcpu"


def test_no_preemption_for_pod_that_fails_other_checks():
    low = pod("low", requests={"cpu": "2"})
    assert judged(pod(static=True, requests={"cpu": "1"}, nodeSelector={"disk": "hdd"}), low) == REFUSED
    assert (
        judged(pod(static=True, requests={"cpu": "1"}, securityContext=profile("RuntimeDefault")), low) == NO_APP_ARMOR
    )


def test_a_verdict_names_the_pods_that_go():
    verdict = admit(Share.of(pod(static=True, requests={"cpu": "1"})), shares(pod("a", requests={"cpu": "2"})), NODE)
    assert isinstance(verdict, Preempt)
    assert verdict.victims[0].pod.metadata.uid == "a"
    assert isinstance(admit(Share.of(pod()), (), NODE), Admitted)
    assert Rejection("r", "m").status_message == "Pod was rejected: m"
