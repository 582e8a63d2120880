"""The Go types that a static pod's hash depends on: the internal Pod of Kubernetes 1.36, names and order of fields.

Each group of lines is a struct: `PACKAGE.NAME: FIELD TYPE [JSON]; ...`. JSON is the field's name in the API, unless it
is the Go name with its first letters in lower case. `.` is an embedded struct whose fields are the parent's, `-` is
never set. A type without a package is of `core`. Volume sources that a static pod cannot use (other objects, removed
in-tree plugins) are left out. Source: pkg/apis/core/types.go and the metav1 types it uses.
"""

TYPES = """
Pod: TypeMeta v1.TypeMeta -; ObjectMeta v1.ObjectMeta metadata; Spec PodSpec; Status PodStatus
v1.TypeMeta: Kind string; APIVersion string
v1.ObjectMeta: Name string; GenerateName string; Namespace string; SelfLink string; UID types.UID;
  ResourceVersion string;
  Generation int64; CreationTimestamp v1.Time; DeletionTimestamp *v1.Time; DeletionGracePeriodSeconds *int64;
  Labels map[string]string; Annotations map[string]string; OwnerReferences []v1.OwnerReference; Finalizers []string;
  ManagedFields []v1.ManagedFieldsEntry
v1.OwnerReference: APIVersion string; Kind string; Name string; UID types.UID; Controller *bool;
  BlockOwnerDeletion *bool
v1.Time: Time time.Time .
time.Time: wall uint64 -; ext int64 -; loc *time.Location -
time.Location:
v1.LabelSelector: MatchLabels map[string]string; MatchExpressions []v1.LabelSelectorRequirement
v1.LabelSelectorRequirement: Key string; Operator v1.LabelSelectorOperator; Values []string

PodSpec: Volumes []Volume; InitContainers []Container; Containers []Container; EphemeralContainers []EphemeralContainer;
  RestartPolicy RestartPolicy; TerminationGracePeriodSeconds *int64; ActiveDeadlineSeconds *int64; DNSPolicy DNSPolicy;
  NodeSelector map[string]string; ServiceAccountName string; AutomountServiceAccountToken *bool; NodeName string;
  SecurityContext *PodSecurityContext; ImagePullSecrets []LocalObjectReference; Hostname string; Subdomain string;
  SetHostnameAsFQDN *bool; Affinity *Affinity; SchedulerName string; Tolerations []Toleration; HostAliases []HostAlias;
  PriorityClassName string; Priority *int32; PreemptionPolicy *PreemptionPolicy; DNSConfig *PodDNSConfig;
  ReadinessGates []PodReadinessGate; RuntimeClassName *string; Overhead ResourceList; EnableServiceLinks *bool;
  TopologySpreadConstraints []TopologySpreadConstraint; OS *PodOS; SchedulingGates []PodSchedulingGate;
  ResourceClaims []PodResourceClaim; Resources *ResourceRequirements; HostnameOverride *string;
  SchedulingGroup *PodSchedulingGroup
PodStatus: ObservedGeneration int64; Phase PodPhase; Conditions []PodCondition; Message string; Reason string;
  NominatedNodeName string; HostIP string; HostIPs []HostIP; PodIPs []PodIP; StartTime *v1.Time; QOSClass PodQOSClass;
  InitContainerStatuses []ContainerStatus; ContainerStatuses []ContainerStatus;
  EphemeralContainerStatuses []ContainerStatus; Resize PodResizeStatus; ResourceClaimStatuses []PodResourceClaimStatus;
  ExtendedResourceClaimStatus *PodExtendedResourceClaimStatus; AllocatedResources ResourceList;
  Resources *ResourceRequirements; NodeAllocatableResourceClaimStatuses []NodeAllocatableResourceClaimStatus

Container: Name string; Image string; Command []string; Args []string; WorkingDir string; Ports []ContainerPort;
  EnvFrom []EnvFromSource; Env []EnvVar; Resources ResourceRequirements; ResizePolicy []ContainerResizePolicy;
  RestartPolicy *ContainerRestartPolicy; RestartPolicyRules []ContainerRestartRule; VolumeMounts []VolumeMount;
  VolumeDevices []VolumeDevice; LivenessProbe *Probe; ReadinessProbe *Probe; StartupProbe *Probe; Lifecycle *Lifecycle;
  TerminationMessagePath string; TerminationMessagePolicy TerminationMessagePolicy; ImagePullPolicy PullPolicy;
  SecurityContext *SecurityContext; Stdin bool; StdinOnce bool; TTY bool
ContainerPort: Name string; HostPort int32; ContainerPort int32; Protocol Protocol; HostIP string
EnvVar: Name string; Value string; ValueFrom *EnvVarSource
EnvVarSource: FieldRef *ObjectFieldSelector; ResourceFieldRef *ResourceFieldSelector;
  ConfigMapKeyRef *ConfigMapKeySelector; SecretKeyRef *SecretKeySelector; FileKeyRef *FileKeySelector
ObjectFieldSelector: APIVersion string; FieldPath string
ResourceFieldSelector: ContainerName string; Resource string; Divisor resource.Quantity
FileKeySelector: VolumeName string; Path string; Key string; Optional *bool
ResourceRequirements: Limits ResourceList; Requests ResourceList; Claims []ResourceClaim
ResourceClaim: Name string; Request string
ContainerResizePolicy: ResourceName ResourceName; RestartPolicy ResourceResizeRestartPolicy
ContainerRestartRule: Action ContainerRestartRuleAction; ExitCodes *ContainerRestartRuleOnExitCodes
ContainerRestartRuleOnExitCodes: Operator ContainerRestartRuleOnExitCodesOperator; Values []int32
VolumeMount: Name string; ReadOnly bool; RecursiveReadOnly *RecursiveReadOnlyMode; MountPath string; SubPath string;
  MountPropagation *MountPropagationMode; SubPathExpr string
VolumeDevice: Name string; DevicePath string
Probe: ProbeHandler ProbeHandler .; InitialDelaySeconds int32; TimeoutSeconds int32; PeriodSeconds int32;
  SuccessThreshold int32; FailureThreshold int32; TerminationGracePeriodSeconds *int64
ProbeHandler: Exec *ExecAction; HTTPGet *HTTPGetAction; TCPSocket *TCPSocketAction; GRPC *GRPCAction
ExecAction: Command []string
HTTPGetAction: Path string; Port intstr.IntOrString; Host string; Scheme URIScheme; HTTPHeaders []HTTPHeader
HTTPHeader: Name string; Value string
TCPSocketAction: Port intstr.IntOrString; Host string
GRPCAction: Port int32; Service *string
SleepAction: Seconds int64
Lifecycle: PostStart *LifecycleHandler; PreStop *LifecycleHandler; StopSignal *Signal
LifecycleHandler: Exec *ExecAction; HTTPGet *HTTPGetAction; TCPSocket *TCPSocketAction; Sleep *SleepAction

SecurityContext: Capabilities *Capabilities; Privileged *bool; SELinuxOptions *SELinuxOptions;
  WindowsOptions *WindowsSecurityContextOptions; RunAsUser *int64; RunAsGroup *int64; RunAsNonRoot *bool;
  ReadOnlyRootFilesystem *bool; AllowPrivilegeEscalation *bool; ProcMount *ProcMountType;
  SeccompProfile *SeccompProfile; AppArmorProfile *AppArmorProfile
PodSecurityContext: HostNetwork bool; HostPID bool; HostIPC bool; ShareProcessNamespace *bool; HostUsers *bool;
  SELinuxOptions *SELinuxOptions; WindowsOptions *WindowsSecurityContextOptions; RunAsUser *int64; RunAsGroup *int64;
  RunAsNonRoot *bool; SupplementalGroups []int64; SupplementalGroupsPolicy *SupplementalGroupsPolicy; FSGroup *int64;
  FSGroupChangePolicy *PodFSGroupChangePolicy; Sysctls []Sysctl; SeccompProfile *SeccompProfile;
  AppArmorProfile *AppArmorProfile; SELinuxChangePolicy *PodSELinuxChangePolicy
Capabilities: Add []Capability; Drop []Capability
SELinuxOptions: User string; Role string; Type string; Level string
WindowsSecurityContextOptions: GMSACredentialSpecName *string; GMSACredentialSpec *string; RunAsUserName *string;
  HostProcess *bool
SeccompProfile: Type SeccompProfileType; LocalhostProfile *string
AppArmorProfile: Type AppArmorProfileType; LocalhostProfile *string
Sysctl: Name string; Value string

Affinity: NodeAffinity *NodeAffinity; PodAffinity *PodAffinity; PodAntiAffinity *PodAntiAffinity
NodeAffinity: RequiredDuringSchedulingIgnoredDuringExecution *NodeSelector;
  PreferredDuringSchedulingIgnoredDuringExecution []PreferredSchedulingTerm
NodeSelector: NodeSelectorTerms []NodeSelectorTerm
NodeSelectorTerm: MatchExpressions []NodeSelectorRequirement; MatchFields []NodeSelectorRequirement
NodeSelectorRequirement: Key string; Operator NodeSelectorOperator; Values []string
PreferredSchedulingTerm: Weight int32; Preference NodeSelectorTerm
PodAffinity: RequiredDuringSchedulingIgnoredDuringExecution []PodAffinityTerm;
  PreferredDuringSchedulingIgnoredDuringExecution []WeightedPodAffinityTerm
PodAntiAffinity: RequiredDuringSchedulingIgnoredDuringExecution []PodAffinityTerm;
  PreferredDuringSchedulingIgnoredDuringExecution []WeightedPodAffinityTerm
PodAffinityTerm: LabelSelector *v1.LabelSelector; Namespaces []string; TopologyKey string;
  NamespaceSelector *v1.LabelSelector; MatchLabelKeys []string; MismatchLabelKeys []string
WeightedPodAffinityTerm: Weight int32; PodAffinityTerm PodAffinityTerm
Toleration: Key string; Operator TolerationOperator; Value string; Effect TaintEffect; TolerationSeconds *int64
TopologySpreadConstraint: MaxSkew int32; TopologyKey string; WhenUnsatisfiable UnsatisfiableConstraintAction;
  LabelSelector *v1.LabelSelector; MinDomains *int32; NodeAffinityPolicy *NodeInclusionPolicy;
  NodeTaintsPolicy *NodeInclusionPolicy; MatchLabelKeys []string
HostAlias: IP string; Hostnames []string
PodDNSConfig: Nameservers []string; Searches []string; Options []PodDNSConfigOption
PodDNSConfigOption: Name string; Value *string
PodReadinessGate: ConditionType PodConditionType
PodOS: Name OSName
PodSchedulingGate: Name string
PodSchedulingGroup: PodGroupName *string

Volume: Name string; VolumeSource VolumeSource .
VolumeSource: HostPath *HostPathVolumeSource; EmptyDir *EmptyDirVolumeSource;
  GCEPersistentDisk *GCEPersistentDiskVolumeSource; AWSElasticBlockStore *AWSElasticBlockStoreVolumeSource;
  GitRepo *GitRepoVolumeSource; Secret *SecretVolumeSource; NFS *NFSVolumeSource; ISCSI *ISCSIVolumeSource;
  Glusterfs *GlusterfsVolumeSource; PersistentVolumeClaim *PersistentVolumeClaimVolumeSource; RBD *RBDVolumeSource;
  Quobyte *QuobyteVolumeSource; FlexVolume *FlexVolumeSource; Cinder *CinderVolumeSource;
  CephFS *CephFSVolumeSource cephfs; Flocker *FlockerVolumeSource; DownwardAPI *DownwardAPIVolumeSource;
  FC *FCVolumeSource; AzureFile *AzureFileVolumeSource; ConfigMap *ConfigMapVolumeSource;
  VsphereVolume *VsphereVirtualDiskVolumeSource; AzureDisk *AzureDiskVolumeSource;
  PhotonPersistentDisk *PhotonPersistentDiskVolumeSource; Projected *ProjectedVolumeSource;
  PortworxVolume *PortworxVolumeSource; ScaleIO *ScaleIOVolumeSource; StorageOS *StorageOSVolumeSource storageos;
  CSI *CSIVolumeSource; Ephemeral *EphemeralVolumeSource; Image *ImageVolumeSource
HostPathVolumeSource: Path string; Type *HostPathType
EmptyDirVolumeSource: Medium StorageMedium; SizeLimit *resource.Quantity
NFSVolumeSource: Server string; Path string; ReadOnly bool
DownwardAPIVolumeSource: Items []DownwardAPIVolumeFile; DefaultMode *int32
DownwardAPIVolumeFile: Path string; FieldRef *ObjectFieldSelector; ResourceFieldRef *ResourceFieldSelector; Mode *int32
ProjectedVolumeSource: Sources []VolumeProjection; DefaultMode *int32
VolumeProjection: Secret *SecretProjection; DownwardAPI *DownwardAPIProjection; ConfigMap *ConfigMapProjection;
  ServiceAccountToken *ServiceAccountTokenProjection; ClusterTrustBundle *ClusterTrustBundleProjection;
  PodCertificate *PodCertificateProjection
DownwardAPIProjection: Items []DownwardAPIVolumeFile
ImageVolumeSource: Reference string; PullPolicy PullPolicy
"""
