"""Pod sources and their merge: the kubelet's PodConfig."""
