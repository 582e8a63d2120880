"""One pod, its pod_workers process and a runtime, all in this process and in virtual time.

Nothing here sleeps or starts a thread: an hour of a pod's life takes milliseconds, and each step can be looked at.
"""
