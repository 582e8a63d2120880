"""The agent's configuration: the kubelet's flags, KubeletConfiguration files, their precedence, and reloads."""
