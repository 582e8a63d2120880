"""Graceful node shutdown: logind's lock (logind), the order of the pods' ends (policy), and their ending (manager)."""
