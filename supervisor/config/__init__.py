"""The agent's configuration: flags, KubeletConfiguration files, layers and reloads."""
