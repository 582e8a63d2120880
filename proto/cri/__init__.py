"""The Container Runtime Interface, v1: `api.proto` and the stubs generated from it.

Nothing is imported here: `api_pb2` costs memory, so only who speaks CRI imports it.
"""
