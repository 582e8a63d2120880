"""Commands that stream: exec, attach, port-forward and tap."""
