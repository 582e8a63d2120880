"""The client side of a runtime's streaming server, for exec, attach and port-forward on the command line.

It uses SPDY/3.1: every runtime supports it, and it can signal the end of stdin. WebSocket can only since version 5 of
the remote command protocol. There is no maintained SPDY library: the frames are in actors/_net/streaming/spdy.py.
"""
