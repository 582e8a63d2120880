"""What the agent needs of the machine: root and run directories, sysctls, the runtime's endpoint."""
