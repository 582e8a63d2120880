"""Tests on systemd and cgroup v2, and a guest for them where this machine has no such thing.

The guest is a Debian under qemu. `image` makes its disk and a snapshot of it once it is ready, kept in
/var/cache/nodevisor/guest. `machine` is the qemu process, `guest` a running guest with this checkout in it.
`python -m tests.guest` starts one for a person. Tests that need systemd run inside, by pytest there (test_suites).
"""
