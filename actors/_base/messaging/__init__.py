"""Messages between actors: the bus, the mailbox, futures, timers and tasks."""
