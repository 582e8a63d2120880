"""Fuzzing: hostile input against every parser of the agent and against its live sockets.

A `Target` feeds bytes to one parser. A finding is an unexpected exception, a wrong acceptance (AssertionError), the
end of the process, more than `guard.DEADLINE_S` for one input, or more than `guard.MOST_GROWTH_BYTES` of memory.
`make test` gives each target its seeds and a few hundred mutations of them. `make long` runs them for an hour, guided
by coverage. `python -m tests.fuzz --help` has the commands. Inputs that were findings stay in `found/TARGET/`.
"""
