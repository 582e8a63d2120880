"""System calls, capabilities and seccomp filters, by ctypes and the standard library alone."""
