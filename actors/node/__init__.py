"""The Node object and its Lease: who this node is, and whether it is well."""
