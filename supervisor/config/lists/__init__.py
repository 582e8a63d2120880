"""Verdicts on the names that Kubernetes 1.36 publishes, as data that people edit. `reading` reads it.

api.yaml has the verdict on each field of Pod, Node and CSI objects. The fields by type are in api-1.36.txt. tests.yaml
has the test of each effective field of KubeletConfiguration, and of each flag without a field. Feature gates are in
`kubeletconfig.gates.verdicts`.
"""
