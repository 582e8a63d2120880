"""User namespaces: no two pods share a range, over kills too. Errors have the kubelet's messages."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from pathlib import Path

import pytest

from actors.pod_workers.environment.variables import ConfigError
from actors.pod_workers.shared import userns
from actors.pod_workers.shared.userns import (
    BadRange,
    UserNamespaces,
    check_own,
    check_range,
    parse,
    parse_subordinate,
)
from proto.cri import api_pb2 as pb
from tests.pod_workers.admission.pods import pod

UNIT = 65_536


def ranges(root: Path, first: int = UNIT, slots: int = 4) -> UserNamespaces:
    found = UserNamespaces(str(root), UNIT, first, slots * UNIT)
    found.handlers = {"": True, "old": False}
    return found


def wants(name: str) -> pb.UserNamespace:
    return pod(name, hostUsers=False)


def first_of(found: pb.UserNamespace) -> int:
    assert found.mode == pb.POD
    assert list(found.uids) == list(found.gids)
    (ids,) = found.uids
    assert (ids.container_id, ids.length) == (0, UNIT)
    return ids.host_id


def test_every_pod_gets_a_range_of_its_own_until_none_is_left(tmp_path):
    spaces = ranges(tmp_path)
    for name in "abcd":
        spaces.claim(wants(name), "")
        spaces.claim(wants(name), "")  # again changes nothing
    assert sorted(first_of(spaces.of(wants(name))) for name in "abcd") == [UNIT, 2 * UNIT, 3 * UNIT, 4 * UNIT]
    with pytest.raises(ConfigError, match="could not find an empty slot to allocate a user namespace"):
        spaces.claim(wants("e"), "")
    freed = first_of(spaces.of(wants("b")))
    spaces.release("b")
    spaces.claim(wants("e"), "")
    assert first_of(spaces.of(wants("e"))) == freed


def test_it_is_written_as_the_kubelet_does_and_read_again(tmp_path):
    spaces = ranges(tmp_path)
    spaces.claim(wants("a"), "")
    first = first_of(spaces.of(wants("a")))
    ids = [{"hostId": first, "containerId": 0, "length": UNIT}]
    assert json.loads((tmp_path / "pods/a/userns").read_text()) == {"uidMappings": ids, "gidMappings": ids}
    again = ranges(tmp_path)
    assert first_of(again.of(wants("a"))) == first
    for name in "bcd":
        again.claim(wants(name), "")
    assert first not in [first_of(again.of(wants(name))) for name in "bcd"]
    again.release("a")
    assert not (tmp_path / "pods/a/userns").exists()


ALL_IDS = 1 << 32


@pytest.mark.parametrize(
    ("first", "count", "ids", "expected"),
    [
        (UNIT, ALL_IDS - UNIT, UNIT, 65_534),
        (1 << 24, ALL_IDS - (1 << 24), 1 << 24, 254),
        (UNIT, 110 * UNIT, UNIT, 110),
        (ALL_IDS - 2 * UNIT, 1000 * UNIT, UNIT, 1),
        (ALL_IDS, 1000 * UNIT, UNIT, 0),
    ],
)
def test_no_range_has_an_id_that_the_kernel_refuses(tmp_path, monkeypatch, first, count, ids, expected):
    spaces = UserNamespaces(str(tmp_path), ids, first, count)
    assert spaces._slots == expected
    spaces.handlers = {"": True}
    monkeypatch.setattr(userns.random, "randrange", lambda end: end - 1)
    if expected == 0:
        with pytest.raises(ConfigError, match="could not find an empty slot"):
            spaces.claim(wants("a"), "")
        return
    spaces.claim(wants("a"), "")
    assert spaces.of(wants("a")).uids[0].host_id + ids <= ALL_IDS - 1


@pytest.mark.parametrize("host", [ALL_IDS - UNIT, ALL_IDS, 1 << 40])
def test_refused_range_in_a_pods_file_is_replaced(tmp_path, host):
    (tmp_path / "pods/a").mkdir(parents=True)
    (tmp_path / "pods/a/userns").write_bytes(content(host))
    spaces = UserNamespaces(str(tmp_path), UNIT, UNIT, ALL_IDS - UNIT)
    spaces.handlers = {"": True}
    assert fails(spaces, "a"), "until its next sandbox"
    spaces.claim(wants("a"), "")
    given = first_of(spaces.of(wants("a")))
    assert given + UNIT <= ALL_IDS - 1
    assert parse((tmp_path / "pods/a/userns").read_bytes()) == range(given, given + UNIT)


@pytest.mark.parametrize(("count", "warned"), [(ALL_IDS - UNIT, True), (ALL_IDS - 2 * UNIT, False), (None, False)])
def test_reserved_ids_that_the_kernel_lacks_are_warned_of(tmp_path, monkeypatch, caplog, count, warned):
    monkeypatch.setattr(userns, "subordinate_ids", lambda: None if count is None else (2 * UNIT, count))
    spaces = userns.user_namespaces(str(tmp_path), UNIT, 110)
    assert spaces._slots == (65_534 if count is None else 65_533)
    assert ("/etc/subuid" in caplog.text) == warned


@pytest.mark.parametrize("host_users", [None, True])
def test_other_pods_have_the_nodes_users(tmp_path, host_users):
    spaces = ranges(tmp_path)
    one = pod("a", **({} if host_users is None else {"hostUsers": host_users}))
    spaces.claim(one, "nonsense")
    assert spaces.of(one) == pb.UserNamespace(mode=pb.NODE)
    assert not (tmp_path / "pods").exists()


WORDS = "can't set `spec.hostUsers: false`, "


@pytest.mark.parametrize(
    ("handlers", "handler", "message"),
    [
        ({}, "", WORDS + 'runtime does not support user namespaces: the handler "" is not known'),
        ({"": False}, "", WORDS + "runtime does not support user namespaces"),
        ({"": True, "x": False}, "x", WORDS + 'RuntimeClass handler "x" does not support user namespaces'),
        ({"": True}, "x", WORDS + 'RuntimeClass handler "x" does not support user namespaces: '
                                  'the handler "x" is not known'),
    ],
)  # fmt: skip
def test_a_runtime_that_cannot(tmp_path, handlers, handler, message):
    spaces = ranges(tmp_path)
    spaces.handlers = handlers
    with pytest.raises(ConfigError) as error:
        spaces.claim(wants("a"), handler)
    assert str(error.value) == message


def content(host: int = UNIT, container: int = 0, length: int = UNIT, gid_host: int | None = None) -> bytes:
    uids = [{"hostId": host, "containerId": container, "length": length}]
    gids = [{"hostId": host if gid_host is None else gid_host, "containerId": container, "length": length}]
    return json.dumps({"uidMappings": uids, "gidMappings": gids}).encode()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (content(), ""),
        (b"{", "invalid user namespace mappings file"),
        (b"{}", "invalid user namespace mappings file"),
        (b'{"uidMappings": [], "gidMappings": []}', "invalid user namespace mappings file"),
        (content(gid_host=2 * UNIT), "GID and UID mapping should be identical"),
        (content(container=5), "UID 0 must be mapped"),
        (content(length=7), "wrong user namespace length 7"),
        (content(host=UNIT + 1), f"wrong user namespace offset specified {UNIT + 1}"),
    ],
)
def test_a_pods_file(text, problem):
    if not problem:
        assert parse(text) == range(UNIT, 2 * UNIT)
        check_own(parse(text), UNIT)
        return
    with pytest.raises(ConfigError, match=problem):
        check_own(parse(text), UNIT)


def test_bad_range_affects_its_pod_alone(tmp_path):
    for name, text in {"a": content(), "b": content(), "far": content(host=100 * UNIT)}.items():
        (tmp_path / "pods" / name).mkdir(parents=True)
        (tmp_path / "pods" / name / "userns").write_bytes(text)
    spaces = ranges(tmp_path)
    taken = [name for name in ("a", "b") if not fails(spaces, name)]
    assert len(taken) == 1  # one range, two pods: the pod that is read first has it
    assert fails(spaces, "far")
    spaces.claim(wants("new"), "")


@pytest.mark.parametrize("damage", [b"", b"?", content(container=5), content(length=0), content(host=-UNIT), None])
def test_no_range_is_given_while_one_is_not_known(tmp_path, damage):
    ranges(tmp_path).claim(wants("a"), "")
    file = tmp_path / "pods/a/userns"
    whole = file.read_bytes()
    file.unlink()
    if damage is None:
        file.mkdir()
    else:
        file.write_bytes(damage)
    spaces = ranges(tmp_path)
    assert spaces.has("a")
    assert fails(spaces, "a")
    with pytest.raises(
        ConfigError, match=f'pod "a" may have any range of IDs: .*; delete that pod, and then {file} if'
    ):
        spaces.claim(wants("new"), "")
    assert not (tmp_path / "pods/new").exists()
    file.rmdir() if damage is None else file.unlink()
    file.write_bytes(whole)
    spaces.claim(wants("new"), "")
    assert first_of(spaces.of(wants("a"))) != first_of(spaces.of(wants("new")))


def test_directory_that_is_being_removed_has_no_range(tmp_path):
    """A removed pod's directory is renamed in ROOT_DIR/pods when that is a mount of its own."""
    ranges(tmp_path, slots=1).claim(wants("a"), "")
    (tmp_path / "pods/a").rename(tmp_path / "pods/.removed-a")
    spaces = ranges(tmp_path, slots=1)
    spaces.claim(wants("b"), "")
    assert first_of(spaces.of(wants("b"))) == UNIT


def test_range_of_a_pod_that_is_gone_is_free_again(tmp_path):
    """container_gc removes the directory of a pod that ended while the agent was down: it has no worker."""
    before = ranges(tmp_path, slots=2)
    for name in ("gone", "stays"):
        before.claim(wants(name), "")
    spaces = ranges(tmp_path, slots=2)
    kept = first_of(spaces.of(wants("stays")))
    for name in ("gone", "stays"):  # an administrator removed the other, whose pod has a worker
        shutil.rmtree(tmp_path / "pods" / name)
    spaces.claim(wants("new"), "")
    assert first_of(spaces.of(wants("new"))) == 3 * UNIT - kept
    with pytest.raises(ConfigError, match="could not find an empty slot"):
        spaces.claim(wants("other"), "")


@pytest.mark.parametrize("goes", [True, False])
def test_end_of_a_pod_of_unknown_range_frees_the_others(tmp_path, goes):
    file = tmp_path / "pods/a/userns"
    file.mkdir(parents=True)
    spaces = ranges(tmp_path)
    if goes:  # container_gc removes the directory
        file.rmdir()
    else:
        spaces.release("a")
    spaces.claim(wants("new"), "")
    assert not spaces.has("a")


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (3, 2)])
def test_range_of_another_length_stays_taken(tmp_path, before, after):
    """Units of idsPerPod before and after its change, over 24 units of IDs."""

    def of(units):
        found = UserNamespaces(str(tmp_path), units * UNIT, 6 * UNIT, 24 * UNIT)
        found.handlers = {"": True}
        return found

    old = of(before)
    for name in "ab":
        old.claim(wants(name), "")
    taken = {name: old.of(wants(name)).uids[0] for name in "ab"}
    new = of(after)
    given = []
    with contextlib.suppress(ConfigError):
        for number in range(25):
            new.claim(wants(f"new{number}"), "")
            given.append(new.of(wants(f"new{number}")).uids[0])
    ids = [range(one.host_id, one.host_id + one.length) for one in (*taken.values(), *given)]
    assert not any(set(one[::UNIT]) & set(other[::UNIT]) for one, other in itertools.combinations(ids, 2))
    assert 24 // after - 2 * (before // after + 1) <= len(given) < 24 // after
    assert all(fails(new, name) and new.has(name) for name in "ab")
    for name in "ab":
        new.release(name)
    new.claim(wants("later"), "")


def fails(spaces: UserNamespaces, name: str) -> bool:
    try:
        spaces.of(wants(name))
    except ConfigError:
        return True
    return False


@pytest.mark.parametrize(
    ("first", "count", "ids", "pods", "problem"),
    [
        (UNIT, (1 << 32) - UNIT, UNIT, 110, ""),
        (2 * UNIT, 220 * UNIT, 2 * UNIT, 110, ""),
        (UNIT, 110 * UNIT, 1000, 110, "kubelet user namespace length 1000 is not a multiple of 65536"),
        (UNIT + 1, 110 * UNIT, UNIT, 110, "kubelet user assigned ID 65537 is not a multiple of 65536"),
        (0, 110 * UNIT, UNIT, 110, "kubelet user assigned ID 0 must be greater or equal to 65536"),
        (UNIT, 110 * UNIT + 1, UNIT, 110, "kubelet user assigned IDs length 7208961 is not a multiple of 65536"),
        (UNIT, 109 * UNIT, UNIT, 110, "kubelet user assigned IDs are not enough to support 110 pods"),
        (327_680, 4_294_836_224, UNIT, 110, ""),
        (ALL_IDS - 110 * UNIT, 110 * UNIT, UNIT, 110, "kubelet user assigned IDs are not enough to support 110 pods"),
        (2 * ALL_IDS, 110 * UNIT, UNIT, 110, "kubelet user assigned IDs are not enough to support 110 pods"),
    ],
)
def test_what_may_be_set_aside(first, count, ids, pods, problem):
    if not problem:
        check_range(first, count, ids, pods)
        return
    with pytest.raises(BadRange) as error:
        check_range(first, count, ids, pods)
    assert str(error.value) == problem


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("0: kubelet 65536 2147483648\n", (65536, 2147483648)),
        ("", None),
        ("0: kubelet 65536 2147483648\n1: kubelet 1 2\n", None),
        ("0: kubelet x 2147483648", None),
        ("kubelet 65536 2147483648", None),
    ],
)
def test_what_getsubids_says(output, expected):
    if expected is not None:
        assert parse_subordinate(output) == expected
        return
    with pytest.raises(BadRange):
        parse_subordinate(output)


def test_unusable_ids_are_reported_by_pods_that_want_them(tmp_path, monkeypatch):
    monkeypatch.setattr(userns, "subordinate_ids", lambda: (UNIT, 5 * UNIT))
    spaces = userns.user_namespaces(str(tmp_path), UNIT, 110)
    spaces.handlers = {"": True}
    spaces.claim(pod("other"), "")
    with pytest.raises(ConfigError, match="not enough to support 110 pods"):
        spaces.claim(wants("a"), "")
