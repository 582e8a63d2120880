"""Metrics that only this agent has: processes, mailboxes, messages and delays."""

from __future__ import annotations

from actors._metrics.registry import Registry, exponential

REGISTRY = Registry()

_LATENESS = exponential(0.0001, 4, 8)
"""0.1 ms to 1.6 s."""

ACTOR_UP = REGISTRY.gauge("nodevisor_actor_up", "1 while the actor is in service.", "actor state")
ACTOR_RESTARTS = REGISTRY.counter("nodevisor_actor_restarts_total", "Starts after the first.", "actor")
ACTOR_DEATHS = REGISTRY.counter(
    "nodevisor_actor_deaths_total",
    "Ends that were not requested, by cause and by the message in the handler.",
    "actor cause call",
)
ACTOR_INCARNATION = REGISTRY.gauge("nodevisor_actor_incarnation", "Number of the actor's present process.", "actor")
ACTOR_UPTIME = REGISTRY.gauge("nodevisor_actor_uptime_seconds", "Time the process has been in service.", "actor")
ACTOR_CPU = REGISTRY.counter("nodevisor_actor_cpu_seconds_total", "CPU time of the present process.", "actor")
ACTOR_MEMORY = REGISTRY.gauge(
    "nodevisor_actor_memory_bytes", "Memory of the process, shared pages counted by its share (PSS).", "actor"
)
ACTOR_SILENT = REGISTRY.gauge(
    "nodevisor_actor_metrics_age_seconds",
    "Age of what is shown of an actor: more than a moment when it does not answer.",
    "actor",
)

MAILBOX_DEPTH = REGISTRY.gauge("nodevisor_mailbox_depth", "Messages that wait in the mailbox.", "actor")
MAILBOX_DELAY = REGISTRY.histogram(
    "nodevisor_mailbox_delay_seconds",
    "From the sending of a message until its handler begins.",
    "actor",
    bounds=_LATENESS,
)
MESSAGES = REGISTRY.counter("nodevisor_messages_total", "Messages handled, by type.", "actor type")
MESSAGES_FAILED = REGISTRY.counter("nodevisor_messages_failed_total", "Messages refused or failed.", "actor type")
MESSAGE_SECONDS = REGISTRY.counter(
    "nodevisor_message_seconds_total", "Time from the begin of a handler to its answer, summed.", "actor type"
)
MESSAGES_FROM = REGISTRY.counter("nodevisor_messages_from_total", "Messages handled, by sender.", "actor source")
QUEUE_SECONDS_FROM = REGISTRY.counter(
    "nodevisor_queue_seconds_from_total",
    "Time from sending to the begin of the handler, summed, by sender.",
    "actor source",
)
MESSAGES_DROPPED = REGISTRY.counter("nodevisor_messages_dropped_total", "Messages dropped, by cause.", "actor cause")
TASKS = REGISTRY.gauge("nodevisor_tasks", "Coroutines under way.", "actor")
PENDING_ASKS = REGISTRY.gauge("nodevisor_pending_asks", "Questions to other actors that wait for an answer.", "actor")

LOOP_LATENESS = REGISTRY.histogram(
    "nodevisor_loop_lateness_seconds",
    "How late timers fire: what else keeps the process, or its CPU, busy.",
    "actor",
    bounds=_LATENESS,
)
PROBE_LATENESS = REGISTRY.histogram(
    "nodevisor_probe_lateness_seconds", "How late probes begin.", "probe_type", bounds=_LATENESS
)

OOM_KILLS = REGISTRY.counter(
    "nodevisor_oom_kills_total",
    "Processes that the kernel killed for lack of memory: whose memory was short, and where the process was.",
    "short victim",
)
OOM_LOST_RECORDS = REGISTRY.counter(
    "nodevisor_oom_lost_records_total", "Records of the kernel's log that were overwritten before they were read."
)
