"""Exec, Attach and PortForward sessions. An rpc prepares a session and answers with a URL, valid once, for a minute.

Modules:

    policy.py         the request of a prepared session, and its token
    limits.py         descriptors, streams and bytes of a session, and of all
    sessions.py       the rpcs
    server.py         the listener on the loopback, upgrades, dispatch
    spdy.py           remote command v1 to v4 over SPDY/3.1
    websocket.py      remote command v1, v4 and v5 over WebSocket
    remotecommand.py  copies bytes between a client's streams and a process's
    execution.py      runs a command in a container, and ends it when the client has gone
    attachment.py     a container's own streams, through its monitor
    portforward.py    connections into a sandbox's network

actors/_net has the parts that both ends of Kubernetes' streaming share: frames, messages, versions, outcomes.

One thread of the runtime's process runs all sessions, on the event loop of the kubelet's API; no handler and no rpc
waits for it. It and its libraries are loaded with the first session. A session ends when the actor is killed; the next
start ends the commands that it ran (containers/orphaned_execs.py).
"""
