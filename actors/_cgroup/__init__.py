"""Control groups of pods: what they are called, which limits they get, and the files that make them so.

`names`, `qos` and `resources` are pure; `hierarchy` and `fs` touch /sys/fs/cgroup; `cri` turns limits into CRI's.
"""
