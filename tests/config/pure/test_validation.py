"""The API's rules: each broken one is found at its field, and a good pod breaks none."""

# ruff: noqa: E501 - tables keep one case to a line

import copy
import time
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


@pytest.mark.parametrize("gate", [False, True])
def test_host_network_with_own_users_needs_its_gate(gate: bool) -> None:
    """UserNamespacesHostNetworkSupport. The other namespaces of the host are not for such a pod."""
    plain = copy.deepcopy(GOOD)
    plain["spec"] |= {"hostUsers": False, "hostNetwork": True, "hostPID": True, "hostIPC": True}
    pod = default_pod(v1.from_dict(v1.Pod, plain))
    found = [field_text(path) for path, _ in validate_pod(pod, users_on_host_network=gate)]
    assert found == [*([] if gate else ["spec.hostNetwork"]), "spec.hostPID", "spec.hostIPC"]


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
        ("spec", {**GOOD["spec"], "nodeName": "n", "schedulingGates": [{"name": "g"}]}, "spec.nodeName", "Forbidden: cannot be set until all schedulingGates"),
        ("spec.restartPolicy", "Forever", "spec.restartPolicy", '"Always", "OnFailure", "Never"'),
        ("spec.dnsPolicy", "None", "spec.dnsConfig.nameservers", "at least one"),
        ("spec.dnsConfig", {"nameservers": ["x"]}, "spec.dnsConfig.nameservers[0]", "valid IP"),
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


GPU, HUGE = "example.com/gpu", "hugepages-2Mi"
R = f"{CF}.resources"
NO_OVERCOMMITMENT = "Limit must be set for non overcommitable resources"


@pytest.mark.parametrize(
    ("resources", "field", "problem"),
    [
        ({"requests": {GPU: 1}}, f"{R}.limits[{GPU}]", NO_OVERCOMMITMENT),
        ({"requests": {GPU: 1}, "limits": {GPU: 2}}, f"{R}.requests[{GPU}]", f"must be equal to {GPU} limit of 2"),
        ({"limits": {GPU: "500m"}}, f"{R}.limits[{GPU}]", "must be an integer"),
        ({"limits": {"requests.example.com/gpu": 1}}, f"{R}.limits[requests.example.com/gpu]", "extended resource name"),
        ({"limits": {"a" * 245 + "/gpu": 1}}, f"{R}.limits[{'a' * 245}/gpu]", "extended resource name"),
        ({"requests": {HUGE: "4Mi", "cpu": 1}}, f"{R}.limits[{HUGE}]", NO_OVERCOMMITMENT),
        ({"limits": {HUGE: "3Mi", "cpu": 1}}, f"{R}.limits[{HUGE}]", f"3Mi is not positive integer multiple of {HUGE}"),
        ({"limits": {"hugepages-x": "2Mi", "cpu": 1}}, f"{R}.limits[hugepages-x]", "multiple of hugepages-x"),
        ({"limits": {HUGE: "4Mi"}}, R, "Forbidden: HugePages require cpu or memory"),
    ],
)  # fmt: skip
def test_devices_and_huge_pages_are_whole_and_limited(resources: dict[str, Any], field: str, problem: str) -> None:
    violations = broken(f"{C}.resources", resources)
    assert problem in violations.get(field, ""), violations


@pytest.mark.parametrize(
    "resources",
    [
        {"limits": {GPU: 1}},
        {"limits": {GPU: "1000m"}, "requests": {GPU: 1}},
        {"limits": {GPU: "0.9999"}},  # the API rounds amounts up to thousandths
        {"limits": {"deviceclass.resource.kubernetes.io/gpu": 1}},
        {"requests": {"kubernetes.io/batch-cpu": "1500m"}, "limits": {"kubernetes.io/batch-cpu": 2}},  # Kubernetes' own
        {"limits": {HUGE: "4Mi"}, "requests": {"memory": "1Mi"}},
        {"limits": {HUGE: 0, "cpu": 1}},
        {"limits": {"hugepages-1Gi": "2Gi", HUGE: "2048Ki", "memory": "1Gi"}},
    ],
)
def test_resources_of_a_container_that_are_valid(resources: dict[str, Any]) -> None:
    assert broken(f"{C}.resources", resources) == {}


def pod_resources(
    own: dict[str, Any], main: dict[str, Any], init: dict[str, Any] | None = None, sidecar: bool = False
) -> dict[str, str]:
    """The violations of a pod with two equal containers and an init container."""
    first = {"name": "i", "image": "x", "resources": init or {}} | ({"restartPolicy": "Always"} if sidecar else {})
    containers = [{"name": name, "image": "x", "resources": main} for name in "ab"]
    return broken("spec", {"resources": own, "initContainers": [first], "containers": containers})


@pytest.mark.parametrize(
    ("own", "main", "init", "sidecar", "field", "problem"),
    [
        ({"requests": {"cpu": 1}}, {"requests": {"cpu": "600m"}}, {}, False,
         "requests.cpu", "must be greater than or equal to aggregate container requests of 1200m"),
        ({"requests": {"cpu": 1}}, {}, {"requests": {"cpu": 2}}, False, "requests.cpu", "aggregate container requests of 2"),
        ({"requests": {"cpu": 1}}, {"requests": {"cpu": "400m"}}, {"requests": {"cpu": "400m"}}, True,
         "requests.cpu", "aggregate container requests of 1200m"),
        ({"limits": {"cpu": 1}}, {"requests": {"cpu": 1}}, {}, False, "requests.cpu", "must be less than or equal to cpu limit of 1"),
        ({"limits": {HUGE: "4Mi", "cpu": 1}}, {"limits": {HUGE: "4Mi", "cpu": "1m"}}, {}, False,
         f"limits[{HUGE}]", "aggregate container limits of 8388608"),
        ({"requests": {"ephemeral-storage": "1Gi"}}, {}, {}, False, "requests[ephemeral-storage]", 'supported values: "cpu", "hugepages-", "memory"'),
        ({"limits": {GPU: 1}}, {}, {}, False, f"limits[{GPU}]", "Unsupported value"),
        ({"limits": {HUGE: "4Mi"}}, {}, {}, False, "", "HugePages require cpu or memory"),
        ({"requests": {HUGE: "8Mi", "memory": "1Gi"}}, {"limits": {HUGE: "4Mi", "memory": "1Mi"}}, {}, False,
         f"limits[{HUGE}]", NO_OVERCOMMITMENT),
    ],
)  # fmt: skip
def test_resources_of_a_pod_that_are_refused(
    own: dict[str, Any], main: dict[str, Any], init: dict[str, Any], sidecar: bool, field: str, problem: str
) -> None:
    violations = pod_resources(own, main, init, sidecar)
    assert problem in violations.get(f"spec.resources.{field}".rstrip("."), ""), violations


def test_no_container_has_a_limit_above_the_pods() -> None:
    main = {"limits": {"cpu": 2}, "requests": {"cpu": "100m"}}
    assert pod_resources({"limits": {"cpu": 1}}, main) == {
        f"spec.containers[{index}].resources.limits.cpu": "Invalid value: 2: must be less than or equal to pod limits of 1"
        for index in range(2)
    }


@pytest.mark.parametrize(
    ("own", "main", "init", "sidecar"),
    [
        ({"requests": {"cpu": "1200m"}}, {"requests": {"cpu": "600m"}}, {"requests": {"cpu": 1}}, False),
        ({"limits": {"cpu": 1, "memory": "1Gi"}}, {"limits": {"cpu": 1}, "requests": {"cpu": "500m"}}, {}, False),
        ({"limits": {"cpu": 1}}, {}, {"limits": {"cpu": 2}, "requests": {"cpu": 1}}, True),  # as upstream: no init containers
        ({"limits": {"cpu": 1}}, {"limits": {GPU: 1, HUGE: "2Mi", "cpu": "100m"}}, {}, False),
        ({"requests": {"cpu": 1}}, {"requests": {"ephemeral-storage": "1Gi"}}, {}, False),
        ({"requests": {"memory": "1Gi"}}, {"limits": {HUGE: "4Mi", "memory": "1Mi"}}, {}, False),
        ({}, {"limits": {"cpu": 5}}, {}, False),
    ],
)  # fmt: skip
def test_resources_of_a_pod_that_are_valid(
    own: dict[str, Any], main: dict[str, Any], init: dict[str, Any], sidecar: bool
) -> None:
    assert pod_resources(own, main, init, sidecar) == {}


VOLUME = "spec.volumes[0]"
ONE_FILE = [{"key": "k", "path": "p"}]
ONE_FIELD = [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]


def env(**source: Any) -> list[dict[str, Any]]:
    return [{"name": "A", "valueFrom": source}]


@pytest.mark.parametrize(
    ("place", "value", "field", "problem"),
    [
        (f"{C}.env", env(configMapKeyRef={"key": "k"}), f"{CF}.env[0].valueFrom.configMapKeyRef.name", "Required"),
        (f"{C}.env", env(configMapKeyRef={"name": "A", "key": "k"}), f"{CF}.env[0].valueFrom.configMapKeyRef.name", "Invalid"),
        (f"{C}.env", env(secretKeyRef={"name": "x"}), f"{CF}.env[0].valueFrom.secretKeyRef.key", "Required"),
        (f"{C}.env", env(secretKeyRef={"name": "x", "key": "a/b"}), f"{CF}.env[0].valueFrom.secretKeyRef.key", "Invalid"),
        (f"{C}.env", env(secretKeyRef={"name": "x", "key": "..a"}), f"{CF}.env[0].valueFrom.secretKeyRef.key", "Invalid"),
        (f"{C}.env", env(fieldRef={"fieldPath": "metadata.labels['a b']"}), f"{CF}.env[0].valueFrom.fieldRef.fieldPath", "Invalid"),
        (f"{C}.env", env(fieldRef={"fieldPath": "metadata.name", "apiVersion": "v9"}), f"{CF}.env[0].valueFrom.fieldRef.apiVersion", "v1"),
        (f"{C}.env", env(resourceFieldRef={"resource": "limits.gpu"}), f"{CF}.env[0].valueFrom.resourceFieldRef.resource", "Unsupported"),
        (f"{C}.envFrom", [{"secretRef": {}}], f"{CF}.envFrom[0].secretRef.name", "Required"),
        (f"{C}.envFrom", [{"configMapRef": {}}], f"{CF}.envFrom[0].configMapRef.name", "Required"),
        ("spec.volumes.0.persistentVolumeClaim", {}, f"{VOLUME}.persistentVolumeClaim.claimName", "Required"),
        ("spec.volumes.0.projected", {"sources": [{"secret": {}}]}, f"{VOLUME}.projected.sources[0].secret.name", "Required"),
        ("spec.volumes.0.projected", {"sources": [{"configMap": {"name": "m", "items": [{"key": "k", "path": "../../x"}]}}]},
         f"{VOLUME}.projected.sources[0].configMap.items[0].path", "must not start with '..'"),
        ("spec.volumes.0.projected", {"sources": [{"configMap": {"name": "m", "items": [{"path": "x"}]}}]},
         f"{VOLUME}.projected.sources[0].configMap.items[0].key", "Required"),
        ("spec.volumes.0.projected", {"sources": [{"secret": {"name": "s", "items": ONE_FILE}}, {"downwardAPI": {"items": ONE_FIELD}}]},
         f"{VOLUME}.projected.sources[1].downwardAPI.items[0].path", "conflicting duplicate paths"),
        ("spec.volumes.0.projected", {"sources": [{}, {"secret": {"name": "s"}, "configMap": {"name": "m"}}]},
         f"{VOLUME}.projected.sources[1]", "may not specify more than 1 volume type"),
        ("spec.volumes.0.projected", {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 599}}]},
         f"{VOLUME}.projected.sources[0].serviceAccountToken.expirationSeconds", "between 600"),
        ("spec.volumes.0.downwardAPI", {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.annotations['']"}}]},
         f"{VOLUME}.downwardAPI.items[0].fieldRef.fieldPath", "Invalid"),
        ("spec.volumes.0.downwardAPI", {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.name['a']"}}]},
         f"{VOLUME}.downwardAPI.items[0].fieldRef.fieldPath", "does not support subscript"),
        ("spec.volumes.0.downwardAPI", {"items": [{"path": "x", "fieldRef": {"fieldPath": "spec.host"}}]},
         f"{VOLUME}.downwardAPI.items[0].fieldRef.fieldPath", "Unsupported"),
        ("spec.volumes.0.downwardAPI", {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.labels[']"}}]},
         f"{VOLUME}.downwardAPI.items[0].fieldRef.fieldPath", "Unsupported"),
        ("spec.volumes.0.downwardAPI", {"items": [{"path": "x", "resourceFieldRef": {"containerName": "c"}}]},
         f"{VOLUME}.downwardAPI.items[0].resourceFieldRef.resource", "Required"),
    ],
)  # fmt: skip
def test_incomplete_references_are_refused(place: str, value: Any, field: str, problem: str) -> None:
    violations = broken(place, value)
    assert problem in violations.get(field, ""), violations


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (f"{C}.env", env(configMapKeyRef={"name": "a.b", "key": "A_b-.c", "optional": True})),
        (f"{C}.env", env(fieldRef={"fieldPath": "metadata.labels['example.com/Name']"})),
        (f"{C}.env", env(fieldRef={"fieldPath": "spec.host"})),  # the former name of spec.nodeName
        (f"{C}.env", env(resourceFieldRef={"resource": "requests.hugepages-2Mi"})),
        (f"{C}.envFrom", [{"secretRef": {"name": "s-"}}]),
        ("spec.volumes.0.persistentVolumeClaim", {"claimName": "c"}),
        ("spec.volumes.0.projected", {"sources": [{"secret": {"name": "s"}}, {"secret": {"name": "s", "items": ONE_FILE}}]}),
        ("spec.volumes.0.projected", {"sources": [{"downwardAPI": {"items": ONE_FIELD}}, {"configMap": {"name": "m"}}]}),
        ("spec.volumes.0.projected", {"sources": [{}, {"secret": {"name": "s"}}]}),
        ("spec.volumes.0.secret", {"secretName": "s", "items": ONE_FILE * 2}),  # only projected volumes have the rule
        ("spec.volumes.0.downwardAPI", {"items": ONE_FIELD * 2}),
        ("spec.volumes.0.downwardAPI", {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.annotations['A.b/C']"}}]}),
    ],
)  # fmt: skip
def test_references_that_are_valid(place: str, value: Any) -> None:
    assert broken(place, value) == {}


def test_long_field_path_is_judged_at_once() -> None:
    path = "a" + "['" * 40_000
    started = time.monotonic()
    violations = broken(f"{C}.env", env(fieldRef={"fieldPath": path}))
    assert "Unsupported" in violations[f"{CF}.env[0].valueFrom.fieldRef.fieldPath"]
    assert time.monotonic() - started < 5


PORTS = [{"containerPort": 1, "hostPort": 9}, {"containerPort": 2, "hostPort": 9}]
RRO = {"name": "v", "mountPath": "/v", "recursiveReadOnly": "Enabled"}
APPARMOR = "container.apparmor.security.beta.kubernetes.io/c"


@pytest.mark.parametrize(
    ("place", "value", "field", "problem"),
    [
        ("spec.tolerations", [{"key": "a", "operator": "Foo"}], "spec.tolerations[0].operator", "Unsupported"),
        ("spec.tolerations", [{"value": "a"}], "spec.tolerations[0].operator", "operator must be Exists when `key` is empty"),
        ("spec.tolerations", [{"key": "a b", "operator": "Exists"}], "spec.tolerations[0].key", "Invalid"),
        ("spec.tolerations", [{"key": "a", "value": "b c"}], "spec.tolerations[0].value", "Invalid"),
        ("spec.tolerations", [{"operator": "Exists", "value": "a"}], "spec.tolerations[0].value", "must be empty"),
        ("spec.tolerations", [{"key": "a", "operator": "Gt", "value": "010"}], "spec.tolerations[0].value", "64-bit integer"),
        ("spec.tolerations", [{"operator": "Exists", "effect": "No"}], "spec.tolerations[0].effect", "PreferNoSchedule"),
        ("spec.tolerations", [{"operator": "Exists", "tolerationSeconds": 1}], "spec.tolerations[0].effect", "'NoExecute'"),
        ("spec.nodeSelector", {"a b": "c"}, "spec.nodeSelector", "Invalid"),
        ("spec.nodeSelector", {"a": "b c"}, "spec.nodeSelector.a", "Invalid"),
        ("spec.readinessGates", [{"conditionType": "a b"}], "spec.readinessGates[0].conditionType", "Invalid"),
        ("spec.dnsConfig", {"searches": ["foo bar"]}, "spec.dnsConfig.searches[0]", "Invalid"),
        ("spec.dnsConfig", {"searches": ["a..b"]}, "spec.dnsConfig.searches[0]", "Invalid"),
        ("spec.dnsConfig", {"searches": ["A"]}, "spec.dnsConfig.searches[0]", "Invalid"),
        ("spec.dnsConfig", {"searches": [f"{'a' * 200}.{n}" for n in range(11)]}, "spec.dnsConfig.searches", "2048 characters"),
        (f"{C}.resizePolicy", [{"resourceName": "cpu", "restartPolicy": "Foo"}], f"{CF}.resizePolicy[0].restartPolicy", "Unsupported"),
        (f"{C}.resizePolicy", [{"resourceName": "x", "restartPolicy": "NotRequired"}], f"{CF}.resizePolicy[0].resourceName", "Unsupported"),
        (f"{C}.resizePolicy", [{"resourceName": "cpu", "restartPolicy": "NotRequired"}] * 2, f"{CF}.resizePolicy[1].resourceName", "Duplicate"),
        ("spec.initContainers.0.resizePolicy", [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
         "spec.initContainers[0].resizePolicy[0].restartPolicy", "non-sidecar initContainers"),
        ("spec", {**GOOD["spec"], "restartPolicy": "Never", "containers": [
            {"name": "c", "image": "x", "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}]},
         f"{CF}.resizePolicy[0].restartPolicy", "must be 'NotRequired' when pod `restartPolicy` is 'Never'"),
        ("spec.initContainers.0.ports", PORTS, "spec.initContainers[0].ports[1].hostPort", "Duplicate"),
        ("spec", {**GOOD["spec"], "hostNetwork": True, "containers": [{"name": "c", "image": "x", "ports": PORTS[:1]}]},
         f"{CF}.ports[0].hostPort", "must match `containerPort`"),
        (f"{C}.volumeMounts", [RRO], f"{CF}.volumeMounts[0].recursiveReadOnly", "when readOnly is true"),
        (f"{C}.volumeMounts", [{**RRO, "recursiveReadOnly": "Foo"}], f"{CF}.volumeMounts[0].recursiveReadOnly", "IfPossible"),
        (f"{C}.volumeMounts", [{**RRO, "readOnly": True, "mountPropagation": "HostToContainer"}],
         f"{CF}.volumeMounts[0].recursiveReadOnly", "mountPropagation is None"),
        (f"{C}.livenessProbe", {"httpGet": {"port": 1, "httpHeaders": [{"name": "X(a)", "value": ""}]}},
         f"{CF}.livenessProbe.httpGet.httpHeaders[0]", "alphanumeric"),
    ],
)  # fmt: skip
def test_fields_that_the_cluster_checks_are_checked_here(place: str, value: Any, field: str, problem: str) -> None:
    violations = broken(place, value)
    assert problem in violations.get(field, ""), violations


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("spec.tolerations", [{"operator": "Exists"}, {"key": "a/b", "value": "c"}, {"key": "a", "operator": "Lt", "value": "-5"},
                              {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -1}]),
        ("spec.nodeSelector", {"kubernetes.io/os": "linux", "a": ""}),
        ("spec.readinessGates", [{"conditionType": "example.com/Ready"}]),
        ("spec.dnsConfig", {"searches": [".", "a.b.", "_tcp.a_b.c"]}),
        (f"{C}.resizePolicy", [{"resourceName": "cpu", "restartPolicy": "NotRequired"}, {"resourceName": "memory", "restartPolicy": "RestartContainer"}]),
        ("spec.initContainers", [{"name": name, "image": "x", "ports": PORTS[:1]} for name in "ij"]),
        ("spec", {**GOOD["spec"], "hostNetwork": True, "initContainers": [{"name": "i", "image": "x", "ports": PORTS[:1]}]}),
        ("spec", {**GOOD["spec"], "hostNetwork": True, "containers": [
            {"name": "c", "image": "x", "ports": [{"containerPort": 80, "hostIP": "localhost"}]}]}),
        ("spec.initContainers", [{"name": "i", "image": "x", "restartPolicy": "Always",
                                  "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}]),
        (f"{C}.volumeMounts", [{**RRO, "readOnly": True, "mountPropagation": "None"}]),
        (f"{C}.volumeMounts", [{**RRO, "recursiveReadOnly": "Disabled"}]),
    ],
)  # fmt: skip
def test_fields_of_the_cluster_that_are_valid(place: str, value: Any) -> None:
    assert broken(place, value) == {}


@pytest.mark.parametrize(
    ("profile", "annotation", "field"),
    [
        ({"type": "Unconfined"}, "unconfined", ""),
        ({"type": "RuntimeDefault"}, "runtime/default", ""),
        ({"type": "RuntimeDefault"}, "unconfined", "type"),
        ({"type": "Unconfined"}, "localhost/a", "type"),
        ({"type": "Localhost", "localhostProfile": "a"}, "localhost/a", ""),
        ({"type": "Localhost", "localhostProfile": "a"}, "localhost/b", "localhostProfile"),
        ({"type": "Localhost", "localhostProfile": "a"}, "runtime/default", "type"),
        (None, "unconfined", ""),
    ],
)
def test_apparmor_annotation_and_field_have_to_match(profile: Any, annotation: str, field: str) -> None:
    expected = [f"{CF}.securityContext.appArmorProfile.{field}"] if field else []
    for own, of_pod in ((profile, None), (None, profile), (profile, profile)):
        plain = copy.deepcopy(GOOD)
        plain["metadata"]["annotations"] = {APPARMOR: annotation}
        plain["spec"]["securityContext"] = {"appArmorProfile": of_pod}
        plain["spec"]["containers"][0]["securityContext"] = {"appArmorProfile": own}
        found = validate_pod(default_pod(v1.from_dict(v1.Pod, plain)))
        assert [field_text(path) for path, _ in found] == expected


def test_apparmor_profile_of_the_container_counts_before_the_pods() -> None:
    plain = copy.deepcopy(GOOD)
    plain["metadata"]["annotations"] = {APPARMOR: "runtime/default"}
    plain["spec"]["securityContext"] = {"appArmorProfile": {"type": "Unconfined"}}
    plain["spec"]["containers"][0]["securityContext"] = {"appArmorProfile": {"type": "RuntimeDefault"}}
    assert validate_pod(default_pod(v1.from_dict(v1.Pod, plain))) == ()


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
