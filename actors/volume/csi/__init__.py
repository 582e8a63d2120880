"""CSI steps, carried out in helper processes: registration of drivers, and mounting and unmounting their volumes.

`policy.py` decides, `driver.py` calls a driver, `operations.py` mounts and unmounts. Only helpers open gRPC channels.
So the actor can fork at any time, a node without drivers pays nothing, and a hanging driver delays its own volume only.
"""
