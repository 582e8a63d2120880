"""The Container Runtime Interface, v1: `api.proto` and the message classes that are generated from it.

This package imports nothing. `api_pb2` takes memory, so only modules that call CRI import it.
"""
