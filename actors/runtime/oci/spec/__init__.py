"""A container's OCI runtime specification from what CRI asks: pure, no I/O but where a module says so.

https://github.com/opencontainers/runtime-spec. What CRI leaves open is as containerd has it.
"""
