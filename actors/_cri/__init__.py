"""The client of the Container Runtime Interface, its errors, and the search for a runtime.

This module imports nothing, so that `errors` and `endpoint` can be imported without gRPC.
"""
