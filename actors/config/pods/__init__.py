"""Turns manifest files into static pods: decode, name and hash."""
