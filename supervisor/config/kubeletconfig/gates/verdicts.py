"""The verdict on each feature gate: what it does in this agent, with a test for what is built.

A gate that another program reads has no meaning here. A gate that is not needed changes the way to a result, not the
result. `feature_gates` refuses to switch on a gate that is not built, and warns of an entry without effect. A test
fails for a gate without a verdict. After a change here, generate etc/feature-gates.md again (`gates_page`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

VerdictKind = Literal[
    "built and on", "built and switchable", "graduated", "without meaning here", "not built", "not needed"
]


class GateVerdict(NamedTuple):
    """The verdict on one gate. `why` says what is there, or the reason why nothing is."""

    kind: VerdictKind
    why: str
    test: str = ""
    """The test file of what is built; empty: nothing is built."""

    @property
    def is_missing(self) -> bool:
        """True when the gate is the kubelet's, and nothing is built for it."""
        return not self.test and self.kind in ("graduated", "not built", "not needed")

    @property
    def is_refused(self) -> bool:
        """True when the gate cannot be switched on: its user would miss the feature."""
        return self.kind == "not built"


_SWITCHABLE: dict[str, tuple[str, str]] = {
    "AllAlpha": ("all alpha gates without an entry of their own", "kubeletconfig/test_feature_gates.py"),
    "AllBeta": ("all beta gates without an entry of their own", "kubeletconfig/test_feature_gates.py"),
    "AllowParsingUserUIDFromCertAuth": (
        "the user of a client certificate has the UID that its subject names",
        "server/test_certificate_uid.py",
    ),
    "AllowDNSOnlyNodeCSR": (
        "the serving certificate is requested also while the Node has DNS names only",
        "certificates/pure/test_policy.py",
    ),
    "CPUManagerPolicyAlphaOptions": (
        "needed for align-by-socket and distribute-cpus-across-cores",
        "kubeletconfig/test_validation.py",
    ),
    "CPUManagerPolicyBetaOptions": (
        "needed for distribute-cpus-across-numa",
        "kubeletconfig/test_validation.py",
    ),
    "ChangeContainerStatusOnKubeletRestart": (
        "containers with probes are not started and not ready until a new start of the agent has probed them",
        "pod_workers/status/test_inheritance.py",
    ),
    "ClientsAllowCARotation": (
        "a changed certificate authority of the API server is read again",
        "kube/test_authority.py",
    ),
    "ClusterTrustBundleProjection": ("volume projects trust bundles", "volume/pure/test_trust.py"),
    "CustomCPUCFSQuotaPeriod": ("needed for cpuCFSQuotaPeriod", "kubeletconfig/test_validation.py"),
    "DisableCPUQuotaWithExclusiveCPUs": (
        "containers with exclusive CPUs have no CFS quota",
        "pod_workers/cri_config/test_grants.py",
    ),
    "ExtendWebSocketsToKubelet": ("server speaks WebSocket version 5", "agent/server/test_websockets.py"),
    "GracefulNodeShutdown": ("needed for shutdownGracePeriod", "node/test_shutdown.py"),
    "GracefulNodeShutdownBasedOnPodPriority": (
        "needed for shutdownGracePeriodByPodPriority; the times of a shutdown are in a file and in metrics",
        "node/test_shutdown.py",
    ),
    "ImageVolumeWithDigest": (
        "statuses of containers have the images of image volumes",
        "pod_workers/status/test_container_status.py",
    ),
    "KubeletCrashLoopBackOffMax": ("needed for crashLoopBackOff", "kubeletconfig/process/test_fields.py"),
    "KubeletEnsureSecretPulledImages": (
        "image_pull verifies credentials of present images",
        "image_pull/pure/test_verification.py",
    ),
    "KubeletRegistrationGetOnExistsOnly": (
        "the Node is read only after the API server has answered that it exists",
        "node/test_registration.py",
    ),
    "KubeletSeparateDiskGC": (
        "eviction knows a disk of writable layers; without it they are taken to be on imagefs",
        "eviction/pure/test_policy.py",
    ),
    "KubeletServiceAccountTokenForCredentialProviders": (
        "needed for tokenAttributes of credential providers",
        "image_pull/test_accounts.py",
    ),
    "KubeletPodResourcesListUseActivePods": (
        "the pod resources API lists only active pods",
        "resources/pod_resources/test_service.py",
    ),
    "MemoryQoS": ("memory.min, memory.low and memory.high on cgroup v2", "cgroup/test_memory_qos.py"),
    "PodCertificateRequest": ("volume projects pod certificates", "objects/test_pod_certificates.py"),
    "PodLevelResourceManagers": (
        "pods with resources of their own get CPUs",
        "resources/cpu/static_policy/pure/test_cpu_pod_level.py",
    ),
    "PodLogsQuerySplitStreams": ("a log's stdout or stderr can be read alone", "server/routes/test_node_logs.py"),
    "QOSReserved": ("needed for qosReserved", "agent/specs/test_admission.py"),
    "ReduceDefaultCrashLoopBackOffDecay": (
        "the first back-off is 1 s, and the longest 60 s where crashLoopBackOff sets no other",
        "kubeletconfig/process/test_fields.py",
    ),
    "ResourceHealthStatus": ("statuses have the health of devices", "resources/dra/test_health.py"),
    "ResourceHealthStatusMessage": ("with the messages of DRA drivers", "resources/dra/test_health.py"),
    "RotateKubeletServerCertificate": ("needed for serverTLSBootstrap", "certificates/test_actor.py"),
    "RuntimeClassInImageCriApi": (
        "images are pulled, found and removed for the pod's runtime handler",
        "image_gc/test_handlers.py",
    ),
    "SELinuxMount": (
        "CSI volumes of every access mode are mounted with the pod's SELinux label",
        "volume/test_selinux_mounts.py",
    ),
    "TaintTolerationComparisonOperators": (
        "admission compares numbers of taints for the operators Lt and Gt",
        "pod_workers/admission/test_taints.py",
    ),
    "UserNamespacesHostNetworkSupport": (
        "static pods with host network may have a user namespace; the Node declares it if the runtime can",
        "config/pure/test_validation.py",
    ),
}

_ON: dict[str, tuple[str, str]] = {
    "ComponentFlagz": ("server has /flagz, as text and structured", "server/routes/test_endpoints.py"),
    "ComponentStatusz": ("server has /statusz, as text and structured", "server/routes/test_endpoints.py"),
    "ContainerCheckpoint": ("server has /checkpoint", "server/routes/test_endpoints.py"),
    "ContainerRestartRules": ("restart policy and rules of one container", "pod_workers/model/test_restart_policy.py"),
    "ContainerStopSignals": ("lifecycle.stopSignal, where the pod has it", "pod_workers/cri_config/test_container.py"),
    "DRAExtendedResource": ("claims behind extended resources", "resources/dra/pure/test_policy.py"),
    "EnvFiles": ("variables from a file of a volume", "pod_workers/environment/test_env_file.py"),
    "EventedPLEG": (
        "exits come from pidfds, and from the runtime's events for containers without one",
        "pleg/test_actor.py",
    ),
    "HostnameOverride": ("spec.hostnameOverride", "agent/specs/test_names.py"),
    "InPlacePodLevelResourcesVerticalScaling": (
        "resize of the pod's own resources",
        "pod_workers/resources/test_resize_plans.py",
    ),
    "InPlacePodVerticalScalingInitContainers": (
        "resize of init containers",
        "pod_workers/resources/test_resource_records.py",
    ),
    "NodeDeclaredFeatures": (
        "status.declaredFeatures is written; pods are not checked against it",
        "node/test_registration.py",
    ),
    "PLEGOnDemandRelist": (
        "a worker reads its pod again at once, and does not wait for a relist",
        "pod_workers/steps/test_runtime_view.py",
    ),
    "PodLevelResources": ("resources of the pod itself", "cgroup/test_resources.py"),
    "PodReadyToStartContainersCondition": ("the condition is written", "pod_workers/status/test_conditions.py"),
    "PreventStaticPodAPIReferences": ("static pods with API objects are refused", "config/pure/test_validation.py"),
    "ReloadKubeletClientCAFile": ("server reads changed files again", "server/transport/test_tls.py"),
    "ReloadKubeletServerCertificateFile": ("server reads changed files again", "server/transport/test_tls.py"),
    "RestartAllContainersOnContainerExits": ("rules with RestartAllContainers", "agent/lifecycle/test_restart.py"),
}

_GRADUATED: dict[str, tuple[str, str]] = {
    "CPUManagerPolicyOptions": ("cpuManagerPolicyOptions", "resources/test_pinning.py"),
    "CSIServiceAccountTokenSecrets": ("tokens for CSI drivers as secrets", "volume/test_with_server.py"),
    "DynamicResourceAllocation": ("DRA drivers prepare resource claims", "resources/dra/test_claims_of_pods.py"),
    "DisableNodeKubeProxyVersion": ("status.nodeInfo.kubeProxyVersion is empty", "node/test_registration.py"),
    "ExecProbeTimeout": ("exec probes end after timeoutSeconds", "probe/test_actor.py"),
    "GitRepoVolumeDriver": ("gitRepo volumes are refused, as upstream", "volume/pure/test_policy.py"),
    "ImageMaximumGCAge": ("imageMaximumGCAge", "image_gc/pure/test_policy.py"),
    "ImageVolume": ("image volumes", "agent/volumes/test_image_volumes.py"),
    "InPlacePodVerticalScaling": ("resize of containers", "pod_workers/resources/test_resize_plans.py"),
    "KubeletCgroupDriverFromCRI": ("the runtime's cgroup driver wins", "cli/agent/test_start.py"),
    "KubeletFineGrainedAuthz": ("nodes/pods, nodes/healthz and nodes/configz", "server/test_access.py"),
    "KubeletPodResourcesGet": ("the pod resources API has Get", "resources/pod_resources/test_service.py"),
    "KubeletPodResourcesDynamicResources": (
        "the pod resources API lists claims",
        "resources/dra/test_claims_of_pods.py",
    ),
    "KubeletPSI": ("pressure in /stats/summary and /metrics/cadvisor", "cgroup/test_figures.py"),
    "KubeletTracing": ("tracing: spans by OTLP", "agent/node/test_tracing.py"),
    "MutableCSINodeAllocatableCount": ("volume limits are asked again", "volume/test_with_server.py"),
    "NodeLogQuery": ("enableSystemLogQuery", "server/routes/test_log_query.py"),
    "NodeSwap": ("memorySwap.swapBehavior", "cgroup/test_resources.py"),
    "PodLifecycleSleepAction": ("hooks that sleep", "agent/lifecycle/test_hooks.py"),
    "PodLifecycleSleepActionAllowZero": ("hooks that sleep 0 s", "agent/lifecycle/test_hooks.py"),
    "PodObservedGenerationTracking": ("status.observedGeneration", "pod_workers/test_status_golden.py"),
    "ProcMountType": ("securityContext.procMount", "pod_workers/cri_config/test_security.py"),
    "RecoverVolumeExpansionFailure": ("states of an expansion in the claim", "objects/pure/test_claims.py"),
    "RecursiveReadOnlyMounts": ("recursiveReadOnly", "pod_workers/cri_config/test_mounts.py"),
    "RelaxedEnvironmentVariableValidation": ("names of variables", "pod_workers/environment/test_env.py"),
    "SELinuxChangePolicy": ("seLinuxChangePolicy", "volume/pure/test_selinux_labels.py"),
    "SELinuxMountReadWriteOncePod": (
        "CSI volumes for one pod are mounted with its SELinux label",
        "volume/test_selinux_mounts.py",
    ),
    "SidecarContainers": ("init containers that restart", "agent/lifecycle/test_sidecars.py"),
    "SupplementalGroupsPolicy": ("supplementalGroupsPolicy", "pod_workers/cri_config/test_security.py"),
    "SystemdWatchdog": ("the supervisor notifies systemd", "supervisor/host/test_service.py"),
    "TopologyManagerPolicyOptions": ("topologyManagerPolicyOptions", "resources/pure/test_topology_policy.py"),
    "UserNamespacesSupport": ("hostUsers: false", "pod_workers/test_userns.py"),
}
"""Locked gates whose feature is here."""

_NO_LOG_OPTIONS = "the agent's log has no options of that stage"

_GRADUATED_MISSING: dict[str, str] = {
    "it is off upstream too": "AllowOverwriteTerminationGracePeriodSeconds",
}
"""Locked gates of the kubelet whose feature is not here."""

_NOT_BUILT: dict[str, str] = {
    "a resize does not change which CPUs and NUMA nodes a container has": """
        InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory
    """,
    "no option of the topology manager is in that stage": """
        TopologyManagerPolicyAlphaOptions TopologyManagerPolicyBetaOptions
    """,
    "the kubelet's part of it is not there": "DRANodeAllocatableResources DRAWorkloadResourceClaims",
    _NO_LOG_OPTIONS: "LoggingAlphaOptions LoggingBetaOptions",
    "log entries name their actor, and in JSON a worker's pod; there is no other key": "ContextualLogging",
    "lists of the runtime are read in one answer": "CRIListStreaming",
    "the health that a CSI driver reports is not read": "CSIVolumeHealth",
    "errors of a user namespace are not ignored": "KubeletInUserNamespace",
    "volumes are measured by a walk, not by project quota": "LocalStorageCapacityIsolationFSQuotaMonitoring",
    "metrics have classic histograms": "NativeHistograms",
    "there is no Pods API socket": "PodsAPI",
}

_NOT_NEEDED: dict[str, str] = {
    "figures come from cgroups, not from the runtime": "PodAndContainerStatsFromCRI",
}
"""Gates of the kubelet that select another way to the same result."""

_ELSEWHERE: dict[str, str] = {
    "the API server reads it": """
        APIResponseCompression APIServerIdentity APIServerTracing APIServingWithRoutine
        AggregatedDiscoveryRemoveBetaType AllowUnsafeMalformedObjectDeletion AnonymousAuthConfigurableEndpoints
        AnyVolumeDataSource AuthorizeNodeWithSelectors AuthorizePodWebsocketUpgradeCreatePermission
        AuthorizeWithSelectors BtreeWatchCache CBORServingAndStorage CRDObservedGenerationTracking
        CRDValidationRatcheting ClusterTrustBundle ConcurrentWatchObjectDecode ConsistentListFromCache
        ConstrainedImpersonation CoordinatedLeaderElection CrossNamespaceVolumeDataSource
        CustomResourceFieldSelectors DRAAdminAccess DRAResourceClaimDeviceStatus
        DRAResourceClaimGranularStatusAuthorization DeclarativeValidation DeclarativeValidationBeta
        DeclarativeValidationTakeover DetectCacheInconsistency DisableAllocatorDualWrite
        ExternalServiceAccountTokenSigner KMSv1 ListFromCacheSnapshot ManifestBasedAdmissionControlConfig
        MultiCIDRServiceAllocator MutablePVNodeAffinity MutablePodResourcesForSuspendedJobs
        MutableSchedulingDirectivesForSuspendedJobs MutatingAdmissionPolicy OpenAPIEnums PodTopologyLabelsAdmission
        PortForwardWebsockets RelaxedDNSSearchValidation RelaxedServiceNameValidation RemoteRequestHeaderUID
        ResilientWatchCacheInitialization RetryGenerateName SeparateCacheWatchRPC ServiceAccountNodeAudienceRestriction
        ServiceAccountTokenJTI ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation
        ServiceAccountTokenPodNodeInfo ServiceCIDRStatusFieldWiping ShardedListAndWatch SizeBasedListCostEstimate
        StorageNamespaceIndex StorageVersionAPI StorageVersionHash StreamingCollectionEncodingToJSON
        StreamingCollectionEncodingToProtobuf StrictIPCIDRValidation StructuredAuthenticationConfiguration
        StructuredAuthenticationConfigurationEgressSelector StructuredAuthenticationConfigurationJWKSMetrics
        TokenRequestServiceAccountUIDValidation TranslateStreamCloseWebsocketRequests
        UnknownVersionInteroperabilityProxy VolumeAttributesClass WatchCacheInitializationPostStartHook WatchList
        AllowInsecureKubeletCertificateSigningRequests
    """,
    "the scheduler and the API server read it": """
        ClearingNominatedNodeNameAfterBinding DRAConsumableCapacity DRADeviceBindingConditions DRADeviceTaints
        DRAListTypeAttributes DRAPartitionableDevices DRAPrioritizedList DRASchedulerFilterTimeout GangScheduling
        GenericWorkload MatchLabelKeysInPodAffinity MatchLabelKeysInPodTopologySpread
        MatchLabelKeysInPodTopologySpreadSelectorMerge NodeInclusionPolicyInPodTopologySpread
        NominatedNodeNameForExpectation OpportunisticBatching PodSchedulingReadiness SchedulerAsyncAPICalls
        SchedulerAsyncPreemption SchedulerPopFromBackoffQ SchedulerQueueingHints StorageCapacityScoring
        TopologyAwareWorkloadScheduling VolumeLimitScaling WorkloadAwarePreemption
    """,
    "the controllers read it": """
        CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook
        ControllerManagerReleaseLeaderElectionLockOnExit DRADeviceTaintRules DRAResourcePoolStatus
        DeploymentReplicaSetTerminatingReplicas HPAConfigurableTolerance HPAScaleToZero JobBackoffLimitPerIndex
        JobManagedBy JobPodReplacementPolicy JobSuccessPolicy LogarithmicScaleDown MaxUnavailableStatefulSet
        OrderedNamespaceDeletion PersistentVolumeClaimUnusedSinceTime PodDeletionCost SeparateTaintEvictionController
        StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet
        StaleControllerConsistencyStatefulSet StatefulSetSemanticRevisionComparison StorageVersionMigrator
        WorkloadWithJob
    """,
    "kube-proxy reads it": "AllowServiceExternalIPs NFTablesProxyMode PreferSameTrafficDistribution",
    "the API client for Go reads it": """
        AtomicFIFO ClientsAllowCBOR ClientsAllowTLSCacheGC ClientsPreferCBOR InOrderInformers
        InOrderInformersBatchProcess InformerResourceVersion UnlockWhileProcessingFIFO WatchListClient
    """,
    "it is for nodes with Windows": """
        WinDSR WinOverlay WindowsCPUAndMemoryAffinity WindowsGracefulNodeShutdown WindowsHostNetwork
    """,
    "it is for OpenShift": "MinimumKubeletVersion RouteExternalCertificate StoragePerformantSecurityPolicy",
    "the server speaks HTTP/1.1 only": "UnauthenticatedHTTP2DOSMitigation",
}


@lru_cache(maxsize=1)
def verdicts() -> dict[str, GateVerdict]:
    """The verdict on each gate, by name."""
    built: tuple[tuple[VerdictKind, dict[str, tuple[str, str]]], ...] = (
        ("built and switchable", _SWITCHABLE),
        ("built and on", _ON),
        ("graduated", _GRADUATED),
    )
    others: tuple[tuple[VerdictKind, dict[str, str]], ...] = (
        ("graduated", _GRADUATED_MISSING),
        ("not built", _NOT_BUILT),
        ("not needed", _NOT_NEEDED),
        ("without meaning here", _ELSEWHERE),
    )
    rows = [
        (name, GateVerdict(kind, why, f"tests/{test}")) for kind, rows in built for name, (why, test) in rows.items()
    ]
    rows += [
        (name, GateVerdict(kind, why))
        for kind, group in others
        for why, names in group.items()
        for name in names.split()
    ]
    found = dict(rows)
    assert len(found) == len(rows), f"a gate has two verdicts: {sorted(name for name, _ in rows)}"
    return found
