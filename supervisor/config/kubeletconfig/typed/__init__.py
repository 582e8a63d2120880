"""KubeletConfiguration as typed records: schema, decoding and encoding."""
