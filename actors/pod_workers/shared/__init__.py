"""The contexts of all workers and of one worker, saved records, hooks over HTTP, and user namespaces."""
