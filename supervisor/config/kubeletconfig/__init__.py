"""KubeletConfiguration v1beta1 of Kubernetes 1.36: its types, decoding, defaults, rules, and what each field does here.

Covers the pure half: from a file's bytes or from plain values to a checked configuration and to Settings. Does not
cover flags, precedence, drop-in directories or watching. Importing it is cheap; what needs YAML loads it when called.

In the order of a start:
- `loading.load(path) -> Loaded`: one file, read whole, decoded strictly. `Loaded.value` has the plain values as they
  were written (what drop-ins merge), `.config` the same as structs without defaults, `.sources` field -> Origin.
- `decode.decode(value) -> (KubeletConfiguration, problems)`: the same from plain values, after a merge.
  `decode.convert(path, plain)`: one value, for a flag. `encode.plain(config)`: back again.
- `defaults.apply(config)`: every default filled in, dependent ones too.
- `validation.validate(config) -> problems`: all rules at once; `problems.located(problems, sources)` adds the places.
- `feature_gates`: the known gates; `parse`, `check`, `Gates.enabled`.
- `fields.without_effect(config) -> warnings`, `fields.to_settings(config, base) -> Settings`.
"""
