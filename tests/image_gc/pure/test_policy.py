"""Selection of images to remove: tables and properties."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.image_gc.listing import image_views
from actors.image_gc.policy import (
    LONG_AGO,
    Candidate,
    ImageView,
    Limits,
    Protection,
    Seen,
    Victim,
    bytes_to_free,
    candidates,
    expected,
    not_enough_message,
    observe,
    old_enough,
    restored,
    shifted,
    too_old,
    victims,
)
from proto.cri import api_pb2 as pb

LIMITS = Limits(85, 80, 120.0)
NONE: frozenset[str] = frozenset()


def image(identity: str, size: int = 1, *, pinned: bool = False, names: tuple[str, ...] = ()) -> ImageView:
    return ImageView(identity, frozenset({identity, *names}), size, pinned)


@pytest.mark.parametrize(
    ("available", "expected"),
    [(1000, 0), (160, 0), (159, 41), (150, 50), (151, 49), (0, 200), (5000, 0)],
)
def test_bytes_to_free_of_a_disk_of_1000_bytes(available: int, expected: int) -> None:
    # the kubelet's usage is 100 less the whole percents available: 159 of 1000 counts as 85 % used
    assert bytes_to_free(1000, available, LIMITS) == expected


@given(st.integers(1, 10**15), st.integers(0, 10**15), st.integers(0, 100), st.integers(0, 100))
def test_freed_bytes_bring_usage_below_the_low_threshold(capacity: int, free: int, one: int, other: int) -> None:
    limits = Limits(max(one, other), min(one, other), 0)
    freed = bytes_to_free(capacity, free, limits)
    assert freed >= 0
    if freed:
        assert (min(free, capacity) + freed) >= capacity * (100 - limits.low_percent) // 100


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        (Limits(85, 80, 0), ""),
        (Limits(80, 80, 0), ""),
        (Limits(101, 80, 0), "invalid HighThresholdPercent 101, must be in range [0-100]"),
        (Limits(85, -1, 0), "invalid LowThresholdPercent -1, must be in range [0-100]"),
        (Limits(70, 80, 0), "LowThresholdPercent 80 can not be higher than HighThresholdPercent 70"),
    ],
)
def test_limits_that_make_no_sense(limits: Limits, problem: str) -> None:
    assert limits.problem() == problem


def test_at_100_percent_nothing_goes_by_itself() -> None:
    assert Limits(100, 80, 0).disabled
    assert not Limits(100, 80, 0, 60.0).disabled


def test_observation() -> None:
    before = {"known": Seen(10.0, 20.0), "gone": Seen(1.0), "used": Seen(5.0, 6.0), "ahead": Seen(900.0, 950.0)}
    images = [image("known"), image("used", names=("tag",)), image("new"), image("ahead")]
    assert observe(before, images, frozenset({"tag"}), 100.0, 100.0) == {
        "known": Seen(10.0, 20.0),
        "used": Seen(5.0, 100.0),
        "new": Seen(100.0, LONG_AGO),
        "ahead": Seen(100.0, 100.0),
    }


def test_images_from_before_the_first_look_count_as_old() -> None:
    seen = observe({}, [image("a")], NONE, LONG_AGO, 500.0)
    assert old_enough(Candidate(image("a"), seen["a"]), LIMITS, 500.0)


def test_order_is_least_recently_used_then_first_detected() -> None:
    seen = {"a": Seen(1.0, 50.0), "b": Seen(9.0, 10.0), "c": Seen(3.0, 10.0), "d": Seen(2.0, LONG_AGO)}
    order = candidates(seen, [image(name) for name in seen], NONE, NONE)
    assert [candidate.image.id for candidate in order] == ["d", "c", "b", "a"]


NAMES = st.sampled_from([f"i{number}" for number in range(8)])


@given(st.dictionaries(NAMES, st.booleans()), st.frozensets(NAMES), st.frozensets(NAMES))
def test_images_in_use_pinned_or_kept_are_no_candidates(
    pinned: dict[str, bool], in_use: frozenset[str], kept: frozenset[str]
) -> None:
    images = [image(f"sha-{name}", pinned=pin, names=(name,)) for name, pin in pinned.items()]
    seen = observe({}, images, in_use, 0.0, 0.0)
    left = {next(iter(c.image.names - {c.image.id})) for c in candidates(seen, images, in_use, kept)}
    assert left == {name for name, pin in pinned.items() if not pin} - in_use - kept


@pytest.mark.parametrize("step", [-7200.0, 172_800.0])
def test_ages_are_the_same_before_and_after_a_step(step: float) -> None:
    before = {"never": Seen(LONG_AGO), "new": Seen(900.0), "used": Seen(500.0, 800.0)}
    after = shifted(before, step)
    assert after == {"never": Seen(LONG_AGO), "new": Seen(900.0 + step), "used": Seen(500.0 + step, 800.0 + step)}


def test_ages_are_the_same_after_a_step_to_1970_and_back() -> None:
    now = 1_790_000_000.0
    before = {"never": Seen(LONG_AGO), "new": Seen(now - 60.0), "used": Seen(now - 7200.0, now - 3600.0)}
    in_1970 = shifted(before, 60.0 - now)
    assert Victim(Candidate(image("used"), in_1970["used"]), "space").unused_s(60.0) == 3600.0
    assert old_enough(Candidate(image("never"), in_1970["never"]), LIMITS, 60.0)
    assert not old_enough(Candidate(image("new"), in_1970["new"]), LIMITS, 60.0)
    assert shifted(in_1970, now - 60.0) == before


def test_file_of_an_earlier_revision_has_0_for_long_ago() -> None:
    assert restored((0.0, 0.0)) == Seen(LONG_AGO)
    assert restored((5.0, 0.0)) == Seen(5.0)
    assert restored((LONG_AGO, -3.0)) == Seen(LONG_AGO, -3.0)


@pytest.mark.parametrize(
    ("max_age", "began", "last_used", "now", "goes"),
    [
        (0.0, 0.0, 0.0, 10**9, False),
        (60.0, 0.0, 0.0, 59.0, False),
        (60.0, 0.0, 0.0, 61.0, True),
        (60.0, 100.0, 0.0, 150.0, False),  # observed for too short a time
        (60.0, 100.0, 0.0, 161.0, True),
        (60.0, 0.0, 50.0, 100.0, False),
    ],
)
def test_maximum_age(max_age: float, began: float, last_used: float, now: float, goes: bool) -> None:
    candidate = Candidate(image("a"), Seen(0.0, last_used))
    assert too_old(candidate, Limits(85, 80, 0, max_age), began, now) is goes


def test_minimum_age() -> None:
    candidate = Candidate(image("a"), Seen(100.0))
    assert not old_enough(candidate, LIMITS, 219.0)
    assert old_enough(candidate, LIMITS, 220.0)


def test_not_enough_message_is_the_kubelets() -> None:
    assert not_enough_message(5, 3) == (
        "Failed to garbage collect required amount of images. "
        "Attempted to free 5 bytes, but only found 3 bytes eligible to free."
    )


IMAGES = st.builds(
    ImageView,
    id=st.sampled_from("abcdef"),
    names=st.frozensets(st.sampled_from(("a:1", "b:1", "keep/a", "keep/b")), max_size=2),
    size_bytes=st.integers(0, 100),
    pinned=st.booleans(),
    local=st.booleans(),
)
LOOKS = st.lists(
    st.tuples(
        st.lists(IMAGES, max_size=6, unique_by=lambda one: one.id),
        st.frozensets(st.sampled_from(("a", "b", "a:1", "keep/b")), max_size=2),
        st.floats(0, 5000),
    ),
    min_size=1,
    max_size=8,
)
"""Looks at the runtime: images, names in use, seconds since the look before."""


@settings(max_examples=int(os.environ.get("NODEVISOR_MODEL_EXAMPLES", "200")), deadline=None)
@given(LOOKS, st.integers(0, 300), st.floats(0, 1000), st.floats(0, 1000), st.booleans())
def test_plan_and_collection_agree_and_spare_what_is_protected(
    looks: list[tuple[list[ImageView], frozenset[str], float]], wanted: int, min_age: float, max_age: float, local: bool
) -> None:
    limits, protection = Limits(85, 80, min_age, max_age), Protection(("keep/*",), local)
    seen: dict[str, Seen] = {}
    began = now = 100_000.0
    first: dict[str, float] = {}
    for images, in_use, step in looks:
        now += step
        seen = observe(seen, images, in_use, now, now)
        first = {one.id: first.get(one.id, now) for one in images}
        unused = candidates(seen, images, in_use, NONE, protection)
        found = victims(unused, limits, began, now, aged=True)
        freed, removed = 0, []
        for one in found:  # the collection, on a disk where each removal frees the image's size
            if one.rule == "age" or freed < wanted:
                freed += one.image.size_bytes if one.rule == "space" else 0
                removed.append(one)
        assert removed == expected(found, wanted)
        assert len({one.image.id for one in found}) == len(found)
        for one in found:
            assert not one.image.pinned
            assert one.image.names.isdisjoint(in_use)
            assert not any(name.startswith("keep/") for name in one.image.names)
            assert not (local and one.image.local)
            if one.rule == "space":
                assert now - first[one.image.id] >= min_age


def test_entries_of_one_image_share_names_and_pins() -> None:
    """A runtime may list an image twice, and once without the name that a container uses."""
    listed = [
        pb.Image(id="sha256:1", repo_tags=["a:1"]),
        pb.Image(id="sha256:1", repo_tags=["b:1"], pinned=True),
        pb.Image(id="sha256:1", spec=pb.ImageSpec(runtime_handler="kata")),
        pb.Image(id="", repo_tags=["c:1"]),
    ]
    found = image_views(listed)
    assert [one.runtime_handler for one in found] == ["", "kata"]
    assert {one.names for one in found} == {frozenset({"sha256:1", "a:1", "b:1"})}
    assert all(one.pinned for one in found)
