"""What the node and its pods use of memory, disk and processes, measured when somebody asks: the kubelet's cAdvisor."""
