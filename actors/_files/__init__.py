"""Directories of YAML and JSON files as a source: seeing them change, and their documents as types.

Shared by config (manifests) and objects. Nothing here knows what the files are about.
"""
