"""Tests that need a machine of their own with systemd and cgroup v2."""
