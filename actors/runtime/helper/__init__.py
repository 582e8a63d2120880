"""An OCI runtime of our own, for machines that have none: isolation levels 2 and 3.

A program with the part of runc's command line that the runtime and its monitor use, and config.json as the only
description of a container, so that all levels are one way through the rest of the code:

    run --detach --bundle DIR --pid-file FILE [--console-socket SOCKET] ID
    exec --process FILE --pid-file FILE [--console-socket SOCKET] ID     (ends with the command's exit code)
    delete --force ID;  update --resources - ID;  features;  --version

It forks once and executes the container's own program there: nothing of Python lives beside a container. `plan.py`
decides from config.json and from what the machine offers, in steps; `mounting.py`, `cgroups.py` and `identity.py` take
them. All mounts but the root are made when the old root is gone already. Each path of the container is looked up once,
by `inside.py`, and used by its descriptor. In the container no module is loaded, no descriptor of the machine is open,
and the process is not dumpable; its interpreter cannot be written to (actors/runtime/service/interpreter.py). Nothing
is imported from outside of the standard library and this package.

Modes, of `--mode`: `root` (level 2), `user` (level 3 with a user namespace: one user, ours), `plain` (level 3 without:
no namespace, no mount, no limit, the image's root directory as the working directory).
"""
