"""Control groups of pods: names, limits and usage, for cgroup v1 and v2.

Bottom first: `quantities` computes limits, `hierarchy` finds the mounts, `limits` and `figures` read and write files,
`fs` creates and removes pods' cgroups, and `tiers` limits the cgroups above them. `systemd` makes them as slices.
"""
