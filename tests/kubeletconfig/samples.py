"""Valid configurations: kubeadm's, and one with every field set to another value than its default."""

KUBEADM = """\
apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous:
    enabled: false
  webhook:
    cacheTTL: 0s
    enabled: true
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
authorization:
  mode: Webhook
  webhook:
    cacheAuthorizedTTL: 0s
    cacheUnauthorizedTTL: 0s
cgroupDriver: systemd
clusterDNS:
- 10.96.0.10
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///var/run/containerd/containerd.sock
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
kind: KubeletConfiguration
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
resolvConf: /run/systemd/resolve/resolv.conf
rotateCertificates: true
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
"""

EVERY = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
enableServer: false
staticPodPath: /etc/kubernetes/manifests
podLogsDir: /srv/log/pods
syncFrequency: 1m30s
fileCheckFrequency: 21s
httpCheckFrequency: 22s
staticPodURL: https://manifests.example/pods
staticPodURLHeader: {Authorization: [token, other]}
address: 192.0.2.1
port: 20250
readOnlyPort: 20255
tlsCertFile: /etc/tls/cert.pem
tlsPrivateKeyFile: /etc/tls/key.pem
tlsCipherSuites: [TLS_AES_128_GCM_SHA256]
tlsCurvePreferences: [29, 23]
tlsMinVersion: VersionTLS12
rotateCertificates: true
serverTLSBootstrap: true
authentication:
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
  webhook: {enabled: false, cacheTTL: 3m}
  anonymous: {enabled: true}
authorization:
  mode: AlwaysAllow
  webhook: {cacheAuthorizedTTL: 6m, cacheUnauthorizedTTL: 31s}
registryPullQPS: 6
registryBurst: 11
imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages
preloadedImagesVerificationAllowlist: [registry.example/team/app, registry.example/base/*]
eventRecordQPS: 51
eventBurst: 101
enableDebuggingHandlers: false
enableContentionProfiling: true
healthzPort: 20248
healthzBindAddress: "::1"
oomScoreAdj: -998
clusterDomain: example.org
clusterDNS: [10.96.0.11, "fd00::10"]
streamingConnectionIdleTimeout: 5h
nodeStatusUpdateFrequency: 11s
nodeStatusReportFrequency: 6m
nodeLeaseDurationSeconds: 41
imageMinimumGCAge: 3m
imageMaximumGCAge: 48h
imageGCHighThresholdPercent: 90
imageGCLowThresholdPercent: 70
volumeStatsAggPeriod: -1s
kubeletCgroups: /system.slice/kubelet.service
systemCgroups: /system.slice
cgroupRoot: /
cgroupsPerQOS: true
cgroupDriver: systemd
cpuManagerPolicy: static
singleProcessOOMKill: true
cpuManagerPolicyOptions: {full-pcpus-only: "true", distribute-cpus-across-numa: "false"}
cpuManagerReconcilePeriod: 12s
memoryManagerPolicy: Static
topologyManagerPolicy: best-effort
topologyManagerScope: pod
topologyManagerPolicyOptions: {prefer-closest-numa-nodes: "true", max-allowable-numa-nodes: "8"}
qosReserved: {memory: 50%}
runtimeRequestTimeout: 2m1s
hairpinMode: hairpin-veth
maxPods: 50
podCIDR: 10.244.1.0/24,fd00:1::/64
podPidsLimit: 1024
resolvConf: /run/systemd/resolve/resolv.conf
cpuCFSQuota: false
cpuCFSQuotaPeriod: 50ms
nodeStatusMaxImages: -1
maxOpenFiles: 1000001
contentType: application/json
kubeAPIQPS: 52
kubeAPIBurst: 102
serializeImagePulls: false
maxParallelImagePulls: 4
evictionHard: {memory.available: 1.5Gi, nodefs.available: 12%, pid.available: "100"}
evictionSoft: {memory.available: 2Gi}
evictionSoftGracePeriod: {memory.available: 1m30s}
evictionPressureTransitionPeriod: 6m
evictionMaxPodGracePeriod: 60
evictionMinimumReclaim: {memory.available: "0", nodefs.available: 500Mi, imagefs.available: 5%}
mergeDefaultEvictionSettings: true
podsPerCore: 40
enableControllerAttachDetach: false
protectKernelDefaults: true
makeIPTablesUtilChains: false
iptablesMasqueradeBit: 13
iptablesDropBit: 16
featureGates: {QOSReserved: true, MemoryQoS: true, ExtendWebSocketsToKubelet: false}
failSwapOn: false
memorySwap: {swapBehavior: LimitedSwap}
containerLogMaxSize: 20Mi
containerLogMaxFiles: 6
containerLogMaxWorkers: 2
containerLogMonitorInterval: 11s
configMapAndSecretChangeDetectionStrategy: Get
systemReserved: {cpu: 250m, memory: 1Gi}
kubeReserved: {cpu: "1", memory: 512Mi, ephemeral-storage: 1Gi, pid: "1000"}
showHiddenMetricsForVersion: "1.35"
systemReservedCgroup: /system.slice
kubeReservedCgroup: /kube.slice
enforceNodeAllocatable: [pods, system-reserved, kube-reserved-compressible]
allowedUnsafeSysctls: [kernel.msg*, net.core.somaxconn]
volumePluginDir: /srv/volume-plugins
providerID: example://node-1
kernelMemcgNotification: true
logging:
  format: text
  flushFrequency: 6s
  verbosity: 4
  vmodule: [{filePattern: pod*, verbosity: 5}]
enableSystemLogHandler: true
enableSystemLogQuery: true
shutdownGracePeriod: 30s
shutdownGracePeriodCriticalPods: 10s
crashLoopBackOff: {maxContainerRestartPeriod: 100s}
reservedMemory: [{numaNode: 0, limits: {memory: 3Gi}}]
enableProfilingHandler: false
enableDebugFlagsHandler: false
seccompDefault: true
memoryThrottlingFactor: 0.8
memoryReservationPolicy: TieredReservation
registerWithTaints: [{key: example.com/dedicated, value: web, effect: NoSchedule}]
registerNode: false
tracing: {endpoint: "localhost:4317", samplingRatePerMillion: 100}
localStorageCapacityIsolation: false
containerRuntimeEndpoint: unix:///run/crio/crio.sock
imageServiceEndpoint: unix:///run/images.sock
failCgroupV1: false
userNamespaces: {idsPerPod: 131072}
"""

EXCLUDED_FROM_EVERY = frozenset(
    {
        "runOnce",  # refused when true
        "logging.options.text.splitStream",  # these need a feature gate that is not built
        "logging.options.text.infoBufferSize",
        "logging.options.json.splitStream",
        "logging.options.json.infoBufferSize",
        "reservedSystemCPUs",  # excludes the reserved cgroups
        "shutdownGracePeriodByPodPriority",  # excludes shutdownGracePeriod
        "cgroupsPerQOS",  # enforcement needs the default
        "enableSystemLogHandler",  # enableSystemLogQuery needs the default
        "logging.format",  # vmodule needs the default
    }
)
"""Fields that EVERY leaves out or at their default, because another field's value excludes theirs."""

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
