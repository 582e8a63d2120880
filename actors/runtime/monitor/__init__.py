"""The monitor: one small process for all containers. It keeps exit codes and output while the runtime actor is away.

It runs the OCI runtime and is the subreaper of the containers: it alone learns their exit codes, and writes them to
disk. It copies their output to their logs. It decides nothing, and outlives the actor and the agent. Without
containers and without an actor it ends. It imports only this package and small modules of the standard library,
because its memory is the whole cost of supervising containers.

A container's output goes through a FIFO that the container also holds open for reading. So a killed monitor causes no
SIGPIPE. Only output that it had read and not yet written is lost, and the next monitor continues reading (`adopt`).
The next monitor is not the parent of those containers. It reads their exit codes from their pidfds since Linux 6.15;
on older kernels they are UNKNOWN.

Packets on a SOCK_SEQPACKET socket have fields joined by NUL. A container's
output waits for an attached client that does not read; the actor has to detach it.

    request   NUMBER VERB ARGUMENTS...
    reply     `reply` NUMBER `ok`, or `reply` NUMBER `error` TEXT
    event     `exited` ID CODE NS
    verbs     start ID DIR LOG STDIN CONSOLE COMMAND...;  adopt ID DIR LOG PID;  reopen ID LOG;  close-stdin ID;
              forget ID
              list: the reply is PID ID..., after an `exited` for each exit that could not be written to a full disk
              attach ID STREAMS, with a pipe for each stream: the reply is `open` if the container takes input, and
              carries its terminal if it has one

LOG is a path, or empty. No link is followed after a double slash in it.

In a container's directory it writes `started` (PID, start time in ticks, time in ns) and `exit` (code, time in ns).
"""
