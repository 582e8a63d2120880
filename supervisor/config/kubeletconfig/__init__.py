"""KubeletConfiguration v1beta1 of Kubernetes 1.36: types, decoding, defaults, validation, and each field's effect.

It makes a checked configuration, and Settings, from a file's bytes or from plain values. Modules that need YAML import
it when they are called. In the order of a start:

- `loading.load(path) -> Loaded`: reads and decodes one file. `Loaded.value` has the plain values, which drop-ins merge.
- `typed.decode.decode(value) -> (KubeletConfiguration, problems)`: the same from merged values. `decode.convert` reads
  a flag's value, `typed.encode.plain` returns plain values.
- `defaults.apply(config)`: fills in every default.
- `validation.validate(config) -> problems`: applies all rules. `problems.located` adds file and line.
- `fields.without_effect(config) -> warnings`, `mapping.to_settings(config, base) -> Settings`.
"""
