"""PolicyError: a manager of this actor cannot start with its settings, its state file and this machine."""


class PolicyError(Exception):
    """The message names the setting or the file, in the kubelet's words, and what to do."""
