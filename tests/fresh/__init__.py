"""A fresh Debian machine in namespaces, and what its first user does there: `make run`, `make test`, and mistakes.

`cache` keeps what takes long to make: `rootfs` a minimal Debian, `wheels` the packages that the set-up asks an index
for. `machine` starts a copy-on-write Debian in namespaces of its own; `terminal` runs commands there as a person does;
`traces` tells what they left.
"""
