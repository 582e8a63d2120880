"""Readers of proc(5), for processes and mount tables; and listening sockets."""
