"""ZeroMQ sockets of the parent: control requests, the event stream, and their client."""
