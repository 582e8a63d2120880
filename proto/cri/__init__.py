"""The Container Runtime Interface, v1: `api.proto` and the message classes that are generated from it.

`labels` has the keys of the labels and annotations that the kubelet sets.

This package imports nothing. `api_pb2` takes memory, so only modules that call CRI import it.
"""
