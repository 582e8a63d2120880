"""The protocols of node plugins: plugin registration v1 and the Container Storage Interface v1.

This package imports nothing. The message classes take memory, so only modules that call a plugin import them.
"""
