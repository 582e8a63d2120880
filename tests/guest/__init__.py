"""A guest for tests: a Debian under qemu with systemd as its first process, one cgroup v2 hierarchy and containerd.

`image` makes its disk and a snapshot of it once it is ready, kept in /var/cache/nodevisor/guest. `machine` is the qemu
process, `guest` a running guest and what tests do with it. `python -m tests.guest` starts one for a person.
"""
