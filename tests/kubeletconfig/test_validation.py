"""Every validation rule, with the field and the message of its violation."""

# ruff: noqa: E501 - tables keep one case to a line

from typing import Any

import pytest

from actors.config.sources.url_policy import NOT_SENT
from actors.resources.cpu import options
from supervisor.config.kubeletconfig import defaults, validation
from supervisor.config.kubeletconfig.cpuset import CpusetError, parse_cpuset
from supervisor.config.kubeletconfig.loading import parse
from supervisor.config.kubeletconfig.problems import ConfigurationError, Origin, Problem, located
from supervisor.config.kubeletconfig.typed import schema
from supervisor.config.kubeletconfig.typed.decode import decode
from supervisor.config.kubeletconfig.typed.types import API_VERSION, KIND, KubeletConfiguration
from supervisor.config.kubeletconfig.validation import logs
from supervisor.config.kubeletconfig.validation.allocatable import check_runtime_cgroups
from supervisor.config.kubeletconfig.validation.eviction import hard, in_file
from supervisor.config.kubeletconfig.validation.network import usable_servers
from supervisor.config.kubeletconfig.validation.node import check_labels
from tests.kubeletconfig.samples import EVERY, HEAD, KUBEADM

QUOTA = 100_000_000
# With the gates that need it.
NO_SHUTDOWN = {
    "GracefulNodeShutdown": False,
    "GracefulNodeShutdownBasedOnPodPriority": False,
    "WindowsGracefulNodeShutdown": False,
}


def of(fields: dict[str, Any]) -> KubeletConfiguration:
    config, problems = decode({"apiVersion": API_VERSION, "kind": KIND, **fields})
    assert not problems, problems
    return defaults.apply(config)


def errors(**fields: Any) -> list[str]:
    return [str(problem) for problem in validation.validate(of(fields))]


@pytest.mark.parametrize("text", [HEAD, KUBEADM, EVERY], ids=["defaults", "kubeadm", "every field"])
def test_good_configurations_break_no_rule(text: str) -> None:
    loaded = parse("f", text.encode())
    assert loaded.errors == ()
    assert validation.validate(defaults.apply(loaded.config)) == []


# Field, values at the ends of what is accepted, values beyond them, and the bounds as the message has them.
RANGES: list[tuple[str, tuple[Any, ...], tuple[Any, ...], str]] = [
    ("nodeLeaseDurationSeconds", (1, 2**31 - 1), (-1,), "1 or greater"),
    ("eventBurst", (1,), (-1,), "0 or greater"),
    ("eventRecordQPS", (0,), (-1,), "0 or greater"),
    ("healthzPort", (0, 65535), (-1, 65536), "between 0 and 65535, inclusive"),
    ("imageGCHighThresholdPercent", (81, 100), (-1, 101), "between 0 and 100, inclusive"),
    ("imageGCLowThresholdPercent", (0, 84), (-1, 101), "between 0 and 100, inclusive"),
    ("iptablesDropBit", (0, 31), (-1, 32), "between 0 and 31, inclusive"),
    ("iptablesMasqueradeBit", (0, 31), (-1, 32), "between 0 and 31, inclusive"),
    ("kubeAPIBurst", (1,), (-1,), "0 or greater"),
    ("kubeAPIQPS", (0,), (-1,), "0 or greater"),
    ("nodeStatusMaxImages", (-1, 0), (-2,), "-1 or greater"),
    ("maxOpenFiles", (1,), (-1,), "0 or greater"),
    ("maxPods", (1,), (-1,), "0 or greater"),
    ("oomScoreAdj", (-1000, 1000), (-1001, 1001), "between -1000 and 1000, inclusive"),
    ("podsPerCore", (0,), (-1,), "0 or greater"),
    ("port", (1, 65535), (-1, 65536), "between 1 and 65535, inclusive"),
    ("readOnlyPort", (0, 65535), (-1, 65536), "between 0 and 65535, inclusive"),
    ("registryBurst", (1,), (-1,), "0 or greater"),
    ("registryPullQPS", (0,), (-1,), "0 or greater"),
    ("maxParallelImagePulls", (1, 2), (0, -1), "1 or greater"),
    ("containerLogMaxWorkers", (1,), (0,), "1 or greater"),
    ("containerLogMaxFiles", (2,), (1, 0), "2 or greater"),
    ("memoryThrottlingFactor", (0.01, 1), (0.0, 1.01, -0.5), "greater than 0 and at most 1"),
    ("cpuCFSQuotaPeriod", ("1ms", "1s"), ("999\u00b5s", "1.001s", "-1s"), "between 1ms and 1s"),
    ("containerLogMonitorInterval", ("3s",), ("2.999s", "-1s"), "at least 3s"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "good", "bad", "bounds"), RANGES, ids=[row[0] for row in RANGES])
def test_numbers_out_of_range_are_refused(field: str, good: tuple[Any, ...], bad: tuple[Any, ...], bounds: str) -> None:
    for value in good:
        assert errors(**{field: value}) == []
    for value in bad:
        assert f"{field}: must be {bounds}, not {value}" in errors(**{field: value})


DURATIONS = sorted(
    path
    for path, leaf in schema.leaves().items()
    if leaf.field.kind.name in ("duration", "time-or-duration")
    and path not in ("cpuCFSQuotaPeriod", "containerLogMonitorInterval", "volumeStatsAggPeriod")
)


@pytest.mark.parametrize("path", DURATIONS)
def test_durations_are_not_negative(path: str) -> None:
    config = schema.replace(defaults.default(), path, -1_500_000_000)
    assert f"{path}: must not be negative: -1.5s" in map(str, validation.validate(config))


CHOICES: list[tuple[dict[str, Any], str]] = [
    ({"authorization": {"mode": "AlwaysDeny"}}, "authorization.mode: must be one of AlwaysAllow, Webhook, not 'AlwaysDeny'"),
    ({"cgroupDriver": "systemD"}, "cgroupDriver: must be one of cgroupfs, systemd, not 'systemD', did you mean systemd?"),
    ({"cpuManagerPolicy": "None"}, "cpuManagerPolicy: must be one of none, static, not 'None', did you mean none?"),
    ({"memoryManagerPolicy": "static"}, "memoryManagerPolicy: must be one of None, Static, not 'static', did you mean Static?"),
    ({"topologyManagerPolicy": "strict"}, "topologyManagerPolicy: must be one of none, best-effort, restricted, single-numa-node, not 'strict'"),
    ({"topologyManagerScope": "node"}, "topologyManagerScope: must be one of container, pod, not 'node'"),
    ({"hairpinMode": "veth"}, "hairpinMode: must be one of none, hairpin-veth, promiscuous-bridge, not 'veth'"),
    ({"configMapAndSecretChangeDetectionStrategy": "Poll"}, "configMapAndSecretChangeDetectionStrategy: must be one of Get, Cache, Watch, not 'Poll'"),
    ({"memorySwap": {"swapBehavior": "UnlimitedSwap"}}, 'memorySwap.swapBehavior: must be one of "", NoSwap, LimitedSwap, not \'UnlimitedSwap\''),
    ({"memoryReservationPolicy": "Hard"}, "memoryReservationPolicy: must be one of None, TieredReservation, not 'Hard'"),
    ({"tlsMinVersion": "1.2"}, 'tlsMinVersion: must be one of "", VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13, not \'1.2\''),
    ({"logging": {"format": "xml"}}, "logging.format: must be one of text, json, not 'xml'"),
    ({"imagePullCredentialsVerificationPolicy": "Never"}, "imagePullCredentialsVerificationPolicy: must be one of NeverVerify, "),
]  # fmt: skip
RESERVED_CGROUPS = {"systemReservedCgroup": "/a", "kubeReservedCgroup": "/b"}
STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
RULES: list[tuple[dict[str, Any], str]] = [
    # images
    ({"imageGCLowThresholdPercent": 85}, "imageGCLowThresholdPercent: must be less than imageGCHighThresholdPercent (85), not 85"),
    ({"imageGCLowThresholdPercent": 90}, "imageGCLowThresholdPercent: must be less than imageGCHighThresholdPercent (85), not 90"),
    ({"imageMaximumGCAge": "2m"}, "imageMaximumGCAge: must be greater than imageMinimumGCAge (2m0s), not 2m0s"),
    ({"serializeImagePulls": True, "maxParallelImagePulls": 2}, "maxParallelImagePulls: must not be larger than 1 unless serializeImagePulls is false, not 2"),
    ({"preloadedImagesVerificationAllowlist": ["a.example/b"]}, "preloadedImagesVerificationAllowlist: needs imagePullCredentialsVerificationPolicy NeverVerifyAllowlistedImages, not NeverVerifyPreloadedImages"),
    *(
        ({"imagePullCredentialsVerificationPolicy": "NeverVerifyAllowlistedImages", "preloadedImagesVerificationAllowlist": [bad]}, f"preloadedImagesVerificationAllowlist[0]: {bad!r} {reason}")
        for bad, reason in (
            (" a.example/b", "must not begin or end with spaces"),
            ("a.example/b*", "is not a pattern: the only wildcard is /* at the end"),
            ("a.example/*/b", "is not a pattern"),
            ("/*", "must name at least a registry before /*"),
            ("a.example/b:latest", "must be an image's full name"),
            ("a.example/b@sha256:00", "must be an image's full name"),
            ("a.example/B", "must be an image's full name"),
            ("", "must be an image's full name"),
            ("busybox", "must begin with the registry"),
            ("docker.io/busybox", "must be the full name docker.io/library/busybox"),
        )
    ),
    # feature gates
    ({"featureGates": {"CSIVolumeHealth": True}}, "featureGates.CSIVolumeHealth: cannot set feature gate CSIVolumeHealth to true, it is not built here"),
    ({"logging": {"options": {"json": {"splitStream": True}}}}, "logging.options.json.splitStream: requires feature gate LoggingAlphaOptions, which is not built here; remove the field"),
    ({"featureGates": {"NoSuchGate": True}}, "featureGates.NoSuchGate: unrecognized feature gate: NoSuchGate"),
    ({"featureGates": {"NodeSwap": False}}, "featureGates.NodeSwap: cannot set feature gate NodeSwap to false, feature is locked to true; remove it"),
    ({"featureGates": {"CustomCPUCFSQuotaPeriod": False}, "cpuCFSQuotaPeriod": "50ms"}, "cpuCFSQuotaPeriod: requires feature gate CustomCPUCFSQuotaPeriod; enable it in featureGates, or remove the field"),
    ({"featureGates": {"RotateKubeletServerCertificate": False}, "serverTLSBootstrap": True}, "serverTLSBootstrap: requires feature gate RotateKubeletServerCertificate"),
    ({"featureGates": NO_SHUTDOWN, "shutdownGracePeriod": "1s"}, "shutdownGracePeriod: requires feature gate GracefulNodeShutdown"),
    ({"featureGates": NO_SHUTDOWN, "shutdownGracePeriodCriticalPods": "1s"}, "shutdownGracePeriodCriticalPods: requires feature gate GracefulNodeShutdown"),
    ({"featureGates": {"GracefulNodeShutdownBasedOnPodPriority": False}, "shutdownGracePeriodByPodPriority": [{"priority": 1}]}, "shutdownGracePeriodByPodPriority: requires feature gate GracefulNodeShutdownBasedOnPodPriority"),
    ({"featureGates": {"KubeletCrashLoopBackOffMax": False}, "crashLoopBackOff": {"maxContainerRestartPeriod": "9s"}}, "crashLoopBackOff.maxContainerRestartPeriod: requires feature gate KubeletCrashLoopBackOffMax"),
    ({"featureGates": {"KubeletEnsureSecretPulledImages": False}, "imagePullCredentialsVerificationPolicy": "AlwaysVerify"}, "imagePullCredentialsVerificationPolicy: requires feature gate KubeletEnsureSecretPulledImages"),
    ({"featureGates": {"KubeletEnsureSecretPulledImages": False}, "preloadedImagesVerificationAllowlist": ["a.b/c"]}, "preloadedImagesVerificationAllowlist: requires feature gate KubeletEnsureSecretPulledImages"),
    ({"memoryReservationPolicy": "TieredReservation"}, "memoryReservationPolicy: requires feature gate MemoryQoS"),
    ({"qosReserved": {"memory": "50%"}}, "qosReserved: requires feature gate QOSReserved"),
    ({"logging": {"options": {"json": {"splitStream": True}}}}, "logging.options.json.splitStream: requires feature gate LoggingAlphaOptions"),
    ({"logging": {"options": {"text": {"infoBufferSize": "1Mi"}}}}, "logging.options.text.infoBufferSize: requires feature gate LoggingAlphaOptions"),
    ({"runOnce": True}, "runOnce: the kubelet's run-once mode was removed in 1.31; leave it out and start with the flag --run-once"),
    ({"enableSystemLogQuery": True, "enableSystemLogHandler": False}, "enableSystemLogQuery: requires enableSystemLogHandler to be true"),
    # back-off and shutdown
    ({"crashLoopBackOff": {"maxContainerRestartPeriod": "301s"}}, "crashLoopBackOff.maxContainerRestartPeriod: must be between 1s and 300s, not 5m1s"),
    ({"crashLoopBackOff": {"maxContainerRestartPeriod": "999ms"}}, "crashLoopBackOff.maxContainerRestartPeriod: must be between 1s and 300s, not 999ms"),
    ({"shutdownGracePeriod": "500ms"}, "shutdownGracePeriod: must be either zero or at least 1s, not 500ms"),
    ({"shutdownGracePeriod": "1s", "shutdownGracePeriodCriticalPods": "1ms"}, "shutdownGracePeriodCriticalPods: must be either zero or at least 1s, not 1ms"),
    ({"shutdownGracePeriod": "1s", "shutdownGracePeriodCriticalPods": "2s"}, "shutdownGracePeriodCriticalPods: must be at most shutdownGracePeriod (1s), not 2s"),
    ({"shutdownGracePeriod": "1s", "shutdownGracePeriodByPodPriority": [{"priority": 1}]}, "shutdownGracePeriodByPodPriority: cannot be set together with shutdownGracePeriod or shutdownGracePeriodCriticalPods; keep one"),
    ({"shutdownGracePeriodByPodPriority": [{"shutdownGracePeriodSeconds": -1}]}, "shutdownGracePeriodByPodPriority[0].shutdownGracePeriodSeconds: must be 0 or greater, not -1"),
    # eviction
    ({"evictionHard": {"memory.avaliable": "1Gi"}}, "evictionHard[memory.avaliable]: unsupported eviction signal memory.avaliable, did you mean memory.available?"),
    ({"evictionHard": {"x": "1Gi"}}, "evictionHard.x: unsupported eviction signal x; there are memory.available, nodefs.available, "),
    ({"evictionHard": {"memory.available": "1GB"}}, "evictionHard[memory.available]: must be a quantity such as 100Mi or a percentage such as 10%, not '1GB'"),
    ({"evictionHard": {"memory.available": "-1Gi"}}, "evictionHard[memory.available]: must be positive, not '-1Gi'"),
    ({"evictionHard": {"memory.available": "0"}}, "evictionHard[memory.available]: must be positive, not '0'"),
    ({"evictionHard": {"memory.available": "101%"}}, "evictionHard[memory.available]: must be a percentage between 0% and 100%, not '101%'"),
    ({"evictionHard": {"memory.available": "-1%"}}, "evictionHard[memory.available]: must be a percentage between 0% and 100%, not '-1%'"),
    ({"evictionHard": {"memory.available": "ten%"}}, "evictionHard[memory.available]: must be a percentage such as 10%, not 'ten%'"),
    ({"evictionHard": {"memory.available": "nan%"}}, "evictionHard[memory.available]: must be a percentage such as 10%, not 'nan%'"),
    ({"evictionSoft": {"memory.available": "1Gi"}}, "evictionSoft[memory.available]: needs a grace period; add memory.available to evictionSoftGracePeriod"),
    ({"evictionSoft": {"memory.available": "1Gi"}, "evictionSoftGracePeriod": {"memory.available": "-1s"}}, "evictionSoftGracePeriod[memory.available]: must not be negative: -1s"),
    ({"evictionSoft": {"memory.available": "1Gi"}, "evictionSoftGracePeriod": {"memory.available": "soon"}}, "evictionSoftGracePeriod[memory.available]: 'soon' is not a duration"),
    ({"evictionSoftGracePeriod": {"memory": "1s"}}, "evictionSoftGracePeriod.memory: unsupported eviction signal memory"),
    ({"evictionMinimumReclaim": {"nodefs.available": "-1Gi"}}, "evictionMinimumReclaim[nodefs.available]: must be 0 or more, not '-1Gi'"),
    ({"evictionMinimumReclaim": {"nodefs.available": "0%"}}, "evictionMinimumReclaim[nodefs.available]: must be a percentage above 0% and at most 100%, not '0%'"),
    # node allocatable
    ({"systemCgroups": "/system"}, "systemCgroups: was specified and cgroupRoot was not; set cgroupRoot, for example to /"),
    ({"systemCgroups": "/", "cgroupRoot": "/"}, "systemCgroups: must be a cgroup below the root, such as /system.slice, without // . and .., not '/'"),
    ({"systemCgroups": "/.", "cgroupRoot": "/"}, "systemCgroups: must be a cgroup below the root"),
    ({"systemCgroups": "/a\0b", "cgroupRoot": "/"}, "systemCgroups: must be a cgroup below the root"),
    ({"enforceNodeAllocatable": ["pods", "pods"]}, "enforceNodeAllocatable[1]: pods is there twice; remove one"),
    ({"enforceNodeAllocatable": ["pod"]}, "enforceNodeAllocatable[0]: must be one of none, pods, system-reserved, system-reserved-compressible, kube-reserved, kube-reserved-compressible, not 'pod'"),
    ({"enforceNodeAllocatable": ["none", "pods"]}, "enforceNodeAllocatable[0]: none may not have other enforcements beside it"),
    ({"enforceNodeAllocatable": ["system-reserved"]}, "enforceNodeAllocatable[0]: system-reserved needs systemReservedCgroup"),
    ({"enforceNodeAllocatable": ["kube-reserved-compressible"]}, "enforceNodeAllocatable[0]: kube-reserved-compressible needs kubeReservedCgroup"),
    ({"enforceNodeAllocatable": ["kube-reserved", "kube-reserved-compressible"], **RESERVED_CGROUPS}, "enforceNodeAllocatable: kube-reserved and kube-reserved-compressible cannot be specified together; keep one"),
    ({"cgroupsPerQOS": False}, "enforceNodeAllocatable[0]: pods needs cgroupsPerQOS: true; without it write enforceNodeAllocatable: [none]"),
    ({"reservedSystemCPUs": "0-"}, "reservedSystemCPUs: must be a list of CPUs such as 0-3,8, not '0-'"),
    ({"reservedSystemCPUs": "3-1"}, "reservedSystemCPUs: the range 3-1 ends before it begins"),
    ({"reservedSystemCPUs": "0-9999999"}, "reservedSystemCPUs: there is no CPU 9999999"),
    ({"reservedSystemCPUs": "0", "kubeReservedCgroup": "/a"}, "reservedSystemCPUs: cannot be used together with systemReservedCgroup or kubeReservedCgroup"),
    ({"systemReserved": {"gpu": "1"}}, "systemReserved.gpu: cannot reserve gpu; there are cpu, memory, ephemeral-storage, pid"),
    ({"systemReserved": {"memory": "1GB"}}, "systemReserved.memory: '1GB' is not a quantity"),
    ({"kubeReserved": {"cpu": "-100m"}}, "kubeReserved.cpu: must not be negative: -100m"),
    ({"qosReserved": {"cpu": "50%"}, "featureGates": {"QOSReserved": True}}, "qosReserved.cpu: only memory can be reserved by QoS class"),
    ({"qosReserved": {"memory": "101%"}, "featureGates": {"QOSReserved": True}}, "qosReserved.memory: must be a whole percentage from 0% to 100%, not '101%'"),
    ({"qosReserved": {"memory": "50"}, "featureGates": {"QOSReserved": True}}, "qosReserved.memory: must be a whole percentage from 0% to 100%, not '50'"),
    # managers
    ({"reservedMemory": [{"limits": {"cpu": "1"}}]}, "reservedMemory[0].limits.cpu: cpu is not supported; there are memory and hugepages-<size>"),
    ({"reservedMemory": [{"limits": {"hugepages-": "1"}}]}, "reservedMemory[0].limits[hugepages-]: hugepages- is not supported"),
    ({"reservedMemory": [{"limits": {"memory": "0"}}]}, "reservedMemory[0].limits.memory: must be greater than zero, not 0"),
    ({"reservedMemory": [{"limits": {"memory": "1Gi"}}] * 2}, "reservedMemory[1].limits.memory: memory of NUMA node 0 is there twice; remove one"),
    ({"reservedMemory": [{"numaNode": -1, "limits": {}}]}, "reservedMemory[0].numaNode: must be 0 or greater, not -1"),
    ({"memoryManagerPolicy": "Static"}, "memoryManagerPolicy: Static needs reservedMemory for at least one NUMA node"),
    ({"cpuManagerPolicy": "static"}, "cpuManagerPolicy: static needs a CPU reservation above zero; set reservedSystemCPUs, or cpu in systemReserved"),
    ({"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}, "cpuManagerPolicyOptions: the policy none takes no options; set cpuManagerPolicy: static"),
    ({**STATIC, "cpuManagerPolicyOptions": {"full": "true"}}, "cpuManagerPolicyOptions.full: unknown option full; there are full-pcpus-only, "),
    ({**STATIC, "cpuManagerPolicyOptions": {"full-pcpus-only": "yes"}}, "cpuManagerPolicyOptions[full-pcpus-only]: must be \"true\" or \"false\", not 'yes'"),
    ({**STATIC, "cpuManagerPolicyOptions": {"align-by-socket": "true"}}, "cpuManagerPolicyOptions[align-by-socket]: requires feature gate CPUManagerPolicyAlphaOptions"),
    ({"topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "7"}}, "topologyManagerPolicyOptions[max-allowable-numa-nodes]: must be a whole number of at least 8, in quotes, not '7'"),
    ({"containerLogMaxSize": "10 MB"}, "containerLogMaxSize: '10 MB' is not a quantity"),
    ({"containerLogMaxSize": "0"}, "containerLogMaxSize: must not be zero: '0'; -1 switches the rotation off"),
    ({"containerLogMaxSize": "-1m"}, "containerLogMaxSize: must not be zero: '-1m'"),
    # network
    ({"address": "localhost"}, "address: must be an IP address such as 10.96.0.10 or fd00::10, not 'localhost'"),
    ({"healthzBindAddress": "127.0.0.1:10248"}, "healthzBindAddress: must be an IP address"),
    ({"healthzBindAddress": "example.org"}, "healthzBindAddress: must be an IP address"),
    ({"clusterDomain": "cluster.local\nnameserver 192.0.2.1"}, "clusterDomain: must have visible ASCII characters only, not 'cluster.local\\nname"),
    ({"clusterDomain": "cluster local"}, "clusterDomain: must have visible ASCII characters only"),
    ({"clusterDomain": "clust\u00e9r.local"}, "clusterDomain: must have visible ASCII characters only"),
    ({"podCIDR": "10.244.0.0/24\0"}, "podCIDR: must have printable ASCII characters only, not '10.244.0.0/24\\x00'"),
    ({"containerRuntimeEndpoint": "tcp://127.0.0.1:1"}, "containerRuntimeEndpoint: must be a socket such as unix:///run/containerd/containerd.sock, not 'tcp://127.0.0.1:1'"),
    ({"containerRuntimeEndpoint": "unix:run/crio.sock"}, "containerRuntimeEndpoint: must be a socket"),
    ({"imageServiceEndpoint": "images.sock"}, "imageServiceEndpoint: must be a socket"),
    ({"staticPodURL": "file:///etc/pods"}, "staticPodURL: must be a URL that begins with http:// or https:// and names a host"),
    ({"staticPodURL": "http://[::1/"}, "staticPodURL: must be a URL"),
    ({"staticPodURLHeader": {"bad header": ["a"]}}, "staticPodURLHeader: 'bad header' is not the name of an HTTP header"),
    ({"staticPodURLHeader": {"A": ["a\r\nB: c"]}}, "staticPodURLHeader: a value of 'A' has a line break in it"),
    # server
    ({"tlsCipherSuites": ["TLS_AES_128_GCM_SHA265"]}, "tlsCipherSuites[0]: cipher suite TLS_AES_128_GCM_SHA265 is not supported, did you mean TLS_AES_128_GCM_SHA256?"),
    ({"tlsCurvePreferences": [1]}, "tlsCurvePreferences[0]: must be one of 23 (CurveP256), "),
    ({"tlsCertFile": "/a"}, "tlsCertFile: needs tlsPrivateKeyFile beside it"),
    ({"tlsPrivateKeyFile": "/a"}, "tlsPrivateKeyFile: needs tlsCertFile beside it"),
    ({"userNamespaces": {"idsPerPod": 65537}}, "userNamespaces.idsPerPod: must be a multiple of 65536, at least 65536 and less than 4294967296, not 65537"),
    ({"userNamespaces": {"idsPerPod": 0}}, "userNamespaces.idsPerPod: must be a multiple of 65536"),
    ({"userNamespaces": {"idsPerPod": 2**32}}, "userNamespaces.idsPerPod: must be a multiple of 65536"),
    # node
    ({"registerWithTaints": [{"key": "a b", "effect": "NoSchedule"}]}, "registerWithTaints[0].key: 'a b' must be a name of letters, digits, -, _ and ., at most 63"),
    ({"registerWithTaints": [{"key": "UPPER/a", "effect": "NoSchedule"}]}, "registerWithTaints[0].key: 'UPPER/a' must have a DNS domain in lower case"),
    ({"registerWithTaints": [{"key": "a", "value": "-", "effect": "NoSchedule"}]}, "registerWithTaints[0].value: '-' must be empty or letters"),
    ({"registerWithTaints": [{"key": "a", "effect": "Never"}]}, "registerWithTaints[0].effect: must be one of NoSchedule, PreferNoSchedule, NoExecute, not 'Never'"),
    ({"registerWithTaints": [{"key": "a", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]}, "registerWithTaints[0].timeAdded: must not be set"),
    ({"registerWithTaints": [{"key": "a", "effect": "NoSchedule"}] * 2}, "registerWithTaints[1]: a:NoSchedule is there twice; remove one"),
    ({"allowedUnsafeSysctls": ["kernel.sem", "vm.swappiness"]}, "allowedUnsafeSysctls[1]: vm.swappiness is not namespaced; pods can only set kernel.sem, kernel.shm*, kernel.msg*, fs.mqueue.*, net.*"),
    ({"allowedUnsafeSysctls": ["kernel.*.x"]}, "allowedUnsafeSysctls[0]: must be a sysctl such as kernel.sem, or a pattern that ends in *, not 'kernel.*.x'"),
    # logs, metrics, traces
    ({"logging": {"verbosity": 2**31}}, "logging.verbosity: must be between 0 and 2147483647, inclusive, not 2147483648"),
    ({"logging": {"format": "json", "vmodule": [{"filePattern": "a", "verbosity": 1}]}}, "logging.vmodule: is only supported for the log format text"),
    ({"logging": {"vmodule": [{"verbosity": 1}]}}, "logging.vmodule[0].filePattern: must not be empty"),
    ({"logging": {"vmodule": [{"filePattern": "a=b", "verbosity": 1}]}}, "logging.vmodule[0].filePattern: must not contain an equal sign or a comma: 'a=b'"),
    ({"logging": {"vmodule": [{"filePattern": "a", "verbosity": 2**31}]}}, "logging.vmodule[0].verbosity: must be between 0 and 2147483647"),
    ({"podLogsDir": "var/log"}, "podLogsDir: must be an absolute path, not 'var/log'"),
    ({"podLogsDir": "/var/log/"}, "podLogsDir: must be normalized"),
    ({"podLogsDir": "/var/../log"}, "podLogsDir: must be normalized"),
    ({"podLogsDir": "/var/l\u00f6g"}, "podLogsDir: must contain ASCII characters only, not '/var/l\u00f6g'"),
    ({"showHiddenMetricsForVersion": "1.34"}, "showHiddenMetricsForVersion: must be empty or 1.35, the previous minor version, not '1.34'"),
    ({"tracing": {"endpoint": "http://localhost:4317"}}, "tracing.endpoint: must be HOST:PORT or begin with dns:, unix: or unix-abstract:, not 'http://localhost:4317'"),
    ({"tracing": {"samplingRatePerMillion": 1_000_001}}, "tracing.samplingRatePerMillion: must be between 0 and 1000000, inclusive, not 1000001"),
    ({"tracing": {"samplingRatePerMillion": -1}}, "tracing.samplingRatePerMillion: must be between 0 and 1000000, inclusive, not -1"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "expected"), CHOICES + RULES)
def test_broken_rules_are_reported(fields: dict[str, Any], expected: str) -> None:
    found = errors(**fields)
    assert any(error.startswith(expected) for error in found), found


@pytest.mark.parametrize(("fields", "expected"), RULES)
def test_one_fault_is_reported_once(fields: dict[str, Any], expected: str) -> None:
    assert len(errors(**fields)) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"imageMaximumGCAge": "2m0.000000001s"},
        {"serializeImagePulls": False, "maxParallelImagePulls": 5},
        {"volumeStatsAggPeriod": "-1s"},
        {"enforceNodeAllocatable": ["none"], "cgroupsPerQOS": False},
        {"enforceNodeAllocatable": []},
        {"evictionHard": {"memory.available": "0%", "nodefs.available": "100%", "imagefs.inodesFree": "5.5%"}},
        {"containerLogMaxSize": "-1"},
        {"evictionHard": {"containerfs.available": "5%"}},
        {"evictionSoft": {"memory.available": "100%"}},
        {"evictionMinimumReclaim": {"memory.available": "0"}},
        {"shutdownGracePeriodByPodPriority": [{"priority": 1, "shutdownGracePeriodSeconds": 5}]},
        {"featureGates": {"NodeSwap": True}},
        {"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "100m"}},
        {"podCIDR": "10.244.1.5/24"},
        {"clusterDomain": "cluster.local."},
        {"clusterDNS": ["dns.example"], "clusterDomain": "cluster_local", "podCIDR": "none"},
        {"containerRuntimeEndpoint": "/run/crio.sock"},
        {"containerRuntimeEndpoint": "unix:/run/crio.sock", "imageServiceEndpoint": "unix:/run/images.sock"},
        {"staticPodURL": "http://[::1]:8080/pods"},
        {"tracing": {"endpoint": "unix:///run/otel.sock"}},
        {"tlsCipherSuites": ["TLS_RSA_WITH_RC4_128_SHA"]},
        {"allowedUnsafeSysctls": ["kernel.msg*", "net.*", "net/ipv4/tcp_syncookies"]},
        {"allowedUnsafeSysctls": ["kernel/msg*", "kernel/sem", "kernel.sem*"]},
        {"logging": {"format": "json"}},
        {"reservedMemory": [{"numaNode": n, "limits": {"memory": "1Gi", "hugepages-1Gi": "1Gi"}} for n in range(2)]},
    ],
)  # fmt: skip
def test_valid_values_are_accepted(fields: dict[str, Any]) -> None:
    assert errors(**fields) == []


@pytest.mark.parametrize(("option", "stage"), options._STAGES.items())
def test_cpu_option_needs_the_gate_that_the_manager_asks(option: str, stage: str) -> None:
    gates = {"CPUManagerPolicyAlphaOptions": False, "CPUManagerPolicyBetaOptions": False}
    found = errors(**STATIC, cpuManagerPolicyOptions={option: "true"}, featureGates=gates)
    needed = f"cpuManagerPolicyOptions[{option}]: requires feature gate CPUManagerPolicy{stage}Options"
    assert [one.startswith(needed) for one in found] == ([True] if stage else [])


def test_tracing_is_refused_without_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    assert errors(tracing={}) == []
    monkeypatch.setattr(logs, "find_spec", lambda _: None)
    assert errors(tracing={}) == [
        "tracing: needs OpenTelemetry's exporter; install it: pip install 'nodevisor[tracing]'"
    ]
    assert errors() == []


def test_a_back_off_cap_is_needed_while_its_gate_is_on() -> None:
    config = schema.replace(defaults.default(), "crashLoopBackOff.maxContainerRestartPeriod", None)
    (error,) = validation.validate(config)
    assert "must be set while feature gate KubeletCrashLoopBackOffMax is on" in str(error)


def test_empty_fields_without_a_default_are_refused() -> None:
    config = schema.replace(schema.replace(defaults.default(), "containerRuntimeEndpoint", ""), "podLogsDir", "")
    assert [problem.field for problem in validation.validate(config)] == ["containerRuntimeEndpoint", "podLogsDir"]


def test_all_violations_are_reported_together_with_their_lines() -> None:
    text = (
        HEAD
        + "port: 0\nmaxPods: -1\nimageGCHighThresholdPercent: 10\nimageGCLowThresholdPercent: 20\nevictionHard:\n  nope: 1Gi\n  memory.available: x\n"
    )
    loaded = parse("k.yaml", text.encode())
    problems = located(validation.validate(defaults.apply(loaded.config)), loaded.sources)
    assert sorted((problem.line, problem.field) for problem in problems) == [
        (4, "maxPods"),
        (6, "imageGCLowThresholdPercent"),
        (8, "evictionHard.nope"),
        (9, "evictionHard[memory.available]"),
    ]
    assert str(ConfigurationError(problems)).startswith(
        "cannot use the kubelet configuration:\n  k.yaml:4: maxPods: must"
    )


def test_place_is_that_of_the_nearest_written_field() -> None:
    sources = {"a.b": Origin("--a-b"), "a": Origin("f", 3)}
    problems = [Problem("a.b[0].c", "x"), Problem("a[k.l]", "x"), Problem("b", "x"), Problem("a", "x", "g", 9)]
    assert [problem.place for problem in located(problems, sources)] == ["--a-b", "f:3", "", "g:9"]


@pytest.mark.parametrize("text", [HEAD, KUBEADM], ids=["defaults", "kubeadm"])
def test_ordinary_configurations_have_no_warnings(text: str) -> None:
    assert validation.warnings(defaults.apply(parse("f", text.encode()).config)) == []


def test_localhost_is_an_address_of_healthz() -> None:
    assert errors(healthzBindAddress="localhost") == []


def test_warnings_are_no_errors() -> None:
    config = of(
        {
            "tlsCipherSuites": ["TLS_RSA_WITH_RC4_128_SHA"],
            "evictionHard": {"containerfs.available": "5%"},
            "featureGates": {"NodeSwap": True, "NodeLogQuery": True},
        }
    )
    assert validation.validate(config) == []
    assert [str(warning) for warning in validation.warnings(config)] == [
        "featureGates.NodeSwap: Setting GA feature gate NodeSwap=true. It will be removed in a future release.",
        "featureGates.NodeLogQuery: Setting GA feature gate NodeLogQuery=true. It will be removed in a future release.",
        "evictionHard[containerfs.available]: has no effect: the agent derives this threshold itself",
        "tlsCipherSuites[0]: Use of insecure cipher 'TLS_RSA_WITH_RC4_128_SHA' detected.",
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%", "imagefs.inodesFree": "5%"}),
        ({"evictionHard": {}}, {}),
        ({"evictionHard": {"pid.available": "5"}}, {"pid.available": "5"}),
        ({"evictionHard": {"memory.available": "5Mi"}, "mergeDefaultEvictionSettings": True}, {"memory.available": "5Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%", "imagefs.inodesFree": "5%"}),
    ],
)  # fmt: skip
def test_effective_thresholds(fields: dict[str, Any], expected: dict[str, str]) -> None:
    config = of(fields)
    settled = in_file(config.eviction_hard, merged=bool(config.merge_default_eviction_settings))
    assert hard(schema.replace(config, "evictionHard", settled)) == expected


@pytest.mark.parametrize(
    ("text", "cpus"), [("", set()), ("0", {0}), ("0-2,8", {0, 1, 2, 8}), ("1,1", {1}), ("5-5", {5})]
)
def test_cpu_lists(text: str, cpus: set[int]) -> None:
    assert parse_cpuset(text) == cpus


@pytest.mark.parametrize("text", [",", "a", "-1", "1-2-3", "1 ", "0x1", "2-1", "65536", "\u0661"])
def test_bad_cpu_lists(text: str) -> None:
    with pytest.raises(CpusetError):
        parse_cpuset(text)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("example.com/role", "web", ""),
        ("role", "", ""),
        ("kubernetes.io/hostname", "a", ""),
        ("topology.kubernetes.io/zone", "a", ""),
        ("node.kubernetes.io/anything", "a", ""),
        ("x.kubelet.kubernetes.io/anything", "a", ""),
        ("kubernetes.io/anything", "a", "the namespace kubernetes.io is the cluster's"),
        ("node-role.kubernetes.io/master", "", "the namespace node-role.kubernetes.io is the cluster's"),
        ("x.k8s.io/y", "", "the namespace x.k8s.io is the cluster's"),
        ("mykubernetes.io/y", "", ""),
        ("a b", "", "must be a name of letters"),
        ("a/b/c", "", "must have a DNS domain"),
        ("a", "x" * 64, "must be empty or letters"),
        ("a", "-x", "must be empty or letters"),
    ],
)  # fmt: skip
def test_labels_a_node_may_set(key: str, value: str, reason: str) -> None:
    found = check_labels({key: value})
    assert [reason in str(problem) and str(problem).startswith("--node-labels: ") for problem in found] == (
        [True] if reason else []
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"clusterDNS": ["10.96.0.10", "dns.example"]}, "clusterDNS[1]: 'dns.example' is no IP address such as 10.96.0.10 or fd00::10; left out"),
        ({"clusterDNS": ["fe80::1%eth0"]}, "clusterDNS[0]: 'fe80::1%eth0' is no IP address"),
        ({"clusterDNS": ["10.96.0.300"]}, "clusterDNS[0]: '10.96.0.300' is no IP address"),
        ({"clusterDNS": ["10.96..10"]}, "clusterDNS[0]: '10.96..10' is no IP address"),
        ({"clusterDNS": [""]}, "clusterDNS[0]: '' is no IP address"),
        ({"clusterDomain": "cluster_local"}, "clusterDomain: 'cluster_local' is no DNS domain such as cluster.local; pods get it as it is"),
        ({"clusterDomain": "a..b"}, "clusterDomain: 'a..b' is no DNS domain"),
        ({"clusterDomain": "a" * 64}, "clusterDomain: "),
        ({"podCIDR": "10.244.0.0"}, "podCIDR: '10.244.0.0' is no network such as 10.244.1.0/24; the runtime gets it as it is"),
        ({"podCIDR": "10.244.0.0/33"}, "podCIDR: '10.244.0.0/33' is no network such as 10.244.1.0/24"),
        ({"podCIDR": "10.1.0.0/16,10.2.0.0/16"}, "podCIDR: '10.1.0.0/16,10.2.0.0/16' is not one IPv4 and one IPv6 network"),
    ],
)  # fmt: skip
def test_wrong_addresses_of_a_cluster_are_warned_of(fields: dict[str, Any], expected: str) -> None:
    config = of(fields)
    assert validation.validate(config) == []
    (warning,) = validation.warnings(config)
    assert str(warning).startswith(expected)


def test_system_cgroups_are_said_to_be_measured_only() -> None:
    (warning,) = validation.warnings(of({"systemCgroups": "/system"}))
    assert str(warning) == "systemCgroups: is only measured: processes of others are never moved to another cgroup"


@pytest.mark.parametrize("name", ["", "/", "/a", "a", "/a/b.slice/", "/..a"])
def test_runtime_cgroup_of_a_clear_name_is_accepted(name: str) -> None:
    assert check_runtime_cgroups(name) == []


@pytest.mark.parametrize("name", ["//.", ".", "/..", "/../a", "/a/../b", "/a//b", "/a\0"])
def test_other_runtime_cgroup_is_refused(name: str) -> None:
    (problem,) = check_runtime_cgroups(name)
    assert str(problem).startswith("--runtime-cgroups: must be a cgroup below the root")


def test_warnings_of_dns_servers_are_bounded() -> None:
    assert len(validation.warnings(of({"clusterDNS": ["x"] * 1000}))) == 100


@pytest.mark.parametrize(
    ("written", "used"),
    [
        ("010.096.000.010", "10.96.0.10"),
        ("10.96.0.10", "10.96.0.10"),
        ("FD00:0::010", "fd00::10"),
        ("::", "::"),
        ("::ffff:10.0.0.08", "10.0.0.8"),
        ("64:ff9b::10.0.0.1", "64:ff9b::a00:1"),
    ],
)
def test_dns_server_is_read_with_leading_zeros(written: str, used: str) -> None:
    """As Go's ParseIPSloppy does, and Python's parser does not."""
    config = of({"clusterDNS": [written, "x"]})
    assert usable_servers(config.cluster_dns or ()) == (used,)
    assert config.cluster_dns == (written, "x")


def test_headers_that_are_not_sent_are_warned_of() -> None:
    config = of({"staticPodURLHeader": {name: ["x"] for name in (*NOT_SENT, "X-Key")}})
    assert {str(one) for one in validation.warnings(config)} >= {
        f"staticPodURLHeader: {name} is not sent, because the client sets it by itself" for name in NOT_SENT
    }
    assert "X-Key" not in str(validation.warnings(config))
