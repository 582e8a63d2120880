"""The user namespaces that pods may ask for, and what a specification has of them."""

from typing import Any

import pytest

from actors.runtime.containers.pod_limits import pod_users, require_users, require_within_pod
from actors.runtime.model.errors import RpcError
from actors.runtime.model.user_mapping import UserMapping, mapping_of
from actors.runtime.oci.spec.shown import through_places
from proto.cri import api_pb2 as pb

UNIT = 65_536
GIVEN = UserMapping(UNIT, UNIT)


def ids(host: int = UNIT, length: int = UNIT, container: int = 0) -> pb.IDMapping:
    return pb.IDMapping(host_id=host, container_id=container, length=length)


def users(*uids: pb.IDMapping, gids: list[pb.IDMapping] | None = None, mode: Any = pb.POD) -> pb.NamespaceOption:
    groups = list(uids) if gids is None else gids
    return pb.NamespaceOption(userns_options=pb.UserNamespace(mode=mode, uids=uids, gids=groups))


def test_one_range_is_a_pods_mapping() -> None:
    found = mapping_of(users(ids(2 * UNIT, 3 * UNIT)))
    assert found == UserMapping(2 * UNIT, 3 * UNIT)
    assert found is not None
    assert (found.on_machine(0), found.on_machine(1000)) == (2 * UNIT, 2 * UNIT + 1000)
    assert found.on_machine(3 * UNIT) == 2 * UNIT + 65_534, "an ID outside is nobody"
    assert found.to_oci() == [{"containerID": 0, "hostID": 2 * UNIT, "size": 3 * UNIT}]
    for none in (pb.NamespaceOption(), users(mode=pb.NODE)):
        assert mapping_of(none) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (users(ids(), mode=pb.NODE), "userns_options has IDs with mode NODE"),
        (users(ids(), mode=pb.CONTAINER), "userns_options.mode is CONTAINER"),
        (users(ids(), mode=pb.TARGET), "userns_options.mode is TARGET"),
        (users(), "userns_options.uids has 0 ranges"),
        (users(ids(), ids(2 * UNIT, container=UNIT)), "userns_options.uids has 2 ranges"),
        (users(ids(), ids()), "userns_options.uids has 2 ranges"),
        (users(ids(), gids=[]), "userns_options.gids has 0 ranges"),
        (users(ids(), gids=[ids(2 * UNIT)]), "userns_options.gids differs"),
        (users(ids(container=1)), "userns_options.uids: container_id is 1"),
        (users(ids(0)), "userns_options.uids: host_id is 0"),
        (users(ids(UNIT - 1)), "userns_options.uids: host_id is 65535"),
        (users(ids(2**32 - UNIT)), "userns_options.uids: host_id is 4294901760"),
        (users(ids(UNIT, 2**32 - UNIT)), "userns_options.uids: host_id is 65536"),
        (users(ids(length=0)), "userns_options.uids: length is 0"),
        (users(ids(length=1000)), "userns_options.uids: length is 1000"),
    ],
)
def test_other_mappings_are_refused_with_the_field(options: pb.NamespaceOption, message: str) -> None:
    with pytest.raises(RpcError, match=message) as refused:
        mapping_of(options)
    assert refused.value.code == "INVALID_ARGUMENT"


@pytest.mark.parametrize("kind", ["network", "pid", "ipc"])
def test_no_namespace_of_the_machine_beside_own_users(kind: str) -> None:
    options = users(ids())
    setattr(options, kind, pb.NODE)
    with pytest.raises(RpcError, match=rf"namespace_options.{kind} is NODE"):
        mapping_of(options)


def test_machine_that_cannot_refuses_with_the_reason() -> None:
    with pytest.raises(RpcError, match="user namespaces are not supported by this runtime here: no overlayfs"):
        pod_users(users(ids()), "no overlayfs")
    assert pod_users(users(ids()), "") == GIVEN
    assert pod_users(pb.NamespaceOption(), "no overlayfs") is None


@pytest.mark.parametrize(
    ("asked", "of_pod"),
    [(pb.NamespaceOption(), GIVEN), (users(ids()), None), (users(ids(2 * UNIT)), GIVEN)],
)
def test_container_has_the_users_of_its_pod(asked: pb.NamespaceOption, of_pod: UserMapping | None) -> None:
    config = pb.ContainerConfig()
    config.linux.security_context.namespace_options.CopyFrom(asked)
    with pytest.raises(RpcError, match="userns_options of the container differs from its sandbox's"):
        require_within_pod(config, pb.PodSandboxConfig(), of_pod)
    require_within_pod(config, pb.PodSandboxConfig(), mapping_of(asked))


@pytest.mark.parametrize("user", [(UNIT, 0, ()), (0, UNIT, ()), (0, 0, (0, UNIT))])
def test_user_outside_the_namespace_is_refused(user: tuple[int, int, tuple[int, ...]]) -> None:
    with pytest.raises(RpcError, match=r"65536: the pod's user namespace has IDs below 65536 only"):
        require_users(user, GIVEN)
    require_users(user, None)


def test_bind_mounts_lead_through_places() -> None:
    mapping = {"uidMappings": GIVEN.to_oci(), "gidMappings": GIVEN.to_oci()}
    mounts: list[dict[str, Any]] = [
        {"type": "proc", "source": "proc", "destination": "/proc", "options": []},
        {"type": "bind", "source": "/a", "destination": "/a", "options": ["rbind", "rslave"], **mapping},
        {"type": "bind", "source": "/b", "destination": "/b", "options": ["bind", "rprivate"]},
        {"type": "bind", "source": "/c", "destination": "/c", "options": ["rbind", "rprivate", "ro", "noexec"]},
        {"type": "bind", "source": "/d", "destination": "/d", "options": ["rbind", "rprivate", "rw"]},
    ]
    found = through_places(mounts, lambda number: f"/place/{number}")
    assert [one["source"] for one in mounts] == ["proc", *(f"/place/{number}" for number in range(4))]
    assert not any("uidMappings" in one or "gidMappings" in one for one in mounts), "the place has them already"
    assert [(one.source, one.mapped, one.recursive, one.follows) for one in found] == [
        ("/a", True, True, True),
        ("/b", False, False, False),
        ("/c", False, True, False),
        ("/d", False, True, False),
    ]
    assert [one.options for one in found] == [(), (), ("ro", "noexec"), ()]
    assert [one["options"] for one in mounts[3:]] == [["rbind", "rprivate"]] * 2, "limited outside of the pod's rights"
