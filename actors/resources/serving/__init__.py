"""gRPC on unix sockets: the server, and the proxy before it, which starts it with the first client."""
