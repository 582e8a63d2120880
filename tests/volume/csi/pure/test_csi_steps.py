"""The step of a CSI volume has each field of the volume, its CSIDriver and its Secrets."""

from typing import Any

import pytest

from actors.volume import policy
from actors.volume.csi.policy import node_problem, owned_by, registration_problem, token_attributes
from actors.volume.plugins.base import ATTACH_FAILED, CannotMount, Claimed, Context
from actors.volume.plugins.csi import PersistentCsi
from actors.volume.steps.csi import CsiMount, FsGroup
from proto import v1
from proto.pods.objects import ApiObject, GetToken, ObjectRef, Token
from proto.v1 import Pod
from proto.v1.cluster import PersistentVolume, PersistentVolumeClaim

DRIVER = {
    "attachRequired": False,
    "fsGroupPolicy": "File",
    "podInfoOnMount": True,
    "requiresRepublish": True,
    "volumeLifecycleModes": ["Persistent", "Ephemeral"],
}
FOR_NODE = {
    "nodeStageSecretRef": {"name": "Stage", "namespace": "ns"},
    "nodePublishSecretRef": {"name": "Publish", "namespace": "ns"},
    "nodeExpandSecretRef": {"name": "Expand", "namespace": "ns"},
}
EPHEMERAL = {"volumeLifecycleModes": ["Ephemeral"]}
CALLS = ("Stage", "Publish", "Expand")
"""Also the names of the Secrets."""
CLAIM = {"persistentVolumeClaim": {"claimName": "data"}}
INLINE = {"csi": {"driver": "d"}}
TOKENS = "csi.storage.k8s.io/serviceAccount.tokens"
VOLUME = {"driver": "d", "volumeHandle": "h", "fsType": "ext4", "readOnly": True, "volumeAttributes": {"a": "b"}}


def step(
    volume: dict[str, Any],
    secrets: tuple[str, ...] = CALLS,
    *,
    driver: dict[str, Any] | None = DRIVER,
    socket: str = "/d.sock",
    annotations: dict[str, str] | None = None,
    standalone: bool = True,
    **persistent: Any,
) -> CsiMount:
    """The step of a pod's volume. `driver`: the CSIDriver's spec, if there is one; `persistent`: the volume's."""
    made, _ = step_and_tokens(
        volume, secrets, driver=driver, socket=socket, annotations=annotations, standalone=standalone, **persistent
    )
    return made


def step_and_tokens(
    volume: dict[str, Any],
    secrets: tuple[str, ...] = CALLS,
    *,
    driver: dict[str, Any] | None = DRIVER,
    socket: str = "/d.sock",
    annotations: dict[str, str] | None = None,
    standalone: bool = True,
    **persistent: Any,
) -> tuple[CsiMount, tuple[GetToken, ...]]:
    """The same, and the tokens for which it asks. Each token is its audience."""
    mode = persistent.get("volumeMode", "Filesystem")
    security = {"fsGroup": 7, "fsGroupChangePolicy": "OnRootMismatch"}
    container: dict[str, Any] = {"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    if mode == "Block":
        container = {"name": "c", "volumeDevices": [{"name": "v", "devicePath": "/dev/v"}]}
    spec = {"containers": [container], "volumes": [{"name": "v", **volume}], "securityContext": security}
    pod = v1.from_dict(Pod, {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec})
    documents: dict[tuple[str, str, str], dict[str, Any]] = {
        ("PersistentVolumeClaim", "ns", "data"): {"spec": {"volumeName": "pv", "volumeMode": mode}},
        ("PersistentVolume", "", "pv"): {"metadata": {"annotations": annotations or {}}, "spec": persistent},
    }
    if driver is not None:
        documents["CSIDriver", "", "d"] = {"spec": driver}
    refs = {ObjectRef(kind=kind, namespace=space, name=name): one for (kind, space, name), one in documents.items()}
    objects = {ref: ApiObject(ref=ref, resource_version="1", document=one) for ref, one in refs.items()}
    for call in secrets:
        ref = ObjectRef(kind="Secret", namespace="ns", name=call)
        objects[ref] = ApiObject(ref=ref, resource_version="1", data={"k": call.encode()})
    (wanted,) = policy.wanted_volumes(pod).values()
    context = Context(standalone=standalone, objects=objects, node_name="n", endpoint=lambda _: socket)
    asked = wanted.plugin.credentials(pod, wanted.volume, context)
    tokens = {one: Token(token=one.audiences[0], expires=10, refresh=8) for one in asked}
    made = wanted.plugin.step(pod, wanted.volume, context.with_objects(objects, tokens))
    assert isinstance(made, CsiMount)
    return made, asked


def test_persistent_volume_brings_its_fields_and_secrets() -> None:
    old = {"volume.beta.kubernetes.io/mount-options": "ro,nolock"}  # of in-tree types only
    made = step(CLAIM, csi=VOLUME | FOR_NODE, mountOptions=["noatime"], annotations=old)
    assert (made.volume.handle, made.fs_type, made.read_only, made.context) == ("h", "ext4", False, {"a": "b"})
    assert made.mount_options == ("noatime",)
    assert (made.secrets.stage, made.secrets.publish, made.secrets.expand) == (
        {"k": "Stage"},
        {"k": "Publish"},
        {"k": "Expand"},
    )


def test_missing_secrets_of_stage_and_growth_are_left_to_their_calls() -> None:
    made = step({"persistentVolumeClaim": {"claimName": "data"}}, ("Publish",), csi=VOLUME | FOR_NODE).secrets
    assert (made.stage, made.publish, made.expand) == ({}, {"k": "Publish"}, {})
    assert made.stage_error == 'fetching NodeStageSecretRef ns/Stage failed: secrets "Stage" not found'
    text = 'expander.NodeExpand failed to get NodeExpandSecretRef ns/Expand: secrets "Expand" not found'
    assert made.expand_error == text
    whole = step({"persistentVolumeClaim": {"claimName": "data"}}, csi=VOLUME | FOR_NODE).secrets
    assert (whole.stage_error, whole.expand_error) == ("", "")


@pytest.mark.parametrize(
    "volume",
    [
        {"persistentVolumeClaim": {"claimName": "data"}},
        {"csi": {"driver": "d", "nodePublishSecretRef": {"name": "Publish"}}},
    ],
)
def test_missing_secret_of_the_publication_fails_every_mount(volume: dict[str, Any]) -> None:
    with pytest.raises(CannotMount) as caught:
        step(volume, ("Stage", "Expand"), csi=VOLUME | FOR_NODE)
    assert str(caught.value) == 'fetching NodePublishSecretRef ns/Publish failed: secrets "Publish" not found'


@pytest.mark.parametrize("mode", ["Filesystem", "Block"])
def test_missing_attachment_is_told_before_a_missing_secret(mode: str) -> None:
    """The volume is tried again soon, and may be beyond the node's limit."""
    with pytest.raises(CannotMount, match=r'^volumeattachments\.storage\.k8s\.io "csi-\w+" not found$') as caught:
        step(
            CLAIM,
            (),
            standalone=False,
            driver=DRIVER | {"attachRequired": True},
            csi=VOLUME | FOR_NODE,
            volumeMode=mode,
        )
    assert (caught.value.stage, caught.value.soon) == (ATTACH_FAILED, True)


@pytest.mark.parametrize(
    ("volume", "mode", "stage", "message"),
    [
        (INLINE, "", "MountVolume.SetUp", "mounter.SetUpAt failed to get CSI client"),
        (CLAIM, "", "MountVolume.MountDevice", "attacher.MountDevice failed to create newCsiDriverClient"),
        (CLAIM, "Block", "MapVolume.SetUpDevice", "blockMapper.SetUpDevice failed to get CSI client"),
    ],
)
@pytest.mark.parametrize("driver", [None, DRIVER, {"volumeLifecycleModes": ["Other"], "attachRequired": False}])
def test_volume_without_a_registered_driver_names_it(
    volume: dict[str, Any], mode: str, stage: str, message: str, driver: dict[str, Any] | None
) -> None:
    with pytest.raises(CannotMount) as caught:
        step(volume, csi=VOLUME, volumeMode=mode or "Filesystem", driver=driver, socket="")
    missing = "driver name d not found in the list of registered CSI drivers"
    assert str(caught.value) == f"kubernetes.io/csi: {message}: {missing}"
    assert caught.value.stage == f"{stage} failed"


@pytest.mark.parametrize(
    ("volume", "driver", "message"),
    [
        (INLINE, None, '"Ephemeral" not supported by driver d (no CSIDriver object)'),
        (INLINE, {}, '"Ephemeral" not supported by driver d (only supports ["Persistent"])'),
        (CLAIM, EPHEMERAL, '"Persistent" not supported by driver d (only supports ["Ephemeral"])'),
    ],
)
def test_volume_that_its_driver_does_not_support(
    volume: dict[str, Any], driver: dict[str, Any] | None, message: str
) -> None:
    with pytest.raises(CannotMount) as caught:
        step(volume, csi=VOLUME, driver=driver)
    check = "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode"
    assert str(caught.value) == f"{check}: volume mode {message}"
    assert caught.value.stage == "MountVolume.SetUp failed"


def test_pods_volume_brings_its_fields_and_secret() -> None:
    source = {"driver": "d", "fsType": "xfs", "readOnly": True, "volumeAttributes": {"a": "b"}}
    made = step({"csi": source | {"nodePublishSecretRef": {"name": "Publish"}}})
    assert (made.ephemeral, made.fs_type, made.read_only, made.context) == (True, "xfs", True, {"a": "b"})
    assert (made.secrets.stage, made.secrets.publish) == ({}, {"k": "Publish"})


def test_group_policies_and_pod_info_are_the_drivers_and_pods() -> None:
    made = step({"csi": {"driver": "d"}})
    assert made.fs_group == FsGroup(7, "OnRootMismatch", "File")
    assert made.pod_info["csi.storage.k8s.io/pod.name"] == "p"
    assert made.republish


@pytest.mark.parametrize("in_secrets", [False, True])
@pytest.mark.parametrize("volume", [CLAIM, INLINE])
def test_file_system_brings_the_tokens_that_its_driver_requests(volume: dict[str, Any], in_secrets: bool) -> None:
    requests = {"tokenRequests": [{"audience": "a"}], "serviceAccountTokenInSecrets": in_secrets}
    made, asked = step_and_tokens(volume, driver=DRIVER | requests, standalone=False, csi=VOLUME)
    assert [one.audiences for one in asked] == [("a",)]
    found = made.secrets.publish if in_secrets else made.secrets.attributes
    assert list(found) == [TOKENS]


@pytest.mark.parametrize("standalone", [False, True])
@pytest.mark.parametrize("in_secrets", [False, True])
def test_raw_device_asks_for_no_token(in_secrets: bool, standalone: bool) -> None:
    requests = {"tokenRequests": [{"audience": "a"}], "serviceAccountTokenInSecrets": in_secrets}
    made, asked = step_and_tokens(
        CLAIM, driver=DRIVER | requests, standalone=standalone, csi=VOLUME, volumeMode="Block"
    )
    assert asked == ()
    assert (made.secrets.attributes, made.secrets.publish) == ({}, {})
    assert made.pod_info["csi.storage.k8s.io/pod.name"] == "p"


def test_tokens_are_written_as_by_the_kubelet() -> None:
    tokens = {name: Token(token=f"t-{name}", expires=10, refresh=8) for name in ("b", "a")}
    ends = "1970-01-01T00:00:10Z"
    assert token_attributes(tokens) == {
        TOKENS: f'{{"a":{{"token":"t-a","expirationTimestamp":"{ends}"}},'
        f'"b":{{"token":"t-b","expirationTimestamp":"{ends}"}}}}'
    }


@pytest.mark.parametrize("attached", [False, True])
@pytest.mark.parametrize("mounted", [False, True])
def test_only_the_pods_claim_makes_the_mount_read_only(attached: bool, mounted: bool) -> None:
    """The PersistentVolume's readOnly is for its attachment."""
    claimed = {"persistentVolumeClaim": {"claimName": "data", "readOnly": mounted}}
    made = step(claimed, csi=VOLUME | {"readOnly": attached})
    assert made.read_only == mounted
    assert (owned_by(made, ()) is None) == mounted, "else the files get the fsGroup"


@pytest.mark.parametrize(("attach", "wanted"), [(False, 0), (True, 1), (None, 1)])
def test_attachment_is_read_only_if_the_driver_needs_one(attach: bool | None, wanted: int) -> None:
    spec = {"csi": {"driver": "d", "volumeHandle": "h"}}
    claimed = Claimed(
        v1.from_dict(PersistentVolume, {"metadata": {"name": "pv"}, "spec": spec}), PersistentVolumeClaim(), ()
    )
    driver = ObjectRef(kind="CSIDriver", name="d")
    document = {"spec": {"attachRequired": attach}}
    found = {driver: ApiObject(ref=driver, resource_version="1", document=document)} if attach is not None else {}

    def attachments(context: Context) -> list[ObjectRef]:
        return [ref for ref in PersistentCsi().refs(Pod(), claimed, context) if ref.kind == "VolumeAttachment"]

    assert attachments(Context()) == [], "the driver is not known yet"
    assert len(attachments(Context(objects=found, asked=frozenset({driver})))) == wanted


@pytest.mark.parametrize(
    ("name", "is_valid"),
    [
        ("csi.test", True),
        ("CSI-2.Example.com", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("Bad_Name", False),
        ("-a", False),
        ("a..b", False),
        ("a/b", False),
        ("a\nb", False),
        ("", False),
        ("x" * 10**6, False),
    ],
)
def test_name_of_a_driver_is_a_dns_name_or_refused(name: str, is_valid: bool) -> None:
    problem = registration_problem("CSIPlugin", name, ("v1.2.0",), "/s", {})
    assert (problem == "") is is_valid
    assert len(problem) < 400


@pytest.mark.parametrize("version", [f"v1.{'9' * 5000}.0", f"{'9' * 5000}.0", "v1.0.0-" + "x" * 10**6, "x" * 10**6])
def test_version_with_endless_parts_is_refused_shortly(version: str) -> None:
    problem = registration_problem("CSIPlugin", "csi.test", (version,), "/s", {})
    assert "could not find a highest supported version" in problem
    assert len(problem) < 600
    assert registration_problem("CSIPlugin", "csi.test", (version, "1.0.0"), "/s", {}) == ""


@pytest.mark.parametrize(
    ("node_id", "topology", "said"),
    [
        ("n" * 256, {"zone": "a"}, ""),
        ("", {}, "is empty"),
        ("n" * 257, {}, "256 bytes"),
        ("\u00e9" * 129, {}, "256 bytes"),
        ("a\nb", {}, "control characters"),
        ("n" * 10**7, {}, "256 bytes"),
        ("n", {"zone": "z" * 10**6}, "topology is longer"),
    ],
)
def test_what_a_driver_says_about_the_node_is_bounded(node_id: str, topology: dict[str, str], said: str) -> None:
    problem = node_problem(node_id, topology)
    assert said in problem
    assert (problem == "") is (said == "")
    assert len(problem) < 400
