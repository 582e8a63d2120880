"""The client's side of what a runtime serves for exec, attach and port-forward, for the command line alone.

SPDY/3.1, because every runtime speaks it and a pipe can say its end in it; WebSocket has that only since its fifth
version of the protocol. There is no kept Python library for SPDY: the frames are in actors/_net/streaming/spdy.py.
"""
