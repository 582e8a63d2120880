"""Fuzzing: hostile input against every parser of the agent and against its live sockets.

A `Target` feeds bytes to one parser. A finding is an unexpected exception, a wrong acceptance (AssertionError), or the
end of the process. More than `guard.DEADLINE_S` or `guard.MOST_GROWTH_BYTES` for one input is a finding, too.
`make test` gives each target its seeds and a few hundred mutations of them. `make long` runs them for an hour, guided
by coverage. `python -m tests.fuzz --help` has the commands. Inputs that were findings stay in `found/TARGET/`.
"""
