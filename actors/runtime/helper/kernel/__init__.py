"""System calls, capabilities and seccomp filters, with ctypes and the standard library alone."""
