"""The memory manager: NUMA nodes for the memory and huge pages of Guaranteed pods."""
