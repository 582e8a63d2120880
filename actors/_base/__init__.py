"""The framework of actor processes: the bus (I/O thread), the mailbox actor, its coroutines and timers.

It depends on no manager, no container runtime and no Kubernetes type.
"""

from actors._base.actor import Actor, handles
from actors._base.messaging.futures import Future
from actors._base.messaging.mailbox import MailboxActor
from actors._base.messaging.ref import RemoteRef
from actors._base.messaging.tasks import Cancelled, Semaphore, Task, first_of, gather
from actors._base.process.thread_pool import PooledActor

__all__ = [
    "Actor",
    "Cancelled",
    "Future",
    "MailboxActor",
    "PooledActor",
    "RemoteRef",
    "Semaphore",
    "Task",
    "first_of",
    "gather",
    "handles",
]
