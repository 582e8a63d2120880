"""Messages between actors: the bus, the mailbox, remote references, futures, timers and tasks."""
