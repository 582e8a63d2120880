"""The monitor: one small process for all containers, which keeps what must not be lost while the runtime actor is away.

It runs the OCI runtime, so that containers are its children (it is their subreaper): it alone learns their exit codes,
and writes them to disk. It reads their output and writes it to their logs. It decides nothing, and outlives the actor
and the agent; without containers and without an actor it ends. Nothing of ours is imported but this package, and
of the library only what is small, because its memory is all that a container's supervision costs.

What a container writes goes through a FIFO that it has open for reading, too: when the monitor is killed nobody gets
SIGPIPE, and nothing is lost but what it had read and not yet written; the next monitor goes on reading (`adopt`). It
cannot be the parent of those containers; their exit codes come from their pidfds where the kernel tells (6.15), else
they are UNKNOWN.

Packets on a SOCK_SEQPACKET socket, fields joined by NUL. To here: NUMBER VERB ARGUMENTS...; back: `reply` NUMBER `ok`
or `error` TEXT, and unasked `exited` ID CODE NS. Verbs: start ID DIR LOG STDIN CONSOLE COMMAND...;
adopt ID DIR LOG PID; reopen ID LOG; attach ID STREAMS, with a pipe for each of them (`open` if it takes input; with its
terminal if it has one); close-stdin ID; forget ID; list (PID ID...). A container waits for whoever is attached and does
not read: it is for the actor to let go.

In a container's directory it writes `started` (PID, its start time in ticks, time in ns), and `exit` (code, time in
ns).
"""
