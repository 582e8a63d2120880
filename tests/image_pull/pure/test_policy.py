"""Tables of back-off, pull rate, recently seen images and messages, with the time as a parameter."""

import pytest

from actors.image_pull import policy
from actors.image_pull.policy import Presence, Present, PullBackOff
from proto.common.token_bucket import TokenBucket

KEY = ("busybox:latest", "")


def test_back_off_doubles_to_cap_and_resets_after_twice_the_cap() -> None:
    back_off = PullBackOff(10.0, 300.0)
    now, waits = 0.0, []
    for _ in range(7):
        assert back_off.refusal("k", now) is None
        back_off.failed("k", "ErrImagePull: no", now)
        wait = 0.0
        while back_off.refusal("k", now + wait) is not None:
            wait += 1.0
        waits.append(wait)
        now += wait
    assert waits == [10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]
    later = now + 601.0
    back_off.failed("k", "again", later)
    assert back_off.refusal("k", later + 9.9) == "again"
    assert back_off.refusal("k", later + 10.0) is None


def test_back_off_is_per_key_and_forgets_only_what_has_expired() -> None:
    back_off = PullBackOff(10.0, 300.0)
    back_off.failed("a", "old", 0.0)
    back_off.failed("b", "new", 590.0)
    back_off.forget_old(601.0)
    assert back_off.remaining(595.0) == {"b": 5.0}
    assert back_off.refusal("c", 595.0) is None
    back_off.failed("b", "newer", 602.0)
    assert back_off.refusal("b", 602.0 + 19.9) == "newer"


def test_failures_of_pods_that_are_gone_are_dropped_without_a_success() -> None:
    back_off = PullBackOff(10.0, 300.0)
    for number in range(2000):
        back_off.failed(f"pod-{number}", "no", float(number))
    assert len(back_off._entries) <= 601


def test_found_image_counts_as_present_for_two_seconds() -> None:
    presence, image = Presence(), Present("sha256:1", "0")
    assert presence.get(KEY, 0.0) is None
    presence.put(KEY, image, 10.0)
    assert presence.get(KEY, 11.9) == image
    assert presence.get(KEY, 12.0) is None
    assert presence.get(("busybox:latest", "kata"), 11.0) is None
    presence.put(("other", ""), image, 13.0)
    assert len(presence) == 1


def test_rate_lets_a_burst_through_and_then_qps() -> None:
    bucket = TokenBucket(5.0, 10)
    assert [bucket.try_take(100.0) for _ in range(11)] == [True] * 10 + [False]
    assert [bucket.try_take(100.2), bucket.try_take(100.2)] == [True, False]
    assert [bucket.try_take(200.0) for _ in range(11)] == [True] * 10 + [False]
    unlimited = TokenBucket(0.0, 0)
    assert all(unlimited.try_take(0.0) for _ in range(100))


@pytest.mark.parametrize(
    ("code", "details", "expected"),
    [
        ("Unknown", "failed to pull and unpack", ("ErrImagePull", "failed to pull and unpack")),
        ("NotFound", "no such", ("ErrImagePull", "rpc error: code = NotFound desc = no such")),
        (
            "Unknown",
            "RegistryUnavailable: dial tcp",
            ("RegistryUnavailable", "image pull failed for a:1 because the registry is unavailable: dial tcp"),
        ),
        (
            "Unknown",
            "SignatureValidationFailed: bad key",
            (
                "SignatureValidationFailed",
                "image pull failed for a:1 because the signature validation failed: bad key",
            ),
        ),
    ],
)
def test_reason_and_message_of_a_failed_pull(code: str, details: str, expected: tuple[str, str]) -> None:
    assert policy.pull_error("a:1", policy.pull_error_text(code, details)) == expected


def test_failed_pull_lists_each_registry_answer_once() -> None:
    assert policy.joined(["denied", "denied"]) == "denied"
    assert policy.joined(["denied", "late", "denied"]) == "[denied, late]"


def test_back_off_holds_for_the_tried_credentials_only() -> None:
    back_off = policy.PullBackOff(10, 300)
    back_off.failed("k", "no", 0, ("old",))
    assert back_off.refusal("k", 1, ("old",)) == "no"
    assert back_off.refusal("k", 1, ("new",)) is None
    back_off.failed("k", "again", 1, ("new",))
    assert back_off.refusal("k", 10, ("new",)) == "again"
    assert back_off.refusal("k", 11, ("new",)) is None


def test_annotations_of_runtimes_alone_choose_a_pull() -> None:
    of_runtimes = {"io.kubernetes.cri-o.Devices": "/dev/x", "io.containerd.cri.runtime-handler": "kata"}
    others = {"io.containerd": "x", "k8s.v1.cni.cncf.io/network-status": "[]", "kubernetes.io/config.hash": "1"}
    assert policy.choosing(others | of_runtimes) == tuple(sorted(of_runtimes.items()))


@pytest.mark.parametrize(
    ("uid", "username", "user"), [(1000, "", "1000"), (0, "", "0"), (None, "app", "app"), (None, "", "0")]
)
def test_user_of_an_image(uid: int | None, username: str, user: str) -> None:
    assert policy.image_user(uid, username) == user


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0s"), (0.308, "308ms"), (1.0, "1s"), (1.5, "1.5s"), (61.25, "1m1.25s"), (600.0, "10m0s"), (3600, "1h0m0s")],
)
def test_durations_as_go_prints_them(seconds: float, text: str) -> None:
    assert policy.go_duration(seconds) == text


MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("size_bytes", "label"),
    [
        (0, "N/A"),
        (1, "0-10MB"),
        (10 * MIB, "0-10MB"),
        (10 * MIB + 1, "10MB-100MB"),
        (500 * MIB, "100MB-500MB"),
        (500 * MIB + 1, "500MB-1GB"),
        (15 * GIB, "10GB-20GB"),
        (100 * GIB, "60GB-100GB"),
        (100 * GIB + 1, "GT100GB"),
    ],
)
def test_size_label_of_a_pull(size_bytes: int, label: str) -> None:
    """A size at a bound belongs below it. The runtime does not tell a size of 0."""
    assert policy.size_class(size_bytes) == label
