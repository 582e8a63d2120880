"""Upstream's suite of one node, test/e2e_node, on an agent: `python -m tests.upstream --suite node`.

The suite starts an API server with etcd in its own process, and a program `kubelet`: here `kubelet`, which starts the
agent. `machine` starts it all in a machine of its own (tests/fresh) on this machine's files: the suite takes
/var/lib/kubelet, the top of the cgroups and the kubelet's ports. `inside` runs there. `specs` selects the specs.
"""

PROGRAMS = ("e2e_node.test", "sample-device-plugin")
"""Programs that `.ci/kubernetes` builds for it, besides those of the other suite."""
