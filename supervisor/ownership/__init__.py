"""Keeps two agents from serving the same pods: `supervisor start` locks its directories and looks for other agents.

`starting` is the way in. `policy` decides; `policy`, `kubelets` and `places` are pure. `claims` takes locks. `facts`
reads /proc with `holders`, `ports`, `pods` and `processes`. All of it runs in the command's process, before the exec.
The agent only keeps the descriptors of its locks (`held_claims`).
"""
