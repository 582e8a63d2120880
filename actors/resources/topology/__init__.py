"""The topology manager: merges the hints of all providers to one set of NUMA nodes, and admits or rejects."""
