"""Containers: root file system, start, exec and removal."""
