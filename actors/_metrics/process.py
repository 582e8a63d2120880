"""The standard process metrics of exporters, summed over all processes of the agent."""

from __future__ import annotations

from actors._metrics.registry import Registry

REGISTRY = Registry()
STARTED = Registry()
"""Also on /metrics/probes."""

CPU_SECONDS = REGISTRY.counter("process_cpu_seconds_total", "CPU time of the agent, user and system.")
OPEN_FDS = REGISTRY.gauge("process_open_fds", "Open file descriptors of the agent.")
MAX_FDS = REGISTRY.gauge("process_max_fds", "Most file descriptors that one of its processes may have.")
MEMORY = REGISTRY.gauge(
    "process_resident_memory_bytes", "Memory of the agent. Pages that its processes share are counted once (PSS)."
)
VIRTUAL_MEMORY = REGISTRY.gauge("process_virtual_memory_bytes", "Address space of the agent's processes together.")
VIRTUAL_MEMORY_MAX = REGISTRY.gauge(
    "process_virtual_memory_max_bytes", "Most address space that one of its processes may have; -1 for any."
)
RECEIVED = REGISTRY.counter("process_network_receive_bytes_total", "Bytes that came to the host's network.")
SENT = REGISTRY.counter("process_network_transmit_bytes_total", "Bytes that went out from the host's network.")
START_TIME = STARTED.gauge("process_start_time_seconds", "Unix time of the agent's start.")
