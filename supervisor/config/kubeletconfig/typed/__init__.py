"""KubeletConfiguration as typed structs, with their schema, decoder and encoder."""
