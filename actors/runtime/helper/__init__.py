"""The helper: our OCI runtime for machines without runc or crun, at isolation levels 2 and 3.

It has the part of runc's command line that the runtime and its monitor use. config.json alone describes a container,
so the rest of the code handles all isolation levels alike:

    run --detach --bundle DIR --pid-file FILE [--console-socket SOCKET] ID
    exec --process FILE --pid-file FILE [--console-socket SOCKET] ID     (ends with the command's exit code)
    delete --force ID;  update --resources - ID;  features;  --version

For pods with users of their own it serves other OCI runtimes:

    hold-namespaces KIND...     (held_namespaces.py)
    show-mounts FILE            (shown_mounts.py)

And where SELinux is enabled:

    relabel LABEL FILE...               (kernel/relabel.py)
    exec-detached PID_FILE -- RUNC...   (kernel/adopting.py)

It forks once, and the child executes the container's program: no Python process stays beside a container. `plan.py`
decides the steps from config.json and the machine's features. `mounting.py`, `cgroups.py` and `identity.py` take them.

Rules against escapes: every mount but the root is made after the old root is gone. Each path of the container is
looked up once, by `container_root.py`, and used through its descriptor. After entering the container the process
loads no module, holds no descriptor of the machine and is not dumpable. Containers cannot write to its interpreter
(actors/runtime/oci/interpreter.py). It imports the standard library and this package only.

`--mode` is `root` (level 2), `user` or `plain` (level 3). `user` has a user namespace that maps one user, the agent's.
`plain` has no namespaces, mounts or limits; the image's root directory is the working directory.
"""
