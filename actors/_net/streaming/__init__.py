"""Stream protocols of exec, attach and port-forward: SPDY, WebSocket and remotecommand."""
