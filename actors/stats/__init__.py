"""Memory, CPU, disk and process figures of the node and its pods, measured on request: the kubelet's cAdvisor."""
