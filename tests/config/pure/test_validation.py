"""The API's rules: each broken one is found at its field, and a good pod breaks none."""

# ruff: noqa: E501 - tables keep one case to a line

import copy
from typing import Any

import pytest

from actors.config.defaulting.defaults import default_pod
from actors.config.pods.references import api_references
from actors.config.validation.pod import validate_pod
from proto import v1
from proto.schema.fieldpath import field_text

GOOD: dict[str, Any] = {
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "volumes": [{"name": "v"}],
        "initContainers": [{"name": "i", "image": "x"}],
        "containers": [
            {
                "name": "c",
                "image": "x",
                "ports": [{"name": "http", "containerPort": 80}, {"containerPort": 81}],
                "env": [{"name": "A-b.c", "value": "1"}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            }
        ],
    },
}


DEVICE = [{"name": "v", "devicePath": "/dev/xvda"}]


def broken(place: str, value: Any) -> dict[str, str]:
    """Fields and problems after one place of the good pod was set: `spec.containers.0.image`."""
    plain = copy.deepcopy(GOOD)
    holder: Any = plain
    *path, last = place.split(".")
    for part in path:
        holder = holder[int(part)] if part.isdigit() else holder.setdefault(part, {})
    holder[int(last) if last.isdigit() else last] = value
    violations = validate_pod(default_pod(v1.from_dict(v1.Pod, plain)))
    return {field_text(path): problem for path, problem in violations}


def test_good_pod_breaks_no_rule() -> None:
    assert broken("metadata.labels", {"app.kubernetes.io/name": "Web_1"}) == {}


C = "spec.containers.0"
CF = "spec.containers[0]"


RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0, -1, 300]}}


def test_restart_rules_take_any_exit_codes():
    for policy in ("Always", "OnFailure", "Never"):
        own = {"name": "c", "image": "i", "restartPolicy": policy, "restartPolicyRules": [RULE]}
        assert broken("spec.containers", [own]) == {}


@pytest.mark.parametrize(
    ("place", "value", "field", "problem"),
    [
        ("metadata.name", "a_b", "metadata.name", "Invalid"),
        ("metadata.name", "a" * 254, "metadata.name", "Invalid"),
        ("metadata.namespace", "A", "metadata.namespace", "Invalid"),
        ("metadata.labels", {"-": "x"}, "metadata.labels", "Invalid"),
        ("metadata.labels", {"a": "x y"}, "metadata.labels.a", "Invalid"),
        ("metadata.annotations", {"a": "x" * 300_000}, "metadata.annotations", "Too long"),
        ("spec.containers", [], "spec.containers", "Required"),
        (f"{C}.name", "", f"{CF}.name", "Required"),
        (f"{C}.name", "i", "spec.initContainers[0].name", "Duplicate"),
        (f"{C}.image", "", f"{CF}.image", "Required"),
        (f"{C}.image", " x", f"{CF}.image", "whitespace"),
        (f"{C}.imagePullPolicy", "Sometimes", f"{CF}.imagePullPolicy", '"Always", "IfNotPresent", "Never"'),
        (f"{C}.ports.0.containerPort", 0, f"{CF}.ports[0].containerPort", "Required"),
        (f"{C}.ports.0.containerPort", 65536, f"{CF}.ports[0].containerPort", "between 1 and 65535"),
        (f"{C}.ports.0.name", "toolongportnames", f"{CF}.ports[0].name", "at most 15"),
        (f"{C}.ports.1.name", "http", f"{CF}.ports[1].name", "Duplicate"),
        (f"{C}.ports.0.protocol", "tcp", f"{CF}.ports[0].protocol", "Unsupported"),
        (f"{C}.ports", [{"containerPort": 1, "hostPort": 9}] * 2, f"{CF}.ports[1].hostPort", "Duplicate"),
        (f"{C}.ports.0.hostIP", "1.2.3", f"{CF}.ports[0].hostIP", "valid IP"),
        (f"{C}.env", [{"name": "A=B"}], f"{CF}.env[0].name", "other than '='"),
        (f"{C}.env", [{"name": "A", "valueFrom": {}}], f"{CF}.env[0].valueFrom", "exactly one"),
        (f"{C}.env", [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}],
         f"{CF}.env[0].valueFrom.fieldRef.fieldPath", "Unsupported"),
        (f"{C}.envFrom", [{}], f"{CF}.envFrom[0]", "exactly one of"),
        ("spec.volumes", [{"name": "v"}, {"name": "v"}], "spec.volumes[1].name", "Duplicate"),
        ("spec.volumes.0", {"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}, "spec.volumes[0].emptyDir", "more than 1"),
        ("spec.volumes.0.hostPath", {}, "spec.volumes[0].hostPath.path", "Required"),
        ("spec.volumes.0.hostPath", {"path": "/", "type": "Dir"}, "spec.volumes[0].hostPath.type", "DirectoryOrCreate"),
        ("spec.volumes.0.emptyDir", {"medium": "Disk"}, "spec.volumes[0].emptyDir.medium", "Invalid"),
        ("spec.volumes.0.emptyDir", {"sizeLimit": "1x"}, "spec.volumes[0].emptyDir.sizeLimit", "quantity"),
        ("spec.volumes.0.downwardAPI", {"items": [{"path": "../x"}]}, "spec.volumes[0].downwardAPI.items[0].path", ".."),
        (f"{C}.volumeDevices", DEVICE, f"{CF}.volumeDevices[0].name", "of PersistentVolumeClaim or Ephemeral"),
        (f"{C}.volumeDevices", [{**DEVICE[0], "name": "w"}], f"{CF}.volumeDevices[0].name", "Not found"),
        (f"{C}.volumeDevices", [{**DEVICE[0], "name": ""}], f"{CF}.volumeDevices[0].name", "Required"),
        (f"{C}.volumeDevices", DEVICE * 2, f"{CF}.volumeDevices[1].devicePath", "unique"),
        (f"{C}.volumeDevices", [{"name": "v"}], f"{CF}.volumeDevices[0].devicePath", "Required"),
        (f"{C}.volumeDevices", [{**DEVICE[0], "devicePath": "/a/../b"}], f"{CF}.volumeDevices[0].devicePath", "backsteps"),
        (f"{C}.volumeDevices", [{**DEVICE[0], "devicePath": "/v"}], f"{CF}.volumeDevices[0].devicePath", "volumeMounts"),
        (f"{C}.volumeMounts.0.name", "w", f"{CF}.volumeMounts[0].name", "Not found"),
        (f"{C}.volumeMounts.0.mountPath", "", f"{CF}.volumeMounts[0].mountPath", "Required"),
        (f"{C}.volumeMounts", [{"name": "v", "mountPath": "/v"}] * 2, f"{CF}.volumeMounts[1].mountPath", "unique"),
        (f"{C}.volumeMounts.0.subPath", "/a", f"{CF}.volumeMounts[0].subPath", "relative"),
        (f"{C}.volumeMounts.0.mountPropagation", "Bidirectional", f"{CF}.volumeMounts[0].mountPropagation", "privileged"),
        (f"{C}.livenessProbe", {}, f"{CF}.livenessProbe", "must specify a handler"),
        (f"{C}.livenessProbe", {"exec": {"command": ["a"]}, "grpc": {"port": 1}}, f"{CF}.livenessProbe.grpc", "more than 1"),
        (f"{C}.livenessProbe", {"exec": {}}, f"{CF}.livenessProbe.exec.command", "Required"),
        (f"{C}.livenessProbe", {"tcpSocket": {"port": 0}}, f"{CF}.livenessProbe.tcpSocket.port", "Required"),
        (f"{C}.livenessProbe", {"tcpSocket": {"port": "-"}}, f"{CF}.livenessProbe.tcpSocket.port", "Invalid"),
        (f"{C}.startupProbe", {"grpc": {"port": 1}, "successThreshold": 2}, f"{CF}.startupProbe.successThreshold", "must be 1"),
        (f"{C}.readinessProbe", {"grpc": {"port": 1}, "terminationGracePeriodSeconds": 1},
         f"{CF}.readinessProbe.terminationGracePeriodSeconds", "must not be set"),
        (f"{C}.readinessProbe", {"grpc": {"port": 1}, "periodSeconds": -1}, f"{CF}.readinessProbe.periodSeconds", "or equal to 0"),
        (f"{C}.readinessProbe", {"httpGet": {"port": 1, "scheme": "FTP"}}, f"{CF}.readinessProbe.httpGet.scheme", "HTTPS"),
        ("spec.initContainers.0.livenessProbe", {"grpc": {"port": 1}}, "spec.initContainers[0].livenessProbe", "Forbidden"),
        (f"{C}.lifecycle", {"preStop": {}}, f"{CF}.lifecycle.preStop", "must specify a handler"),
        (f"{C}.lifecycle", {"preStop": {"sleep": {"seconds": 31}}}, f"{CF}.lifecycle.preStop.sleep",
         "must be non-negative and less than terminationGracePeriodSeconds (30)"),
        (f"{C}.lifecycle", {"postStart": {"sleep": {"seconds": -1}}}, f"{CF}.lifecycle.postStart.sleep", "non-negative"),
        (f"{C}.restartPolicy", "Sometimes", f"{CF}.restartPolicy", '"Always", "OnFailure", "Never"'),
        (f"{C}.restartPolicyRules", [RULE], f"{CF}.restartPolicy", "must specify restartPolicy when restart rules are used"),
        ("spec.initContainers.0.restartPolicyRules", [RULE], "spec.initContainers[0].restartPolicy", "Required value"),
        (f"{C}.restartPolicyRules", [RULE] * 21, f"{CF}.restartPolicyRules", "Too many: 21: must have at most 20 items"),
        (f"{C}.restartPolicyRules", [{**RULE, "action": "Stop"}], f"{CF}.restartPolicyRules[0].action",
         '"Restart", "RestartAllContainers"'),
        (f"{C}.restartPolicyRules", [{"action": "Restart"}], f"{CF}.restartPolicyRules[0].exitCodes",
         "Required value: must be specified"),
        (f"{C}.restartPolicyRules", [{"action": "Restart", "exitCodes": {}}], f"{CF}.restartPolicyRules[0].exitCodes.operator",
         'Unsupported value: "": supported values: "In", "NotIn"'),
        (f"{C}.restartPolicyRules", [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1] * 256}}],
         f"{CF}.restartPolicyRules[0].exitCodes.values", "Too many: 256: must have at most 255 items"),
        (f"{C}.resources", {"limits": {"cpu": "x"}}, f"{CF}.resources.limits.cpu", "suffix"),
        (f"{C}.resources", {"limits": {"cpu": "-1"}}, f"{CF}.resources.limits.cpu", "or equal to 0"),
        (f"{C}.resources", {"limits": {"disk": "1"}}, f"{CF}.resources.limits.disk", "standard resource"),
        (f"{C}.resources", {"limits": {"cpu": "1"}, "requests": {"cpu": 2}}, f"{CF}.resources.requests.cpu", "cpu limit of 1"),
        ("spec.resources", {"limits": {"memory": "1GB"}}, "spec.resources.limits.memory", "suffix"),
        ("spec.resources", {"requests": {"cpu": "-1"}}, "spec.resources.requests.cpu", "or equal to 0"),
        ("spec.overhead", {"memory": "64MB"}, "spec.overhead.memory", "suffix"),
        ("spec.overhead", {"memory": "-1Ti"}, "spec.overhead.memory", "or equal to 0"),
        (f"{C}.env", [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "2"}}}],
         f"{CF}.env[0].valueFrom.resourceFieldRef.divisor", 'supported values: "1m", "1"'),
        ("spec.volumes.0.downwardAPI", {"items": [{"path": "x", "resourceFieldRef": {"containerName": "c", "resource": "limits.memory", "divisor": "1MB"}}]},
         "spec.volumes[0].downwardAPI.items[0].resourceFieldRef.divisor", "suffix"),
        (f"{C}.securityContext", {"runAsUser": -1}, f"{CF}.securityContext.runAsUser", "between 0 and 2147483647"),
        (f"{C}.securityContext", {"runAsGroup": 1 << 31}, f"{CF}.securityContext.runAsGroup", "between 0 and 2147483647"),
        ("spec.securityContext", {"fsGroup": 1 << 32}, "spec.securityContext.fsGroup", "between 0 and 2147483647"),
        ("spec.securityContext", {"runAsUser": 1 << 31}, "spec.securityContext.runAsUser", "between 0 and 2147483647"),
        ("spec.securityContext", {"supplementalGroups": [0, 1 << 62]}, "spec.securityContext.supplementalGroups[1]",
         "between 0 and 2147483647"),
        (f"{C}.securityContext", {"procMount": "Unmasked"}, f"{CF}.securityContext.procMount", "`hostUsers` must be false"),
        (f"{C}.securityContext", {"allowPrivilegeEscalation": False, "privileged": True}, f"{CF}.securityContext", "`privileged` to true"),
        (f"{C}.securityContext", {"allowPrivilegeEscalation": False, "capabilities": {"add": ["CAP_SYS_ADMIN"]}},
         f"{CF}.securityContext", "CAP_SYS_ADMIN"),
        (f"{C}.securityContext", {"seccompProfile": {"type": "Default"}}, f"{CF}.securityContext.seccompProfile.type", "Unsupported"),
        (f"{C}.securityContext", {"seccompProfile": {"type": "Localhost"}},
         f"{CF}.securityContext.seccompProfile.localhostProfile", "must be set when seccomp type is Localhost"),
        (f"{C}.securityContext", {"seccompProfile": {"type": "Localhost", "localhostProfile": "../x"}},
         f"{CF}.securityContext.seccompProfile.localhostProfile", "'..'"),
        ("spec.securityContext", {"seccompProfile": {"type": "Unconfined", "localhostProfile": "x"}},
         "spec.securityContext.seccompProfile.localhostProfile", "can only be set when seccomp type is Localhost"),
        ("spec.securityContext", {"appArmorProfile": {"type": "Localhost", "localhostProfile": " x"}},
         "spec.securityContext.appArmorProfile.localhostProfile", "whitespace"),
        ("spec", {**GOOD["spec"], "hostnameOverride": "a", "setHostnameAsFQDN": True}, "spec.setHostnameAsFQDN", "hostnameOverride"),
        ("spec.restartPolicy", "Forever", "spec.restartPolicy", '"Always", "OnFailure", "Never"'),
        ("spec.dnsPolicy", "None", "spec.dnsConfig.nameservers", "at least one"),
        ("spec.dnsConfig", {"nameservers": ["x"]}, "spec.dnsConfig.nameservers[0]", "valid IP"),
        ("spec.terminationGracePeriodSeconds", -1, "spec.terminationGracePeriodSeconds", "or equal to 0"),
        ("spec.activeDeadlineSeconds", 0, "spec.activeDeadlineSeconds", "between 1"),
        ("spec.hostAliases", [{"ip": "x"}], "spec.hostAliases[0].ip", "valid IP"),
        ("spec.hostname", "A", "spec.hostname", "Invalid"),
        ("spec.ephemeralContainers", [{"name": "e"}], "spec.ephemeralContainers", "Forbidden"),
        ("spec.securityContext", {"sysctls": [{"name": "a"}, {"name": "a"}]}, "spec.securityContext.sysctls[1].name", "Duplicate"),
    ],
)  # fmt: skip
def test_broken_rule_is_found_at_its_field(place: str, value: Any, field: str, problem: str) -> None:
    violations = broken(place, value)
    assert problem in violations.get(field, ""), violations


@pytest.mark.parametrize(
    ("spec", "field", "resource"),
    [
        ({"serviceAccountName": "a"}, "spec.serviceAccountName", "serviceaccounts"),
        ({"serviceAccount": "a"}, "spec.serviceAccountName", "serviceaccounts"),
        ({"imagePullSecrets": [{"name": "a"}]}, "spec.imagePullSecrets[0]", "secrets"),
        ({"volumes": [{"name": "v", "secret": {}}]}, "spec.volumes[0].secret", "secrets"),
        ({"volumes": [{"name": "v", "configMap": {}}]}, "spec.volumes[0].configMap", "configmaps (via configmap volumes)"),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {}}]}, "spec.volumes[0].persistentVolumeClaim", "persistentvolumeclaims"),
        ({"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {}}]}}]},
         "spec.volumes[0].projected.sources[0].serviceAccountToken", "serviceaccounts (via projected volumes)"),
        ({"containers": [{"envFrom": [{"configMapRef": {}}]}]}, "spec.containers[0].envFrom[0].configMapRef", "configmaps"),
        ({"containers": [{"env": [{"valueFrom": {"secretKeyRef": {}}}]}]},
         "spec.containers[0].env[0].valueFrom.secretKeyRef", "secrets"),
    ],
)  # fmt: skip
def test_static_pods_may_not_refer_to_api_objects(spec: dict[str, Any], field: str, resource: str) -> None:
    ((path, problem),) = api_references(default_pod(v1.from_dict(v1.Pod, {"spec": spec})))
    assert (field_text(path), problem) == (field, f"static pods may not reference {resource}")


def test_local_volumes_are_no_api_references() -> None:
    projected = {"projected": {"sources": [{"downwardAPI": {}}]}}
    spec = {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {}}, {"name": "c", **projected}]}
    assert api_references(v1.from_dict(v1.Pod, {"spec": spec})) == ()


@pytest.mark.parametrize("uid", ["..", "../../etc", "a/b", "/", ".", "-a", "a\nb", "a b", "ä", "a" * 256])
def test_uid_that_is_no_path_component_is_refused(uid: str) -> None:
    assert "names directories and cgroups" in broken("metadata.uid", uid)["metadata.uid"]


def test_uid_may_be_a_uuid_or_a_hash() -> None:
    for uid in ("0c6ab2d0-4b3a-4c5e-8f2b-9d1e7a3f5c11", "d41d8cd98f00b204e9800998ecf8427e", ""):
        assert broken("metadata.uid", uid) == {}
