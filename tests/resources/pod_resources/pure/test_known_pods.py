"""Tables of the pods that the pod resources API names."""

from __future__ import annotations

import pytest

from actors.resources.pod_resources.known_pods import KnownPods, NotKnownError
from proto.resources.resources import ListedPod, SetListedPods


def listed(uid: str, *, active: bool = True, name: str = "") -> ListedPod:
    return ListedPod(uid=uid, namespace="ns", name=name or uid, containers=("c",), active=active)


def test_nothing_is_told_before_all_pods_are_known() -> None:
    known = KnownPods()
    known.apply(SetListedPods(pods=(listed("a"),)))
    with pytest.raises(NotKnownError, match="not all pods"):
        known.every(active=True)
    with pytest.raises(NotKnownError):
        known.named("ns", "a")
    known.apply(SetListedPods(pods=(listed("b"),), full=True))
    assert known.every(active=True) == [listed("b")]


def test_pods_are_added_changed_and_removed() -> None:
    known = KnownPods()
    known.apply(SetListedPods(pods=(listed("a"), listed("b", active=False)), full=True))
    assert known.every(active=True) == [listed("a")]
    assert known.every(active=False) == [listed("a"), listed("b", active=False)]
    known.apply(SetListedPods(pods=(listed("b"),), gone=("a", "unknown")))
    assert known.every(active=True) == [listed("b")]


def test_of_two_pods_of_a_name_the_active_one_is_found() -> None:
    known = KnownPods()
    old, new = listed("old", active=False, name="web"), listed("new", name="web")
    known.apply(SetListedPods(pods=(old, new), full=True))
    assert known.named("ns", "web") == new
    assert known.named("other", "web") is None
