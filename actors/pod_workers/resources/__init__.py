"""Resources of pods on this node: allocation, resize and pod cgroups."""
