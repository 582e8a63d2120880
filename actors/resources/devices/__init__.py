"""The device manager: device plugins, the devices that they list, and their assignment to containers."""
