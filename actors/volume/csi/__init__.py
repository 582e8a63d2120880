"""CSI volumes: drivers that register with the node, and the volumes they stage and publish.

`registry.py` knows the drivers, `policy.py` decides, `driver.py` speaks to one, `operations.py` mounts and unmounts.
Whatever speaks to a driver runs in a helper process of its own: the actor never has a gRPC channel, so it costs nothing
on a node without drivers, it can go on forking, and a driver that is silent holds up its own volume only.
"""
