"""Values that the managers of CPUs, memory, devices and topology exchange."""
