"""CSI migration: volumes of in-tree types as PersistentVolumes of their CSI drivers (KEP-625). Pure.

`translate.py` is the way in. Source: staging/src/k8s.io/csi-translation-lib of Kubernetes 1.36.
"""
