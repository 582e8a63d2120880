"""Records of a pod's volumes."""
