"""The kubelet's command-line flags: what there is, what a value looks like, and reading a command line.

`table` is the list, `kinds` the types of values, `parser` reads arguments as pflag does, `removed` knows flags of
former kubelets. Which value wins over which is `supervisor.config.configuration`.
The command is `supervisor.cli.agent.start`.
https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/
"""
