"""Builds a container's OCI runtime specification from its CRI configuration. Pure, unless a module says otherwise.

https://github.com/opencontainers/runtime-spec. Where CRI leaves a choice, it is containerd's.
"""
