"""Objects of several files, changes, and users of objects."""

import pytest

from actors.objects import policy
from actors.objects.parsing.load import File, Loaded
from actors.objects.parsing.problems import ObjectsError
from actors.objects.policy import FileState, Users
from proto.pods.objects import ApiObject, ObjectRef, PodObjects


def ref(name: str, kind: str = "Secret", namespace: str = "default") -> ObjectRef:
    return ObjectRef(kind=kind, namespace=namespace, name=name)


def loaded(name: str, version: str = "1", *, immutable: bool = False, size: int = 0) -> Loaded:
    data = {"k": b"x" * size} if size else {}
    return Loaded(ApiObject(ref=ref(name), resource_version=version, immutable=immutable, data=data), 3)


BAD = ObjectsError("/o/a", 1, "", "bad")


def test_a_bad_version_keeps_the_last_good_objects() -> None:
    good = policy.next_state("/o/a", None, File((loaded("x"),)), 1.0)
    assert good == FileState((loaded("x"),), None, 1.0)
    assert policy.next_state("/o/a", good, BAD, 2.0) == FileState((loaded("x"),), BAD, 1.0)
    assert policy.next_state("/o/a", None, BAD, 2.0) == FileState(None, BAD)
    mended = policy.next_state("/o/a", policy.next_state("/o/a", None, BAD, 1.0), File(()), 3.0)
    assert mended == FileState((), None, 3.0)


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        (loaded("x", immutable=True), (loaded("x", "2", immutable=True),), True),
        (loaded("x", immutable=True), (loaded("x", "2"),), True),
        (loaded("x", immutable=True), (loaded("x", immutable=True), loaded("y")), False),
        (loaded("x", immutable=True), (), False),
        (loaded("x"), (loaded("x", "2"),), False),
    ],
)
def test_an_immutable_object_is_not_changed(before: Loaded, after: tuple[Loaded, ...], refused: bool) -> None:
    good = policy.next_state("/o/a", None, File((before,)), 1.0)
    state = policy.next_state("/o/a", good, File(after), 2.0)
    assert (state.error is not None) is refused
    assert state.objects == ((before,) if refused else after)
    if state.error is not None:
        assert "Secret default/x is immutable" in state.error.problem


def test_duplicate_object_is_the_first_files_and_names_both() -> None:
    files = {"/o/b": FileState((loaded("x", "2"),), None, 2.0), "/o/a": FileState((loaded("x", "1"),), None, 1.0)}
    resolved = policy.resolve(files)
    assert resolved.objects[ref("x")].resource_version == "1"
    assert resolved.places[ref("x")] == ("/o/a", 3, 1.0)
    assert "cannot use objects file /o/b:3: metadata.name: Secret default/x is already defined by /o/a:3" in str(
        resolved.errors["/o/b"]
    )
    assert list(resolved.errors) == ["/o/b"]


def test_changes_are_added_removed_or_different_objects() -> None:
    before = {ref(name): loaded(name).object for name in ("same", "gone", "other")}
    after = {
        ref("same"): loaded("same").object,
        ref("other"): loaded("other", "2").object,
        ref("new"): loaded("new").object,
    }
    assert policy.changes(before, after) == (ref("gone"), ref("new"), ref("other"))
    assert policy.changes(after, after) == ()


def test_select_finds_names_and_whole_kinds() -> None:
    objects = {ref("a"): loaded("a").object, ref("b"): loaded("b").object}
    found, missing = policy.select(objects, [ref("a"), ref(""), ref("c"), ref("", "Service")])
    assert [one.ref.name for one in found] == ["a", "b"]
    assert missing == [ref("c")]


def test_an_answer_has_a_size_and_always_something() -> None:
    objects = [loaded("a", size=10).object, loaded("b", size=10).object, loaded("c", size=10).object]
    assert policy.fitting(objects, 25) == (tuple(objects[:2]), (ref("c"),))
    assert policy.fitting(objects, 1) == (tuple(objects[:1]), (ref("b"), ref("c")))
    assert policy.fitting([], 1) == ((), ())


def test_users() -> None:
    users = Users()
    users.set(
        [PodObjects(pod_uid="1", refs=(ref("a"), ref("", "Service"))), PodObjects(pod_uid="2", refs=(ref("a"),))],
        full=True,
    )
    assert (users.count(ref("a")), users.count(ref("b")), users.count(ref("web", "Service"))) == (2, 0, 1)
    assert users.used([ref("a"), ref("b")]) == (ref("a"),)
    users.set([PodObjects(pod_uid="1", refs=())], full=False)
    assert (users.count(ref("a")), len(users)) == (1, 1)
    users.set([], full=True)
    assert len(users) == 0


def test_references_that_a_pod_did_not_have_are_new() -> None:
    def set_(uid: str, *names: str, full: bool = False) -> set[str]:
        pods = [PodObjects(pod_uid=uid, refs=tuple(ref(name) for name in names))]
        return {one.name for one in users.set(pods, full=full)}

    users = Users()
    assert set_("1", "a", "b") == {"a", "b"}
    assert set_("1", "a", "b", "c") == {"c"}
    assert set_("2", "a", "c") == {"a", "c"}, "another pod has them"
    assert set_("2", "a", "b", full=True) == {"b"}
    assert set_("1", "a") == {"a"}, "the full list did not have the pod"
    assert set_("1") == set()
    assert set_("1", "a") == {"a"}


def test_an_object_shows_no_data() -> None:
    one = ApiObject(ref=ref("a"), resource_version="1", data={"k": b"hunter2"})
    assert "hunter2" not in repr(one) + str(one) + f"{[one]}"
