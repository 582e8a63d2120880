"""The protocols of node plugins: registration v1, CSI v1, device plugins v1beta1. And the pod resources API.

This package imports nothing. The message classes take memory, so only modules that call a plugin import them.
"""
