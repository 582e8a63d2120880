"""The kubelet's command-line flags: their table, the types of their values, and the parser.

`table` lists the flags, `kinds` parses values, `parser` reads arguments as pflag does, `removed` explains flags of
former kubelets. Source: https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/
"""
