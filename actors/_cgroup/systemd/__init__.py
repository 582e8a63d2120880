"""The systemd cgroup driver: every cgroup is a transient slice, made, limited and stopped over D-Bus.

`properties` names the units and computes their properties; `units` calls systemd.
"""
