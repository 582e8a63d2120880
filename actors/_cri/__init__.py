"""The Container Runtime Interface as the agent uses it: a client, its errors, and the search for a runtime.

Nothing is imported here, so that `actors._cri.errors` and `actors._cri.endpoint` come without gRPC.
"""
