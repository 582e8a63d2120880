"""Keeps two agents from serving the same pods: `supervisor start` claims its places and looks for other agents.

`policy` decides, and is pure; so are `kubelets` and `places`. `claims` takes locks, `look` and what it calls read
/proc. Runs in the process of the command, before the exec: the agent itself only keeps the descriptors of its claims.
"""
