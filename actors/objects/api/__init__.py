"""The API server as a source of objects. Imported only with a kubeconfig.

`source.py` answers for every kind, `watching.py` and `polling.py` are the strategies for Secrets and ConfigMaps,
`resources.py` has the API paths and conversions.
"""
