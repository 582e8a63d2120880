"""Upstream's end-to-end specs of what a node does, on an agent of a private control plane: `make test-upstream`.

`.ci/kubernetes` builds the suite from Debian's kubernetes source package, so it is of the control plane's version. No
image is pulled: `images` makes stand-ins of the images that the specs name. `specs` selects them, with reasons.
It needs port 10250, so it does not run beside a kubelet. Its specs make loop devices and mounts below /tmp.
Specs of hostPath volumes leave small directories in /tmp: `provisioning-N`, `sub-path`.
`node` is another suite of upstream, which runs in a machine of its own.
"""
