"""In-tree volume types whose volumes a CSI driver mounts (KEP-625): what the kubelet calls CSI migration.

Source: staging/src/k8s.io/csi-translation-lib of Kubernetes 1.36.
"""

from typing import NamedTuple


class Migrated(NamedTuple):
    """One in-tree type: the name of its old plugin, and its CSI driver."""

    plugin: str
    driver: str


MIGRATED: dict[str, Migrated] = {
    "aws_elastic_block_store": Migrated("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    "azure_disk": Migrated("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    "azure_file": Migrated("kubernetes.io/azure-file", "file.csi.azure.com"),
    "cinder": Migrated("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    "gce_persistent_disk": Migrated("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    "portworx_volume": Migrated("kubernetes.io/portworx-volume", "pxd.portworx.com"),
    "vsphere_volume": Migrated("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
}
"""By attribute of Volume and of PersistentVolumeSpec."""
