"""The remote_console actor: serves consoles on other machines over TCP, with CURVE keys and roles."""
