"""Applies changed configuration files to a running agent, and falls back on the last configuration that worked.

The parent watches the files (`watch`). After an event and every 30 s it starts a process that looks at them (`look`).
After a change it starts a process that reads them (`resolver`). Both have a deadline (`reader`). `policy` decides, and
`controller` carries out its decisions. `readers` lists the actors that a setting concerns. `store` keeps the state on
disk. `boot` chooses the configuration of a starting agent.
"""
