"""The sources of credentials for a pull: the pod's Secrets, the node's files, and credential providers.

`sources.py` reads Secrets and files. `providers.py` decides about providers, `exec_provider.py` runs one, and
`plugins.py` asks all of them.
"""
