"""Directories of YAML and JSON files as a source: notices changes, reads files and converts documents to records.

Shared by config (manifests) and objects, and independent of the files' content.
"""
