"""The choice of SELinux labels and levels, in tables and properties."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.runtime.selinux.labels import (
    LEVELS,
    NONE,
    BadLabel,
    Context,
    Defaults,
    Labels,
    Options,
    labels,
    level,
    level_of,
    of_pod,
    parse,
    require_not_machines,
    shared,
)

POLICY = Defaults(
    Context("system_u", "system_r", "container_t", "s0"), Context("system_u", "object_r", "container_file_t", "s0")
)


@pytest.mark.parametrize("text", ["", "user", "user:role", "::", "user:role:"])
def test_label_without_its_parts_is_refused(text: str) -> None:
    with pytest.raises(BadLabel, match="no SELinux label"):
        parse(text)


ASKED: list[tuple[dict[str, str], str, str]] = [
    ({}, "system_u:system_r:container_t:s0:c1,c2", "system_u:object_r:container_file_t:s0:c1,c2"),
    ({"level": "s0:c5"}, "system_u:system_r:container_t:s0:c5", "system_u:object_r:container_file_t:s0:c5"),
    ({"type": "spc_t"}, "system_u:system_r:spc_t:s0:c1,c2", "system_u:object_r:container_file_t:s0:c1,c2"),
    ({"role": "r"}, "system_u:r:container_t:s0:c1,c2", "system_u:object_r:container_file_t:s0:c1,c2"),
    ({"user": "u"}, "u:system_r:container_t:s0:c1,c2", "u:object_r:container_file_t:s0:c1,c2"),
    (
        {"level": "s0-s0:c0.c1023"},
        "system_u:system_r:container_t:s0-s0:c0.c1023",
        "system_u:object_r:container_file_t:s0-s0:c0.c1023",
    ),
]
"""Options, and the labels that go-selinux's InitLabels makes of them for level s0:c1,c2."""


@pytest.mark.parametrize(("asked", "process", "mount"), ASKED)
def test_options_change_the_parts_that_they_name(asked: dict[str, str], process: str, mount: str) -> None:
    assert labels(POLICY, Options(**asked), "s0:c1,c2") == Labels(process, mount)


@pytest.mark.parametrize(
    "asked",
    [
        {"level": "c1,c2"},
        {"level": "s0:c1,c2:x"},
        {"level": "s0:c10000"},
        {"level": "s0 "},
        {"level": "s0:c1\n"},
        {"level": "s\u0660"},
        {"type": "a:s0:c0.c1023"},
        {"type": "a b"},
        {"user": "x\0"},
        {"role": 'r"'},
        {"role": "x" * 129},
    ],
)
def test_options_that_leave_their_part_are_refused(asked: dict[str, str]) -> None:
    with pytest.raises(BadLabel, match=r"is no SELinux (level|user|role|type)"):
        labels(POLICY, Options(**asked), "s0:c1,c2")


def test_policy_without_levels_gives_labels_without() -> None:
    plain = Defaults(POLICY.process._replace(level=""), POLICY.file._replace(level=""))
    assert labels(plain, Options(level="s0:c5"), "s0:c1,c2") == Labels(
        "system_u:system_r:container_t", "system_u:object_r:container_file_t"
    )


@pytest.mark.parametrize("asked", [asked for asked, _, _ in ASKED])
def test_container_without_options_has_its_pods_labels(asked: dict[str, str]) -> None:
    pod = labels(POLICY, Options(**asked), "s0:c1,c2")
    assert labels(POLICY, of_pod(pod.process), "s0:c7,c8") == pod


def test_shared_label_has_no_categories() -> None:
    assert shared("system_u:object_r:container_file_t:s0:c1,c2") == "system_u:object_r:container_file_t:s0"
    assert shared("system_u:object_r:container_file_t") == "system_u:object_r:container_file_t"


@pytest.mark.parametrize(("label", "found"), [("", ""), ("a:b:c", ""), ("a:b:c:s0:c1,c2", "s0:c1,c2")])
def test_level_is_the_rest_of_a_label(label: str, found: str) -> None:
    assert level_of(label) == found


@given(st.integers(0, LEVELS - 1), st.integers(0, LEVELS - 1))
def test_each_number_has_a_level_of_its_own(one: int, other: int) -> None:
    assert (level((), one) == level((), other)) is (one == other)


@given(st.integers(0, LEVELS - 1))
def test_levels_are_two_ordered_categories(number: int) -> None:
    first, second = (int(part[1:]) for part in level((), number).removeprefix("s0:").split(","))
    assert 0 <= first < second < 1024


@given(st.integers(0, LEVELS - 1), st.integers(0, 20))
def test_taken_levels_are_passed_over(start: int, count: int) -> None:
    taken: set[str] = set()
    for _ in range(count):
        found = level(taken, start)
        assert found not in taken
        taken.add(found)


def test_level_of_unconfined_files_is_passed_over() -> None:
    assert level((), 1023) == level((), 1024) == "s0:c1,c2"


def test_no_level_is_left_when_all_are_taken() -> None:
    class Everything(set[str]):
        def __contains__(self, _: Any) -> bool:
            return True

    with pytest.raises(BadLabel, match="end pods"):
        level(Everything(), 5)


@pytest.mark.parametrize(
    "path",
    ["/", "/usr", "/usr/share/doc", "/etc", "/etc/passwd", "/home", "/root", "/var", "/var/lib", "/tmp", "/proc/1",
     "/sys", "/dev/shm", "/var/lib/kubelet/pods", "//etc/", "/lib/modules", "/var/lib/x/../../log"],
)  # fmt: skip
def test_files_of_the_machine_keep_their_labels(path: str) -> None:
    with pytest.raises(BadLabel, match="it is the machine's"):
        require_not_machines(path)


@pytest.mark.parametrize(
    "path", ["/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/v", "/home/a", "/srv/data", "/usrdata", "/tmp/x"]
)
def test_volumes_may_get_labels(path: str) -> None:
    require_not_machines(path)


def test_no_labels_are_empty() -> None:
    assert tuple(NONE) == ("", "")
