"""Makes static pods of manifest files: decodes, names and hashes them."""
