"""The oom actor: reports the kernel's OOM kills of pods and of the node (OOM watcher)."""
