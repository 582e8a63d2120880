"""Commands that stream: exec, attach, port-forward, tap and the console."""
