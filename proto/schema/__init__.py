"""Readers of YAML and JSON documents from outside, with the line of each field."""
