"""Exec, Attach and PortForward: an rpc prepares a session and answers with a URL, good once and for a minute.

    policy.py         what an rpc has prepared, and the tokens for it
    server.py         the listener on the loopback, upgrades, who serves what
    spdy.py           remote command v1 to v4 by SPDY/3.1
    websocket.py      remote command v1, v4 and v5 by WebSocket
    remotecommand.py  carries bytes between a client's streams and a process's
    execution.py      a command in a container: starting it, its end, and its end when the client is gone
    attachment.py     a container's own streams, through its monitor
    portforward.py    connections into a sandbox's network

What both ends of Kubernetes' streaming share (frames, messages, versions, outcomes) is in actors/_net.

All of it runs in one thread of the runtime's process, on the event loop of the kubelet's API: no handler and no rpc
waits for it. It and the libraries it needs are there from the first session on. A session breaks when the actor is
killed; commands that it ran are ended at the next start (execution.py).
"""
